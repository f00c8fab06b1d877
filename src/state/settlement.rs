//! A tag on a record: who ties it learns what becomes of the record after it left their hands.
//!
//! A tag travels with the duty to settle: from the delivery to the queue of records that come again, into the next delivery, and
//! so on until the record is settled or, with the opening of its shard, lost. It costs those who do not use it one empty
//! pointer a delivery.

use std::{
    mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    task::Waker,
};

use futures::task::AtomicWaker;

use crate::{state::tracker::Ticket, util::mutex::lock};

/// Names a record among all that a stream, or several streams in one, may hold at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordKey {
    /// The shard of its shard.
    pub(crate) book: usize,
    pub(crate) ticket: Ticket,
}

impl RecordKey {
    /// Whether it comes before the other one in the order of their shard.
    pub(crate) fn precedes(&self, other: &Self) -> bool {
        self.book == other.book && self.ticket < other.ticket
    }

    /// Whether both belong to one opening of one shard.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        self.book == other.book && self.ticket.generation() == other.ticket.generation()
    }
}

/// What has become of a record so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Outcome {
    /// In somebody's hands.
    Out,
    /// Given back; it is to come again.
    Back,
    /// In somebody's hands again.
    Again,
    Settled,
    /// Neither settled nor to come again: the opening of its shard is over, or about to be.
    Lost,
}

impl Outcome {
    const ALL: [Self; 5] = [Self::Out, Self::Back, Self::Again, Self::Settled, Self::Lost];

    /// Whether the record was given back at some time before, so that somebody may be waiting for it.
    fn is_awaited(self) -> bool {
        matches!(self, Self::Back | Self::Again)
    }
}

/// Who ties tags: finds out which records that were given back have come to an end without being seen again.
#[derive(Debug, Default)]
pub(crate) struct Watch(Arc<Told>);

#[derive(Debug, Default)]
struct Told {
    /// Looked at with every poll, so it stands outside the lock.
    news: AtomicBool,
    marks: Mutex<Vec<Arc<SettlementState>>>,
    waker: AtomicWaker,
}

impl Watch {
    /// Who is woken when there is something to take.
    pub(crate) fn register(&self, waker: &Waker) {
        self.0.waker.register(waker);
    }

    /// The records that were given back and came to their end since the last call.
    pub(crate) fn take(&self) -> Vec<Arc<SettlementState>> {
        if !self.0.news.swap(false, Ordering::AcqRel) {
            return Vec::new();
        }
        mem::take(&mut *lock(&self.0.marks))
    }
}

/// What a watch keeps of a record.
#[derive(Debug)]
pub(crate) struct SettlementState {
    told: Arc<Told>,
    pub(crate) queue: u64,
    pub(crate) key_of_record: RecordKey,
    outcome: AtomicU8,
    /// The mark of another watch on the same record.
    below: Option<Arc<Self>>,
}

impl SettlementState {
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome::ALL[usize::from(self.outcome.load(Ordering::Acquire))]
    }

    /// Each record is in one place at a time, so its marks are changed by one thread at a time.
    fn set(self: &Arc<Self>, outcome: Outcome) {
        let before = self.outcome();
        self.outcome.store(outcome as u8, Ordering::Release);
        if before.is_awaited() && !outcome.is_awaited() {
            lock(&self.told.marks).push(Arc::clone(self));
            self.told.news.store(true, Ordering::Release);
            self.told.waker.wake();
        }
    }
}

/// See the module. A tag that is dropped says that its record is lost.
#[derive(Debug)]
pub(crate) struct Settlement(Arc<SettlementState>);

impl Settlement {
    /// Ties a tag, above those of other watches, unless this watch has one there already.
    pub(crate) fn tie(
        settlement: &mut Option<Self>,
        watch: &Watch,
        queue: u64,
        key_of_record: RecordKey,
    ) -> Arc<SettlementState> {
        let own = settlement.iter().flat_map(Self::marks).find(|mark| Arc::ptr_eq(&mark.told, &watch.0));
        if let Some(mark) = own {
            return Arc::clone(mark);
        }
        let below = settlement.as_ref().map(|settlement| Arc::clone(&settlement.0));
        let outcome = AtomicU8::new(Outcome::Out as u8);
        let mark = Arc::new(SettlementState { told: Arc::clone(&watch.0), queue, key_of_record, outcome, below });
        match settlement {
            Some(settlement) => settlement.0 = Arc::clone(&mark),
            None => *settlement = Some(Self(Arc::clone(&mark))),
        }
        mark
    }

    /// The record is given back.
    pub(crate) fn back(&self) {
        self.set(Outcome::Back);
    }

    /// The record goes out once more.
    pub(crate) fn again(&self) {
        self.set(Outcome::Again);
    }

    /// The record is settled.
    pub(crate) fn settled(self) {
        self.set(Outcome::Settled);
    }

    fn marks(&self) -> impl Iterator<Item = &Arc<SettlementState>> {
        std::iter::successors(Some(&self.0), |mark| mark.below.as_ref())
    }

    fn set(&self, outcome: Outcome) {
        self.marks().for_each(|mark| mark.set(outcome));
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

    fn key_of_record(offset: u64) -> RecordKey {
        RecordKey { book: 1, ticket: Ticket::of(1, offset) }
    }

    fn told(watch: &Watch) -> Vec<(u64, Outcome)> {
        watch.take().iter().map(|mark| (mark.queue, mark.outcome())).collect()
    }

    // A7
    #[test]
    fn the_end_of_a_record_is_told_if_it_was_ever_given_back() {
        let watch = Watch::default();
        let tied = |queue| {
            let mut settlement = None;
            Settlement::tie(&mut settlement, &watch, queue, key_of_record(queue));
            settlement.unwrap()
        };
        tied(0).settled();
        drop(tied(1));
        assert_eq!(told(&watch), []);
        for (queue, settles) in [(2, true), (3, false)] {
            let settlement = tied(queue);
            settlement.back();
            settlement.again();
            settlement.back();
            settlement.again();
            assert_eq!(told(&watch), []);
            if settles {
                settlement.settled();
            } else {
                drop(settlement);
            }
            assert_eq!(told(&watch), [(queue, if settles { Outcome::Settled } else { Outcome::Lost })]);
        }
        let lost = tied(4);
        lost.back();
        drop(lost);
        assert_eq!(told(&watch), [(4, Outcome::Lost)]);
    }

    // A7
    #[test]
    fn several_watches_follow_one_record_each_with_one_mark() {
        let (one, other) = (Watch::default(), Watch::default());
        let mut settlement = None;
        let first = Settlement::tie(&mut settlement, &one, 1, key_of_record(0));
        let second = Settlement::tie(&mut settlement, &other, 2, key_of_record(0));
        for (watch, mark) in [(&one, &first), (&other, &second)] {
            assert!(Arc::ptr_eq(mark, &Settlement::tie(&mut settlement, watch, mark.queue, key_of_record(0))));
        }
        let settlement = settlement.unwrap();
        settlement.back();
        assert_eq!((first.outcome(), second.outcome()), (Outcome::Back, Outcome::Back));
        settlement.settled();
        assert_eq!((told(&one), told(&other)), (vec![(1, Outcome::Settled)], vec![(2, Outcome::Settled)]));
    }
}
