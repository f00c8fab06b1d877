//! Which request goes out next, and when.
//!
//! **The oldest record goes first,** by a ticket that it gets when it is accepted. So a hot key cannot starve the
//! others. A record that waited behind its key has lingered long enough and does not linger again.
//!
//! **Aggregates hold one key.** They need no map of the shards and stay correct through splits and merges, where
//! readers drop user records that are in the wrong shard. The accumulator builds an aggregate when the key's turn
//! comes, from the records that wait in its queue, so aggregating adds no latency.

use tokio::time::Instant;

use super::{Accumulator, QueuedEntry};
use crate::kinesis::PutEntry;

/// A request to make. `flight` identifies its response.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) flight: u64,
    pub(crate) entries: Vec<PutEntry>,
}

impl<T> Accumulator<T> {
    /// The next request, if one is due and there is room for it.
    pub(crate) fn take(&mut self, now: Instant) -> Option<Request> {
        if self.flights.len() >= self.rules.requests || self.circuit.open_until(now).is_some() {
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

    /// When to check again if nothing happens before.
    pub(crate) fn wake(&self, now: Instant) -> Option<Instant> {
        let rested = self.resting.keys().next().map(|(until, _)| *until);
        let expires = self.ready.values().next().map(|oldest| oldest.first.accepted + self.rules.timeout);
        let due = if self.suspects.is_empty() { self.due() } else { Some(now) };
        let due = due.filter(|_| self.flights.len() < self.rules.requests);
        let due = due.map(|due| self.circuit.open_until(now).map_or(due, |until| due.max(until)));
        [rested, expires, due].into_iter().flatten().min()
    }

    pub(super) fn is_full(&self) -> bool {
        self.ready.len() >= self.rules.request_records || self.ready_bytes >= self.rules.request_bytes
    }

    /// When the ready entries are due.
    fn due(&self) -> Option<Instant> {
        let oldest = &self.ready.values().next()?.first;
        let is_urgent = self.is_full() || oldest.ticket < self.skip_linger;
        Some(if is_urgent { oldest.accepted } else { oldest.accepted + self.rules.linger })
    }

    /// Takes the oldest entries that fit into one request. The first one always fits.
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

    /// Adds the records that queue behind an entry to it, if records are aggregated. An entry that was sent before
    /// keeps its records.
    fn fill(&mut self, entry: &mut QueuedEntry<T>, room: usize) {
        let Some(limit) = self.rules.aggregate.filter(|_| entry.attempts == 0) else { return };
        let Some(queue) = entry.queue_id.and_then(|queue_id| self.queues.get_mut(&queue_id)) else { return };
        while let Some(next) = queue.pop_front_if(|next| entry.can_add(next, limit.min(room))) {
            entry.add(next);
        }
    }
}
