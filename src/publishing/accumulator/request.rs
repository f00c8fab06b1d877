//! Which request goes out next, and when.

use tokio::time::Instant;

use super::{Lanes, Parcel};
use crate::kinesis::Entry;

/// A request to be made, and the number under which its answer is to be given.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) flight: u64,
    pub(crate) entries: Vec<Entry>,
}

impl<T> Lanes<T> {
    /// The next request, if one is due and there is room for it.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Request> {
        if self.flights.len() >= self.rules.requests || self.gate.opens(now).is_some() {
            return None;
        }
        let parcels = match self.suspects.pop_front() {
            Some(suspects) => suspects,
            None if self.due().is_some_and(|due| due <= now) => self.pack(),
            None => return None,
        };
        let flight = self.next_flight;
        self.next_flight += 1;
        self.counts.requests += 1;
        let entries = parcels.iter().map(Parcel::entry).collect();
        self.flights.insert(flight, parcels);
        Some(Request { flight, entries })
    }

    /// When to look again, should nothing happen before.
    pub(crate) fn wake(&self, now: Instant) -> Option<Instant> {
        let rested = self.resting.keys().next().map(|(until, _)| *until);
        let expires = self.ready.values().next().map(|oldest| oldest.first.accepted + self.rules.timeout);
        let due = if self.suspects.is_empty() { self.due() } else { Some(now) };
        let due = due.filter(|_| self.flights.len() < self.rules.requests);
        let due = due.map(|due| self.gate.opens(now).map_or(due, |opens| due.max(opens)));
        [rested, expires, due].into_iter().flatten().min()
    }

    pub(super) fn is_full(&self) -> bool {
        self.ready.len() >= self.rules.request_records || self.ready_bytes >= self.rules.request_bytes
    }

    /// When what is ready is to go out.
    fn due(&self) -> Option<Instant> {
        let oldest = &self.ready.values().next()?.first;
        let is_urgent = self.is_full() || oldest.ticket < self.hurry;
        Some(if is_urgent { oldest.accepted } else { oldest.accepted + self.rules.linger })
    }

    /// Takes the oldest that fit into one request; the first one always does.
    fn pack(&mut self) -> Vec<Parcel<T>> {
        let most = self.ready.len().min(self.rules.request_records);
        let (mut parcels, mut bytes) = (Vec::with_capacity(most), 0);
        while parcels.len() < self.rules.request_records
            && let Some(oldest) = self.ready.first_entry()
            && (parcels.is_empty() || bytes + oldest.get().size() <= self.rules.request_bytes)
        {
            let mut parcel = oldest.remove();
            self.ready_bytes -= parcel.size();
            self.fill(&mut parcel, self.rules.request_bytes.saturating_sub(bytes));
            parcel.attempts += 1;
            bytes += parcel.size();
            parcels.push(parcel);
        }
        parcels
    }

    /// Adds what queues behind a parcel to it, if records are aggregated. One that was sent before stays as it was.
    fn fill(&mut self, parcel: &mut Parcel<T>, room: usize) {
        let Some(limit) = self.rules.aggregate.filter(|_| parcel.attempts == 0) else { return };
        let Some(queue) = parcel.lane.and_then(|lane| self.queues.get_mut(&lane)) else { return };
        while let Some(next) = queue.pop_front_if(|next| parcel.can_add(next, limit.min(room))) {
            parcel.add(next);
        }
    }
}
