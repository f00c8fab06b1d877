//! Which records go into the next PutRecords request, and what each response means for each record. Pure rules.
//!
//! ```text
//!              behind one of their key                   too old
//! accept ──┬──────► queued ──┐                ┌───────────────────────► settled
//!          │                 ▼                │                            ▲
//!          └────────────► ready ──► take ─► in flight ─► answer ───────────┤ stored, refused, attempts spent
//!                           ▲ ▲                           │ │              │
//!                           │ └───────── backoff ◄────────┘ └─► suspects ──┘ a refused request, in halves
//!                           └── the call failed: nothing goes out until the circuit opens
//! ```
//!
//! `request` builds the next request. `response` decides which failed entries are sent again. `backoff` says how long
//! an entry waits, and `entry` is what waits.
//!
//! It does no I/O and has no clock: the caller passes the time. An *entry* becomes one entry of a request: a record, or
//! several aggregated records of one key. With ordering, a key has one entry that is ready, in flight, backing off or
//! suspect; its other records queue behind. [`Accumulator::settled`] returns the settled records.
//!
//! **Order is by partition key, with one record of a key in flight.** PutRecords promises no order and fails entries
//! one by one, so anything faster could store a later record before an earlier one. A key queue is identified by the
//! hash of its key: two keys with the same hash wait for each other, and no key is stored twice.
//!
//! **Nothing below the accumulator retries PutRecords.** The accumulator knows which entries failed; the SDK would
//! resend all of them.

use std::{
    collections::{BTreeMap, HashMap, VecDeque, hash_map},
    hash::{BuildHasher, RandomState},
    mem,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    error::KinesisError,
    publishing::{
        accumulator::entry::{AcceptedRecord, QueuedEntry},
        missing_stream::MissingStream,
        record::{Outgoing, PublishOrder, Published},
    },
    util::circuit::Circuit,
};

mod backoff;
mod entry;
mod request;
mod response;
#[cfg(test)]
mod tests;

use self::backoff::Backoff;
pub(crate) use crate::publishing::accumulator::{request::Request, response::Answer};

/// How records are sent. The setters of [`PublishTo`](crate::PublishTo) document each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PublishRules {
    pub(crate) order: PublishOrder,
    pub(crate) linger: Duration,
    pub(crate) request_records: usize,
    pub(crate) request_bytes: usize,
    pub(crate) requests: usize,
    pub(crate) timeout: Duration,
    pub(crate) attempts: u32,
    /// How large an aggregate may be; none if there are to be none.
    pub(crate) aggregate: Option<usize>,
}

/// A record with its result. `T` is the value that was accepted with it.
#[derive(Debug)]
pub(crate) struct SettledRecord<T> {
    pub(crate) record: Outgoing,
    pub(crate) completion: T,
    pub(crate) attempts: u32,
    pub(crate) outcome: Result<Published, KinesisError>,
}

/// Counters since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PublishCounts {
    pub(crate) published: u64,
    pub(crate) failed: u64,
    pub(crate) bytes: u64,
    pub(crate) requests: u64,
    pub(crate) retries: u64,
    pub(crate) throttles: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Accumulator<T> {
    stream: Arc<str>,
    rules: PublishRules,
    hasher: RandomState,
    next_ticket: u64,
    /// Records before this ticket do not linger.
    skip_linger: u64,
    /// Records that wait behind another record of their key, by the hash of the key.
    queues: HashMap<u64, VecDeque<Box<AcceptedRecord<T>>>>,
    /// By ticket: the oldest goes first.
    ready: BTreeMap<u64, QueuedEntry<T>>,
    ready_bytes: usize,
    /// Failed entries, by the time at which they are ready again.
    resting: BTreeMap<(Instant, u64), QueuedEntry<T>>,
    /// Halves of refused requests: one record may have caused the refusal.
    suspects: VecDeque<Vec<QueuedEntry<T>>>,
    flights: BTreeMap<u64, Vec<QueuedEntry<T>>>,
    next_flight: u64,
    circuit: Circuit,
    missing_stream: MissingStream,
    backoff: Backoff,
    settled: Vec<SettledRecord<T>>,
    counts: PublishCounts,
}

impl<T> Accumulator<T> {
    pub(crate) fn new(stream: Arc<str>, rules: PublishRules) -> Self {
        let hasher = RandomState::new();
        let backoff = Backoff::new(hasher.hash_one(&stream));
        Self {
            stream,
            rules,
            hasher,
            next_ticket: 0,
            skip_linger: 0,
            queues: HashMap::new(),
            ready: BTreeMap::new(),
            ready_bytes: 0,
            resting: BTreeMap::new(),
            suspects: VecDeque::new(),
            flights: BTreeMap::new(),
            next_flight: 0,
            circuit: Circuit::default(),
            missing_stream: MissingStream::default(),
            backoff,
            settled: Vec::new(),
            counts: PublishCounts::default(),
        }
    }

    /// Accepts a record. `data` is its payload in the envelope of its headers. Returns whether the sender should check.
    pub(crate) fn accept(&mut self, record: Outgoing, data: Bytes, completion: T, now: Instant) -> bool {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let item = Box::new(AcceptedRecord { ticket, record, data, accepted: now, completion });
        let queue_id = match self.rules.order {
            PublishOrder::ByKey => Some(self.hasher.hash_one(&item.record.partition_key)),
            PublishOrder::Relaxed => None,
        };
        if let Some(queue_id) = queue_id {
            match self.queues.entry(queue_id) {
                hash_map::Entry::Occupied(mut queue) => {
                    queue.get_mut().push_back(item);
                    return false;
                }
                hash_map::Entry::Vacant(place) => drop(place.insert(VecDeque::new())),
            }
        }
        let (was_idle, was_full) = (self.ready.is_empty(), self.is_full());
        self.make_ready(QueuedEntry::new(queue_id, item));
        was_idle || self.is_full() && !was_full
    }

    /// Ends the linger of all accepted records. Returns the ticket of the next record.
    pub(crate) fn skip_linger(&mut self) -> u64 {
        self.skip_linger = self.next_ticket;
        self.skip_linger
    }

    /// Expires records that are too old, and makes entries ready whose backoff is over.
    pub(crate) fn pass(&mut self, now: Instant) {
        while let Some(rested) = self.resting.first_entry().filter(|rested| rested.key().0 <= now) {
            let entry = rested.remove();
            self.make_ready(entry);
        }
        while let Some(oldest) = self.ready.first_entry()
            && oldest.get().first.accepted + self.rules.timeout <= now
        {
            let entry = oldest.remove();
            self.ready_bytes -= entry.size();
            self.expire(entry, now);
        }
    }

    /// The records that settled since the last call, in no order.
    pub(crate) fn settled(&mut self) -> Vec<SettledRecord<T>> {
        mem::take(&mut self.settled)
    }

    /// The lowest open ticket, or the next one: every record before it is settled.
    pub(crate) fn open_from(&self) -> u64 {
        self.oldest().map_or(self.next_ticket, |oldest| oldest.ticket)
    }

    /// When the oldest open record was accepted.
    pub(crate) fn oldest_accepted(&self) -> Option<Instant> {
        self.oldest().map(|oldest| oldest.accepted)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.resting.is_empty() && self.suspects.is_empty() && self.flights.is_empty()
    }

    pub(crate) fn accepted(&self) -> u64 {
        self.next_ticket
    }

    pub(crate) fn counts(&self) -> PublishCounts {
        self.counts
    }

    /// Settles all open records with this error: the sender has ended.
    pub(crate) fn abandon(&mut self, error: &KinesisError) {
        let resting = mem::take(&mut self.resting).into_values();
        let ready = mem::take(&mut self.ready).into_values();
        let flights = mem::take(&mut self.flights).into_values().flatten();
        let suspects = mem::take(&mut self.suspects).into_iter().flatten();
        let entries: Vec<_> = resting.chain(ready).chain(flights).chain(suspects).collect();
        self.ready_bytes = 0;
        for entry in entries {
            self.settle(entry, |_| Err(error.clone()));
        }
        while let Some((_, entry)) = self.ready.pop_first() {
            self.ready_bytes -= entry.size();
            self.settle(entry, |_| Err(error.clone()));
        }
    }

    /// The head of a queue is always older than the records behind it.
    fn oldest(&self) -> Option<&AcceptedRecord<T>> {
        let flying = self.flights.values().chain(&self.suspects).flatten();
        let entries = self.ready.values().take(1).chain(self.resting.values()).chain(flying);
        entries.map(|entry| &*entry.first).min_by_key(|first| first.ticket)
    }

    fn make_ready(&mut self, entry: QueuedEntry<T>) {
        self.ready_bytes += entry.size();
        self.ready.insert(entry.first.ticket, entry);
    }

    /// Settles the records of an entry that are too old. The rest is ready again.
    fn expire(&mut self, entry: QueuedEntry<T>, now: Instant) {
        let (old, rest) = entry.split_at(|item| item.accepted + self.rules.timeout <= now);
        let is_whole = rest.is_none();
        if let Some(rest) = rest {
            self.make_ready(rest);
        }
        if let Some(old) = old {
            self.give_up(old, now, is_whole);
        }
    }
}
