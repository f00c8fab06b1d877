//! Which request goes out next, and when.

use tokio::time::Instant;

use super::{Accumulator, QueuedEntry};
use crate::kinesis::PutEntry;

/// A request to be made, and the number under which its answer is to be given.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) flight: u64,
    pub(crate) entries: Vec<PutEntry>,
}

impl<T> Accumulator<T> {
    /// The next request, if one is due and there is room for it.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Request> {
        if self.flights.len() >= self.rules.requests || self.circuit.opens(now).is_some() {
            return None;
        }
        let queued = match self.suspects.pop_front() {
            Some(suspects) => suspects,
            None if self.due().is_some_and(|due| due <= now) => self.pack(),
            None => return None,
        };
        let flight = self.next_flight;
        self.next_flight += 1;
        self.counts.requests += 1;
        let entries = queued.iter().map(QueuedEntry::entry).collect();
        self.flights.insert(flight, queued);
        Some(Request { flight, entries })
    }

    /// When to look again, should nothing happen before.
    pub(crate) fn wake(&self, now: Instant) -> Option<Instant> {
        let rested = self.resting.keys().next().map(|(until, _)| *until);
        let expires = self.ready.values().next().map(|oldest| oldest.first.accepted + self.rules.timeout);
        let due = if self.suspects.is_empty() { self.due() } else { Some(now) };
        let due = due.filter(|_| self.flights.len() < self.rules.requests);
        let due = due.map(|due| self.circuit.opens(now).map_or(due, |opens| due.max(opens)));
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
    fn pack(&mut self) -> Vec<QueuedEntry<T>> {
        let most = self.ready.len().min(self.rules.request_records);
        let (mut entries, mut bytes) = (Vec::with_capacity(most), 0);
        while entries.len() < self.rules.request_records
            && let Some(oldest) = self.ready.first_entry()
            && (entries.is_empty() || bytes + oldest.get().size() <= self.rules.request_bytes)
        {
            let mut entry = oldest.remove();
            self.ready_bytes -= entry.size();
            self.fill(&mut entry, self.rules.request_bytes.saturating_sub(bytes));
            entry.attempts += 1;
            bytes += entry.size();
            entries.push(entry);
        }
        entries
    }

    /// Adds what queues behind a entry to it, if records are aggregated. One that was sent before stays as it was.
    fn fill(&mut self, entry: &mut QueuedEntry<T>, room: usize) {
        let Some(limit) = self.rules.aggregate.filter(|_| entry.attempts == 0) else { return };
        let Some(queue) = entry.lane.and_then(|lane| self.queues.get_mut(&lane)) else { return };
        while let Some(next) = queue.pop_front_if(|next| entry.can_add(next, limit.min(room))) {
            entry.add(next);
        }
    }
}
