//! Which delivery may be worked on, and which ones wait: pure bookkeeping, one queue for each key.
//!
//! A queue is *busy* with one record, or *waits* for one that was given back and is to come again, or is *ready* to go on. KeyQueues
//! that have nothing to do are not kept, so neither memory nor time depends on how many keys there are.

use std::collections::{HashMap, VecDeque};

use crate::state::settlement::RecordKey;

/// See the module. `I` is what waits.
#[derive(Debug)]
pub(super) struct KeyQueues<I> {
    by_id: HashMap<u64, KeyQueue<I>>,
    /// In the order in which they became ready.
    ready: VecDeque<u64>,
    /// How many queues wait for a record that was given back.
    awaiting: usize,
    /// How many records stand in the queues, and how many of those behind work that goes on.
    standing: usize,
    behind_work: usize,
}

#[derive(Debug)]
struct KeyQueue<I> {
    state: QueueState,
    queue: VecDeque<(RecordKey, I)>,
    /// So many of the queue came to stand behind a record that was given back.
    detained: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueueState {
    Busy,
    Ready,
    Waits(RecordKey),
}

/// How the work on a record ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The queue may go on.
    Free,
    /// The record was given back, and comes again.
    Back(RecordKey),
    /// The record was given back, and does not come again in this opening of its shard.
    Lost(RecordKey),
}

impl<I> KeyQueues<I> {
    pub(super) fn new() -> Self {
        Self { by_id: HashMap::new(), ready: VecDeque::new(), awaiting: 0, standing: 0, behind_work: 0 }
    }

    /// Takes a record in, for the first time or `again`. It comes back if its queue is free for it, which is busy from then on.
    pub(super) fn arrive(&mut self, id: u64, key_of_record: RecordKey, again: bool, item: I) -> Option<I> {
        let new = || KeyQueue { state: QueueState::Ready, queue: VecDeque::new(), detained: 0 };
        let queue = self.by_id.entry(id).or_insert_with(new);
        let waits = match queue.state {
            QueueState::Ready if queue.queue.is_empty() => {
                queue.state = QueueState::Busy;
                return Some(item);
            }
            QueueState::Waits(awaited) if awaited == key_of_record => {
                queue.state = QueueState::Busy;
                self.awaiting -= 1;
                return Some(item);
            }
            QueueState::Waits(_) => true,
            QueueState::Ready | QueueState::Busy => false,
        };
        queue.insert(key_of_record, again, item);
        self.standing += 1;
        if waits {
            queue.detained += 1;
        } else {
            self.behind_work += 1;
        }
        None
    }

    /// The next record whose queue is ready, which is busy from then on.
    pub(super) fn next(&mut self) -> Option<(u64, I)> {
        let id = self.ready.pop_front()?;
        let queue = self.by_id.get_mut(&id)?;
        let (_, item) = queue.queue.pop_front()?;
        queue.state = QueueState::Busy;
        self.standing -= 1;
        if queue.detained > 0 {
            queue.detained -= 1;
        } else {
            self.behind_work -= 1;
        }
        Some((id, item))
    }

    /// The work with which a queue was busy has ended. Gives what must not be worked on any more.
    pub(super) fn done(&mut self, id: u64, end: End) -> Vec<I> {
        match end {
            End::Free => self.go_on(id),
            End::Back(key_of_record) => self.wait(id, key_of_record),
            End::Lost(key_of_record) => {
                self.wait(id, key_of_record);
                return self.lost(id, key_of_record);
            }
        }
        Vec::new()
    }

    /// The record was settled elsewhere: if its queue waits for it, the queue may go on.
    pub(super) fn settled(&mut self, id: u64, key_of_record: RecordKey) {
        if self.stops_waiting(id, key_of_record) {
            self.go_on(id);
        }
    }

    /// The record does not come again: if its queue waits for it, the queue may go on, with other shards or another opening. Gives
    /// what stood behind it. That comes again after it, since no checkpoint passes it.
    pub(super) fn lost(&mut self, id: u64, key_of_record: RecordKey) -> Vec<I> {
        if !self.stops_waiting(id, key_of_record) {
            return Vec::new();
        }
        let Some(queue) = self.by_id.get_mut(&id) else { return Vec::new() };
        let (lost, rest) =
            queue.queue.drain(..).partition::<Vec<_>, _>(|(behind, _)| behind.shares_generation(&key_of_record));
        queue.queue = rest.into();
        queue.detained = queue.queue.len();
        self.standing -= lost.len();
        self.go_on(id);
        lost.into_iter().map(|(_, item)| item).collect()
    }

    /// Nothing arrives any more, so no record comes again. Gives what stood behind those.
    pub(super) fn end(&mut self) -> Vec<I> {
        let awaited = |(id, queue): (&u64, &KeyQueue<I>)| match queue.state {
            QueueState::Waits(key_of_record) => Some((*id, key_of_record)),
            QueueState::Busy | QueueState::Ready => None,
        };
        let waiting: Vec<(u64, RecordKey)> = self.by_id.iter().filter_map(awaited).collect();
        waiting.into_iter().flat_map(|(id, key_of_record)| self.lost(id, key_of_record)).collect()
    }

    /// Everything that stands in a queue, in the order of each queue.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = I> {
        let cleared = std::mem::replace(self, Self::new());
        cleared.by_id.into_values().flat_map(|queue| queue.queue).map(|(_, item)| item)
    }

    /// How many records stand behind work that goes on, or for want of a place to work on them.
    pub(super) fn behind_work(&self) -> usize {
        self.behind_work
    }

    /// How many records stand in the queues in all.
    pub(super) fn standing(&self) -> usize {
        self.standing
    }

    /// Whether any queue waits for a record that was given back.
    pub(super) fn is_awaiting(&self) -> bool {
        self.awaiting > 0
    }

    /// The queue goes on with its next record, or is done.
    fn go_on(&mut self, id: u64) {
        let Some(queue) = self.by_id.get_mut(&id) else { return };
        if queue.queue.is_empty() {
            self.by_id.remove(&id);
        } else {
            queue.state = QueueState::Ready;
            self.ready.push_back(id);
        }
    }

    /// The queue waits for this record, unless the record stands there already.
    fn wait(&mut self, id: u64, key_of_record: RecordKey) {
        let Some(queue) = self.by_id.get_mut(&id) else { return };
        if queue.queue.iter().any(|(standing, _)| *standing == key_of_record) {
            return self.go_on(id);
        }
        self.behind_work -= queue.queue.len() - queue.detained;
        self.awaiting += 1;
        queue.detained = queue.queue.len();
        queue.state = QueueState::Waits(key_of_record);
    }

    fn stops_waiting(&mut self, id: u64, key_of_record: RecordKey) -> bool {
        let waited = self.by_id.get(&id).is_some_and(|queue| queue.state == QueueState::Waits(key_of_record));
        self.awaiting -= usize::from(waited);
        waited
    }
}

impl<I> KeyQueue<I> {
    /// Last, unless it comes again: then before those that follow it in its shard.
    fn insert(&mut self, key_of_record: RecordKey, again: bool, item: I) {
        let followed = || self.queue.iter().position(|(standing, _)| key_of_record.precedes(standing));
        let at = if again { followed() } else { None };
        self.queue.insert(at.unwrap_or(self.queue.len()), (key_of_record, item));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;
    use crate::state::tracker::Ticket;

    const NOTHING: [u64; 0] = [];

    /// A record of a shard and an opening of it.
    fn key_of_record(book: usize, generation: u64, offset: u64) -> RecordKey {
        RecordKey { shard: book, ticket: Ticket::of(generation, offset) }
    }

    /// The record at this place of the first opening of the first shard.
    fn at(offset: u64) -> RecordKey {
        key_of_record(1, 1, offset)
    }

    /// Takes records in that come the first time, and tells which may be worked on.
    fn arrive(queues: &mut KeyQueues<u64>, id: u64, offsets: impl IntoIterator<Item = u64>) -> Vec<u64> {
        offsets.into_iter().filter_map(|offset| queues.arrive(id, at(offset), false, offset)).collect()
    }

    fn counts(queues: &KeyQueues<u64>) -> (usize, usize, bool) {
        (queues.standing(), queues.behind_work(), queues.is_awaiting())
    }

    /// Works on everything that stands in the one queue with this id.
    fn rest(queues: &mut KeyQueues<u64>, id: u64) -> Vec<u64> {
        let mut rest = Vec::new();
        assert_eq!(queues.done(id, End::Free), NOTHING);
        while let Some((of, item)) = queues.next() {
            assert_eq!((of, queues.done(id, End::Free)), (id, Vec::new()));
            rest.push(item);
        }
        rest
    }

    #[test]
    fn a_lane_takes_one_record_at_a_time_and_ready_lanes_take_turns() {
        let mut queues = KeyQueues::new();
        assert_eq!(arrive(&mut queues, 1, [0, 1, 2]), [0]);
        assert_eq!(arrive(&mut queues, 2, [3, 4]), [3]);
        assert_eq!((queues.next(), counts(&queues)), (None, (3, 3, false)));
        queues.done(2, End::Free);
        queues.done(1, End::Free);
        assert_eq!((queues.next(), queues.next(), queues.next()), (Some((2, 4)), Some((1, 1)), None));
        queues.done(2, End::Free);
        queues.done(1, End::Free);
        assert_eq!((queues.next(), queues.next()), (Some((1, 2)), None));
        queues.done(1, End::Free);
        assert_eq!((counts(&queues), queues.by_id.len()), ((0, 0, false), 0));
    }

    // A7
    #[test]
    fn a_record_that_was_given_back_holds_its_lane_until_it_comes_again() {
        let mut queues = KeyQueues::new();
        arrive(&mut queues, 1, [0, 1]);
        assert_eq!(counts(&queues), (1, 1, false));
        queues.done(1, End::Back(at(0)));
        assert_eq!(arrive(&mut queues, 1, [2]), NOTHING);
        assert_eq!((queues.next(), counts(&queues)), (None, (2, 0, true)));
        assert_eq!(queues.arrive(1, at(0), true, 0), Some(0));
        assert_eq!(arrive(&mut queues, 1, [3]), NOTHING);
        assert_eq!(counts(&queues), (3, 1, false));
        assert_eq!((rest(&mut queues, 1), counts(&queues)), (vec![1, 2, 3], (0, 0, false)));
    }

    // A7
    #[test]
    fn a_record_that_comes_again_while_its_lane_is_busy_is_next_in_its_shard() {
        let mut queues = KeyQueues::new();
        arrive(&mut queues, 1, [1]);
        assert_eq!(queues.arrive(1, key_of_record(2, 1, 0), false, 90), None);
        arrive(&mut queues, 1, [2, 3]);
        assert_eq!(queues.arrive(1, at(0), true, 0), None);
        assert_eq!(queues.arrive(1, at(1), true, 1), None);
        // The record that it is busy with was given back and stands here already.
        assert_eq!(queues.done(1, End::Back(at(1))), NOTHING);
        assert_eq!(queues.next(), Some((1, 90)));
        assert_eq!((rest(&mut queues, 1), counts(&queues)), (vec![0, 1, 2, 3], (0, 0, false)));
    }

    // A7
    #[test]
    fn a_lane_goes_on_when_the_record_that_it_waits_for_is_settled_elsewhere() {
        let mut queues = KeyQueues::new();
        arrive(&mut queues, 1, [0, 1]);
        queues.settled(1, at(0));
        assert_eq!(queues.next(), None);
        queues.done(1, End::Back(at(0)));
        queues.settled(1, at(1));
        assert_eq!(queues.next(), None);
        queues.settled(1, at(0));
        assert_eq!((queues.next(), counts(&queues)), (Some((1, 1)), (0, 0, false)));
    }

    // A7
    #[test]
    fn what_stands_behind_a_lost_record_goes_with_it_and_other_shards_and_openings_go_on() {
        let mut queues = KeyQueues::new();
        arrive(&mut queues, 1, [0, 1]);
        queues.arrive(1, key_of_record(2, 1, 5), false, 25);
        queues.arrive(1, key_of_record(1, 2, 0), false, 10);
        arrive(&mut queues, 1, [2]);
        assert_eq!(queues.done(1, End::Lost(at(0))), [1, 2]);
        assert_eq!((queues.next(), counts(&queues)), (Some((1, 25)), (1, 0, false)));
        assert_eq!(queues.lost(1, at(0)), NOTHING);
        assert_eq!(rest(&mut queues, 1), [10]);
    }

    // A7
    #[test]
    fn at_the_end_only_lanes_that_wait_are_given_up() {
        let mut queues = KeyQueues::new();
        arrive(&mut queues, 1, [0, 1]);
        arrive(&mut queues, 2, [2, 3]);
        queues.done(1, End::Back(at(0)));
        assert_eq!((queues.end(), counts(&queues)), (vec![1], (1, 1, false)));
        assert_eq!(rest(&mut queues, 2), [3]);
        assert_eq!(queues.by_id.len(), 0);
    }

    /// A step of whoever uses queues. Numbers pick from what there is.
    #[derive(Clone, Debug)]
    enum Step {
        Arrive(u64),
        /// The work on one of the records in work ends.
        Done(usize, Ending),
        /// One of those that were given back comes to something.
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
        /// Records in work and given back, each with its queue.
        working: BTreeMap<u64, u64>,
        back: BTreeMap<u64, u64>,
        /// Of each queue, what is next: everything before it is settled or lost.
        settled: BTreeSet<u64>,
        lost: BTreeSet<u64>,
        lane_of: BTreeMap<u64, u64>,
    }

    impl Model {
        fn begins(&mut self, queue: u64, offset: u64) {
            assert!(!self.working.values().any(|busy| *busy == queue), "queue {queue} is busy");
            assert!(!self.back.values().any(|waits| *waits == queue), "queue {queue} waits");
            let earlier = self.lane_of.iter().filter(|(earlier, of)| **of == queue && **earlier < offset);
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
                    self.lane_of.insert(offset, *queue);
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
                        Ending::Free => End::Free,
                        Ending::Back => End::Back(at(offset)),
                        Ending::Lost => End::Lost(at(offset)),
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

        /// Counts agree, and nothing is forgotten.
        fn check(&self) {
            let standing: usize = self.queues.by_id.values().map(|queue| queue.queue.len()).sum();
            let detained: usize = self.queues.by_id.values().map(|queue| queue.detained).sum();
            let there = standing + self.working.len() + self.back.len() + self.settled.len() + self.lost.len();
            assert_eq!(u64::try_from(there).unwrap(), self.arrived);
            assert_eq!(counts(&self.queues), (standing, standing - detained, !self.back.is_empty()));
            assert!(
                standing == 0 || !self.working.is_empty() || !self.back.is_empty() || !self.queues.ready.is_empty()
            );
        }
    }

    fn nth(of: &BTreeMap<u64, u64>, which: usize) -> Option<(u64, u64)> {
        of.iter().cycle().nth(which).map(|(offset, queue)| (*offset, *queue))
    }

    proptest! {
        // A7
        #[test]
        fn whatever_happens_a_record_begins_after_all_earlier_ones_of_its_lane_and_none_is_forgotten(steps in steps()) {
            let mut model = Model {
                queues: KeyQueues::new(),
                arrived: 0,
                working: BTreeMap::new(),
                back: BTreeMap::new(),
                settled: BTreeSet::new(),
                lost: BTreeSet::new(),
                lane_of: BTreeMap::new(),
            };
            for step in &steps {
                model.step(step);
                model.check();
            }
        }
    }
}
