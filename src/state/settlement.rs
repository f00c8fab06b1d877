//! How `buffer_by_key` learns the outcome of a record after the record went into the user's future.
//!
//! **Why the settlement travels with the duty to settle.** `buffer_by_key` has to learn what became of a record after
//! the record went into the user's future: settled, given back, or lost when its generation ended. Asking the shard's
//! state would mean a check of every waiting key at every poll. Instead a settlement on the acker travels through the
//! events into the next delivery, or through the dead-letter queue to the end, and notifies only the key queue that it
//! concerns. A delivery without a settlement pays one empty pointer.
//!
//! **When a generation ends, the events and the dead-letter queue drop the returned records of that shard,** so that no
//! key waits for a redelivery that will not happen.

use std::{
    mem,
    sync::{Arc, Mutex, atomic::Ordering},
    task::Waker,
};

use futures::task::AtomicWaker;

use crate::{
    state::tracker::Ticket,
    util::{
        atomics::{AtomicBool, AtomicU8},
        mutex::lock,
    },
};

/// Identifies a record among all records that one stream, or several merged streams, hold at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordKey {
    /// The address of the shard's state.
    pub(crate) shard: usize,
    pub(crate) ticket: Ticket,
}

impl RecordKey {
    /// Whether it precedes the other record in the same shard.
    pub(crate) fn precedes(&self, other: &Self) -> bool {
        self.shard == other.shard && self.ticket < other.ticket
    }

    /// Whether both belong to the same generation of the same shard.
    pub(crate) fn shares_generation(&self, other: &Self) -> bool {
        self.shard == other.shard && self.ticket.generation() == other.ticket.generation()
    }
}

/// What has happened to a record so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Outcome {
    /// Delivered, and not settled.
    Delivered,
    /// Given back, and waiting for a redelivery.
    Returned,
    /// Redelivered, and not settled.
    Redelivered,
    Settled,
    /// Neither settled nor to be redelivered: its generation is over, or about to be.
    Lost,
}

impl Outcome {
    const ALL: [Self; 5] = [Self::Delivered, Self::Returned, Self::Redelivered, Self::Settled, Self::Lost];

    /// Whether the record was given back earlier, so that a key queue may be waiting for it.
    fn is_awaited(self) -> bool {
        matches!(self, Self::Returned | Self::Redelivered)
    }
}

/// Collects the records that were given back and then reached their end unseen by the watch's owner.
#[derive(Debug, Default)]
pub(crate) struct OutcomeWatch(Arc<WatchInner>);

#[derive(Debug, Default)]
struct WatchInner {
    /// Every poll checks it, so it is outside the lock.
    has_ended: AtomicBool,
    ended: Mutex<Vec<Arc<TrackedOutcome>>>,
    waker: AtomicWaker,
}

impl OutcomeWatch {
    /// Sets the waker for the next ended record.
    pub(crate) fn register(&self, waker: &Waker) {
        self.0.waker.register(waker);
    }

    /// Takes the records that were given back and have reached their end since the last call.
    pub(crate) fn take(&self) -> Vec<Arc<TrackedOutcome>> {
        if !self.0.has_ended.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        mem::take(&mut *lock(&self.0.ended))
    }
}

/// The outcome of one record, as one watch tracks it.
#[derive(Debug)]
pub(crate) struct TrackedOutcome {
    watch: Arc<WatchInner>,
    /// The key queue of the record.
    pub(crate) queue: u64,
    pub(crate) record_key: RecordKey,
    outcome: AtomicU8,
    /// The entry of another watch on the same record.
    below: Option<Arc<Self>>,
}

impl TrackedOutcome {
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome::ALL[usize::from(self.outcome.load(Ordering::Acquire))]
    }

    /// A record is in one place at a time, so one thread at a time changes its outcome.
    fn set(self: &Arc<Self>, outcome: Outcome) {
        let before = self.outcome();
        self.outcome.store(outcome as u8, Ordering::Release);
        if before.is_awaited() && !outcome.is_awaited() {
            lock(&self.watch.ended).push(Arc::clone(self));
            self.watch.has_ended.store(true, Ordering::Release);
            self.watch.waker.wake();
        }
    }
}

/// See the module. Dropping a settlement means that its record is lost.
#[derive(Debug)]
pub(crate) struct Settlement(Arc<TrackedOutcome>);

impl Settlement {
    /// Attaches an entry for this watch, above the entries of other watches, unless this watch has one already.
    pub(crate) fn attach(
        settlement: &mut Option<Self>,
        watch: &OutcomeWatch,
        queue: u64,
        record_key: RecordKey,
    ) -> Arc<TrackedOutcome> {
        let attached = settlement.iter().flat_map(Self::entries).find(|entry| Arc::ptr_eq(&entry.watch, &watch.0));
        if let Some(entry) = attached {
            return Arc::clone(entry);
        }
        let below = settlement.as_ref().map(|settlement| Arc::clone(&settlement.0));
        let outcome = AtomicU8::new(Outcome::Delivered as u8);
        let entry = Arc::new(TrackedOutcome { watch: Arc::clone(&watch.0), queue, record_key, outcome, below });
        match settlement {
            Some(settlement) => settlement.0 = Arc::clone(&entry),
            None => *settlement = Some(Self(Arc::clone(&entry))),
        }
        entry
    }

    /// The record is given back.
    pub(crate) fn returned(&self) {
        self.set(Outcome::Returned);
    }

    /// The record is redelivered.
    pub(crate) fn redelivered(&self) {
        self.set(Outcome::Redelivered);
    }

    /// The record is settled.
    pub(crate) fn settled(self) {
        self.set(Outcome::Settled);
    }

    fn entries(&self) -> impl Iterator<Item = &Arc<TrackedOutcome>> {
        std::iter::successors(Some(&self.0), |entry| entry.below.as_ref())
    }

    fn set(&self, outcome: Outcome) {
        self.entries().for_each(|entry| entry.set(outcome));
    }
}

impl Drop for Settlement {
    fn drop(&mut self) {
        if self.0.outcome() != Outcome::Settled {
            self.set(Outcome::Lost);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record_key(offset: u64) -> RecordKey {
        RecordKey { shard: 1, ticket: Ticket::of(1, offset) }
    }

    fn ended(watch: &OutcomeWatch) -> Vec<(u64, Outcome)> {
        watch.take().iter().map(|entry| (entry.queue, entry.outcome())).collect()
    }

    // A7
    #[test]
    fn a_watch_learns_the_end_of_a_record_that_was_ever_given_back() {
        let watch = OutcomeWatch::default();
        let attached = |queue| {
            let mut settlement = None;
            Settlement::attach(&mut settlement, &watch, queue, record_key(queue));
            settlement.unwrap()
        };
        attached(0).settled();
        drop(attached(1));
        assert_eq!(ended(&watch), []);
        for (queue, settles) in [(2, true), (3, false)] {
            let settlement = attached(queue);
            settlement.returned();
            settlement.redelivered();
            settlement.returned();
            settlement.redelivered();
            assert_eq!(ended(&watch), []);
            if settles {
                settlement.settled();
            } else {
                drop(settlement);
            }
            assert_eq!(ended(&watch), [(queue, if settles { Outcome::Settled } else { Outcome::Lost })]);
        }
        let lost = attached(4);
        lost.returned();
        drop(lost);
        assert_eq!(ended(&watch), [(4, Outcome::Lost)]);
    }

    // A7
    #[test]
    fn several_watches_track_one_record_with_one_entry_each() {
        let (one, other) = (OutcomeWatch::default(), OutcomeWatch::default());
        let mut settlement = None;
        let first = Settlement::attach(&mut settlement, &one, 1, record_key(0));
        let second = Settlement::attach(&mut settlement, &other, 2, record_key(0));
        for (watch, entry) in [(&one, &first), (&other, &second)] {
            assert!(Arc::ptr_eq(entry, &Settlement::attach(&mut settlement, watch, entry.queue, record_key(0))));
        }
        let settlement = settlement.unwrap();
        settlement.returned();
        assert_eq!((first.outcome(), second.outcome()), (Outcome::Returned, Outcome::Returned));
        settlement.settled();
        assert_eq!((ended(&one), ended(&other)), (vec![(1, Outcome::Settled)], vec![(2, Outcome::Settled)]));
    }
}
