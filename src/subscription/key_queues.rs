//! Which delivery may be worked on, and which ones wait: pure bookkeeping, one queue for each key.
//!
//! A queue is *busy* with one record, *waits* for the redelivery of one that was given back, or is *ready* for its next
//! record. A queue without records is removed, so neither memory nor time depends on the number of keys.
//!
//! **Records behind a redelivery have no separate bound.** The record can be redelivered only if the stream is polled,
//! and the other keys have to make progress meanwhile. `max_in_flight` bounds them, like all unsettled records. Records
//! behind work in progress are bounded, and need no poll to become fewer.

use std::collections::{HashMap, VecDeque};

use crate::state::settlement::RecordKey;

/// All queues. `I` is what they hold.
#[derive(Debug)]
pub(super) struct KeyQueues<I> {
    by_id: HashMap<u64, KeyQueue<I>>,
    /// In the order in which they became ready.
    ready: VecDeque<u64>,
    /// How many queues wait for a redelivery.
    awaiting: usize,
    /// How many records are in the queues, and how many of those do not wait behind a redelivery.
    len: usize,
    behind_work: usize,
}

#[derive(Debug)]
struct KeyQueue<I> {
    state: QueueState,
    records: VecDeque<(RecordKey, I)>,
    /// How many of the records were queued behind a redelivery.
    behind_redelivery: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueState {
    Busy,
    Ready,
    Waits(RecordKey),
}

/// How the work on a record ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkEnd {
    /// The next record of the queue may start.
    Free,
    /// The record was given back and will be redelivered.
    Back(RecordKey),
    /// The record was given back and will not be redelivered in this generation of its shard.
    Lost(RecordKey),
}

impl<I> KeyQueues<I> {
    pub(super) fn new() -> Self {
        Self { by_id: HashMap::new(), ready: VecDeque::new(), awaiting: 0, len: 0, behind_work: 0 }
    }

    /// A record arrives, for the first time or `again`. If its queue is free for it, this returns it and the queue is
    /// busy; else the record is queued.
    pub(super) fn arrive(&mut self, id: u64, record: RecordKey, again: bool, item: I) -> Option<I> {
        let new = || KeyQueue { state: QueueState::Ready, records: VecDeque::new(), behind_redelivery: 0 };
        let queue = self.by_id.entry(id).or_insert_with(new);
        let waits = match queue.state {
            QueueState::Ready if queue.records.is_empty() => {
                queue.state = QueueState::Busy;
                return Some(item);
            }
            QueueState::Waits(awaited) if awaited == record => {
                queue.state = QueueState::Busy;
                self.awaiting -= 1;
                return Some(item);
            }
            QueueState::Waits(_) => true,
            QueueState::Ready | QueueState::Busy => false,
        };
        queue.insert(record, again, item);
        self.len += 1;
        if waits {
            queue.behind_redelivery += 1;
        } else {
            self.behind_work += 1;
        }
        None
    }

    /// The next record of a ready queue, which is busy from then on.
    pub(super) fn next(&mut self) -> Option<(u64, I)> {
        let id = self.ready.pop_front()?;
        let queue = self.by_id.get_mut(&id)?;
        let (_, item) = queue.records.pop_front()?;
        queue.state = QueueState::Busy;
        self.len -= 1;
        if queue.behind_redelivery > 0 {
            queue.behind_redelivery -= 1;
        } else {
            self.behind_work -= 1;
        }
        Some((id, item))
    }

    /// The work of a busy queue has ended. Returns the records that must not be worked on any more.
    pub(super) fn done(&mut self, id: u64, end: WorkEnd) -> Vec<I> {
        match end {
            WorkEnd::Free => self.release(id),
            WorkEnd::Back(record) => self.wait(id, record),
            WorkEnd::Lost(record) => {
                self.wait(id, record);
                return self.lost(id, record);
            }
        }
        Vec::new()
    }

    /// The record was settled elsewhere. If its queue waits for it, the queue becomes ready.
    pub(super) fn settled(&mut self, id: u64, record: RecordKey) {
        if self.stops_waiting(id, record) {
            self.release(id);
        }
    }

    /// The record will not be redelivered. If its queue waits for it, the queue becomes ready, with the records of
    /// other shards or generations. Returns the records that were behind it: no checkpoint passes it, so they are read
    /// again after it.
    pub(super) fn lost(&mut self, id: u64, record: RecordKey) -> Vec<I> {
        if !self.stops_waiting(id, record) {
            return Vec::new();
        }
        let Some(queue) = self.by_id.get_mut(&id) else { return Vec::new() };
        let (lost, rest) =
            queue.records.drain(..).partition::<Vec<_>, _>(|(behind, _)| behind.shares_generation(&record));
        queue.records = rest.into();
        queue.behind_redelivery = queue.records.len();
        self.len -= lost.len();
        self.release(id);
        lost.into_iter().map(|(_, item)| item).collect()
    }

    /// Nothing arrives any more, so no record is redelivered. Returns the records that were behind a redelivery.
    pub(super) fn end(&mut self) -> Vec<I> {
        let awaited = |(id, queue): (&u64, &KeyQueue<I>)| match queue.state {
            QueueState::Waits(record) => Some((*id, record)),
            QueueState::Busy | QueueState::Ready => None,
        };
        let waiting: Vec<(u64, RecordKey)> = self.by_id.iter().filter_map(awaited).collect();
        waiting.into_iter().flat_map(|(id, record)| self.lost(id, record)).collect()
    }

    /// All records, in the order of each queue.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = I> {
        let cleared = std::mem::replace(self, Self::new());
        cleared.by_id.into_values().flat_map(|queue| queue.records).map(|(_, item)| item)
    }

    /// How many records wait for work to end, of their own queue or of any.
    pub(super) fn behind_work(&self) -> usize {
        self.behind_work
    }

    /// How many records are in the queues.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Whether any queue waits for a redelivery.
    pub(super) fn is_awaiting(&self) -> bool {
        self.awaiting > 0
    }

    /// The queue becomes ready for its next record, or is removed if there is none.
    fn release(&mut self, id: u64) {
        let Some(queue) = self.by_id.get_mut(&id) else { return };
        if queue.records.is_empty() {
            self.by_id.remove(&id);
        } else {
            queue.state = QueueState::Ready;
            self.ready.push_back(id);
        }
    }

    /// The queue waits for the redelivery of this record, unless it is already in the queue.
    fn wait(&mut self, id: u64, record: RecordKey) {
        let Some(queue) = self.by_id.get_mut(&id) else { return };
        if queue.records.iter().any(|(queued, _)| *queued == record) {
            return self.release(id);
        }
        self.behind_work -= queue.records.len() - queue.behind_redelivery;
        self.awaiting += 1;
        queue.behind_redelivery = queue.records.len();
        queue.state = QueueState::Waits(record);
    }

    fn stops_waiting(&mut self, id: u64, record: RecordKey) -> bool {
        let waited = self.by_id.get(&id).is_some_and(|queue| queue.state == QueueState::Waits(record));
        self.awaiting -= usize::from(waited);
        waited
    }
}

impl<I> KeyQueue<I> {
    /// At the end; a redelivery goes before the records that follow it in its shard.
    fn insert(&mut self, record: RecordKey, again: bool, item: I) {
        let followed = || self.records.iter().position(|(queued, _)| record.precedes(queued));
        let at = if again { followed() } else { None };
        self.records.insert(at.unwrap_or(self.records.len()), (record, item));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::state::tracker::Ticket;

    const NOTHING: [u64; 0] = [];

    /// A record of a shard and a generation of it.
    fn record_of(book: usize, generation: u64, offset: u64) -> RecordKey {
        RecordKey { shard: book, ticket: Ticket::of(generation, offset) }
    }

    /// The record at this offset of the first generation of the first shard.
    fn at(offset: u64) -> RecordKey {
        record_of(1, 1, offset)
    }

    /// Lets records arrive for the first time. Returns those that may start.
    fn arrive(queues: &mut KeyQueues<u64>, id: u64, offsets: impl IntoIterator<Item = u64>) -> Vec<u64> {
        offsets.into_iter().filter_map(|offset| queues.arrive(id, at(offset), false, offset)).collect()
    }

    fn counts(queues: &KeyQueues<u64>) -> (usize, usize, bool) {
        (queues.len(), queues.behind_work(), queues.is_awaiting())
    }

    /// Works on all records of the only queue, which has this id.
    fn rest(queues: &mut KeyQueues<u64>, id: u64) -> Vec<u64> {
        let mut rest = Vec::new();
        assert_eq!(queues.done(id, WorkEnd::Free), NOTHING);
        while let Some((of, item)) = queues.next() {
            assert_eq!((of, queues.done(id, WorkEnd::Free)), (id, Vec::new()));
            rest.push(item);
        }
        rest
    }

    #[test]
    fn a_queue_works_on_one_record_at_a_time_and_ready_queues_take_turns() {
        let mut queues = KeyQueues::new();
        assert_eq!(arrive(&mut queues, 1, [0, 1, 2]), [0]);
        assert_eq!(arrive(&mut queues, 2, [3, 4]), [3]);
        assert_eq!((queues.next(), counts(&queues)), (None, (3, 3, false)));
        queues.done(2, WorkEnd::Free);
        queues.done(1, WorkEnd::Free);
        assert_eq!((queues.next(), queues.next(), queues.next()), (Some((2, 4)), Some((1, 1)), None));
        queues.done(2, WorkEnd::Free);
        queues.done(1, WorkEnd::Free);
        assert_eq!((queues.next(), queues.next()), (Some((1, 2)), None));
        queues.done(1, WorkEnd::Free);
        assert_eq!((counts(&queues), queues.by_id.len()), ((0, 0, false), 0));
    }

    // A7
    #[test]
    fn a_record_that_was_given_back_blocks_its_queue_until_it_is_redelivered() {
        let mut queues = KeyQueues::new();
        arrive(&mut queues, 1, [0, 1]);
        assert_eq!(counts(&queues), (1, 1, false));
        queues.done(1, WorkEnd::Back(at(0)));
        assert_eq!(arrive(&mut queues, 1, [2]), NOTHING);
        assert_eq!((queues.next(), counts(&queues)), (None, (2, 0, true)));
        assert_eq!(queues.arrive(1, at(0), true, 0), Some(0));
        assert_eq!(arrive(&mut queues, 1, [3]), NOTHING);
        assert_eq!(counts(&queues), (3, 1, false));
        assert_eq!((rest(&mut queues, 1), counts(&queues)), (vec![1, 2, 3], (0, 0, false)));
    }

    // A7
    #[test]
    fn a_redelivery_to_a_busy_queue_goes_before_later_records_of_its_shard() {
        let mut queues = KeyQueues::new();
        arrive(&mut queues, 1, [1]);
        assert_eq!(queues.arrive(1, record_of(2, 1, 0), false, 90), None);
        arrive(&mut queues, 1, [2, 3]);
        assert_eq!(queues.arrive(1, at(0), true, 0), None);
        assert_eq!(queues.arrive(1, at(1), true, 1), None);
        // The queue is busy with a record that was given back and is already queued again.
        assert_eq!(queues.done(1, WorkEnd::Back(at(1))), NOTHING);
        assert_eq!(queues.next(), Some((1, 90)));
        assert_eq!((rest(&mut queues, 1), counts(&queues)), (vec![0, 1, 2, 3], (0, 0, false)));
    }

    // A7
    #[test]
    fn a_queue_becomes_ready_when_the_record_it_waits_for_is_settled_elsewhere() {
        let mut queues = KeyQueues::new();
        arrive(&mut queues, 1, [0, 1]);
        queues.settled(1, at(0));
        assert_eq!(queues.next(), None);
        queues.done(1, WorkEnd::Back(at(0)));
        queues.settled(1, at(1));
        assert_eq!(queues.next(), None);
        queues.settled(1, at(0));
        assert_eq!((queues.next(), counts(&queues)), (Some((1, 1)), (0, 0, false)));
    }

    // A7
    #[test]
    fn records_behind_a_lost_record_are_returned_and_other_shards_and_generations_continue() {
        let mut queues = KeyQueues::new();
        arrive(&mut queues, 1, [0, 1]);
        queues.arrive(1, record_of(2, 1, 5), false, 25);
        queues.arrive(1, record_of(1, 2, 0), false, 10);
        arrive(&mut queues, 1, [2]);
        assert_eq!(queues.done(1, WorkEnd::Lost(at(0))), [1, 2]);
        assert_eq!((queues.next(), counts(&queues)), (Some((1, 25)), (1, 0, false)));
        assert_eq!(queues.lost(1, at(0)), NOTHING);
        assert_eq!(rest(&mut queues, 1), [10]);
    }

    // A7
    #[test]
    fn at_the_end_only_waiting_queues_return_their_records() {
        let mut queues = KeyQueues::new();
        arrive(&mut queues, 1, [0, 1]);
        arrive(&mut queues, 2, [2, 3]);
        queues.done(1, WorkEnd::Back(at(0)));
        assert_eq!((queues.end(), counts(&queues)), (vec![1], (1, 1, false)));
        assert_eq!(rest(&mut queues, 2), [3]);
        assert_eq!(queues.by_id.len(), 0);
    }

    /// A step of a user of the queues. Numbers pick one of the records that qualify.
    #[derive(Clone, Debug)]
    enum Step {
        Arrive(u64),
        /// The work on one of the records ends.
        Done(usize, Ending),
        /// One of the records that were given back is settled, redelivered or lost.
        Then(usize, Ending),
        Start,
    }

    #[derive(Clone, Copy, Debug)]
    enum Ending {
        Free,
        Back,
        Lost,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let ending = || prop_oneof![4 => Just(Ending::Free), 3 => Just(Ending::Back), 1 => Just(Ending::Lost)];
        let step = prop_oneof![
            4 => (0..4_u64).prop_map(Step::Arrive),
            3 => (0..10_usize, ending()).prop_map(|(which, end)| Step::Done(which, end)),
            2 => (0..10_usize, ending()).prop_map(|(which, end)| Step::Then(which, end)),
            3 => Just(Step::Start),
        ];
        proptest::collection::vec(step, 0..200)
    }

    /// All records of one shard, and where they are.
    #[derive(Debug)]
    struct Model {
        queues: KeyQueues<u64>,
        arrived: u64,
        /// Records under work and records given back, each with its queue.
        working: BTreeMap<u64, u64>,
        back: BTreeMap<u64, u64>,
        settled: BTreeSet<u64>,
        lost: BTreeSet<u64>,
        queue_of: BTreeMap<u64, u64>,
    }

    impl Model {
        fn begins(&mut self, queue: u64, offset: u64) {
            assert!(!self.working.values().any(|busy| *busy == queue), "queue {queue} is busy");
            assert!(!self.back.values().any(|waits| *waits == queue), "queue {queue} waits");
            let earlier = self.queue_of.iter().filter(|(earlier, of)| **of == queue && **earlier < offset);
            let mut open =
                earlier.filter(|(earlier, _)| !self.settled.contains(earlier) && !self.lost.contains(earlier));
            assert_eq!(open.next(), None, "before {offset} of {queue}");
            self.working.insert(offset, queue);
        }

        fn step(&mut self, step: &Step) {
            match step {
                Step::Arrive(queue) => {
                    let offset = self.arrived;
                    self.arrived += 1;
                    self.queue_of.insert(offset, *queue);
                    if let Some(offset) = self.queues.arrive(*queue, at(offset), false, offset) {
                        self.begins(*queue, offset);
                    }
                }
                Step::Start => {
                    if let Some((queue, offset)) = self.queues.next() {
                        self.begins(queue, offset);
                    }
                }
                Step::Done(which, ending) => {
                    let Some((offset, queue)) = nth(&self.working, *which) else { return };
                    self.working.remove(&offset);
                    let end = match ending {
                        Ending::Free => WorkEnd::Free,
                        Ending::Back => WorkEnd::Back(at(offset)),
                        Ending::Lost => WorkEnd::Lost(at(offset)),
                    };
                    match ending {
                        Ending::Free => self.settled.insert(offset),
                        Ending::Back => self.back.insert(offset, queue).is_none(),
                        Ending::Lost => self.lost.insert(offset),
                    };
                    self.lost.extend(self.queues.done(queue, end));
                }
                Step::Then(which, ending) => {
                    let Some((offset, queue)) = nth(&self.back, *which) else { return };
                    self.back.remove(&offset);
                    match ending {
                        Ending::Free => {
                            self.settled.insert(offset);
                            self.queues.settled(queue, at(offset));
                        }
                        Ending::Back => {
                            let begins = self.queues.arrive(queue, at(offset), true, offset);
                            assert_eq!(begins, Some(offset));
                            self.begins(queue, offset);
                        }
                        Ending::Lost => {
                            self.lost.insert(offset);
                            self.lost.extend(self.queues.lost(queue, at(offset)));
                        }
                    }
                }
            }
        }

        /// The counts agree, and no record is missing.
        fn check(&self) {
            let queued: usize = self.queues.by_id.values().map(|queue| queue.records.len()).sum();
            let behind_redelivery: usize = self.queues.by_id.values().map(|queue| queue.behind_redelivery).sum();
            let there = queued + self.working.len() + self.back.len() + self.settled.len() + self.lost.len();
            assert_eq!(u64::try_from(there).unwrap(), self.arrived);
            assert_eq!(counts(&self.queues), (queued, queued - behind_redelivery, !self.back.is_empty()));
            assert!(queued == 0 || !self.working.is_empty() || !self.back.is_empty() || !self.queues.ready.is_empty());
        }
    }

    fn nth(of: &BTreeMap<u64, u64>, which: usize) -> Option<(u64, u64)> {
        of.iter().cycle().nth(which).map(|(offset, queue)| (*offset, *queue))
    }

    proptest! {
        // A7
        #[test]
        fn a_record_starts_after_all_earlier_ones_of_its_queue_and_none_is_forgotten(steps in steps()) {
            let mut model = Model {
                queues: KeyQueues::new(),
                arrived: 0,
                working: BTreeMap::new(),
                back: BTreeMap::new(),
                settled: BTreeSet::new(),
                lost: BTreeSet::new(),
                queue_of: BTreeMap::new(),
            };
            for step in &steps {
                model.step(step);
                model.check();
            }
        }
    }
}
