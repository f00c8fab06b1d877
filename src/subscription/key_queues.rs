//! Which delivery may be worked on, and which ones wait: pure bookkeeping, one lane for each key.
//!
//! A lane is *busy* with one record, or *waits* for one that was given back and is to come again, or is *ready* to go on. Lanes
//! that have nothing to do are not kept, so neither memory nor time depends on how many keys there are.

use std::collections::{HashMap, VecDeque};

use crate::state::settlement::Spot;

/// See the module. `I` is what waits.
#[derive(Debug)]
pub(super) struct Lanes<I> {
    by_id: HashMap<u64, Lane<I>>,
    /// In the order in which they became ready.
    ready: VecDeque<u64>,
    /// How many lanes wait for a record that was given back.
    awaiting: usize,
    /// How many records stand in the lanes, and how many of those behind work that goes on.
    standing: usize,
    behind_work: usize,
}

#[derive(Debug)]
struct Lane<I> {
    state: State,
    queue: VecDeque<(Spot, I)>,
    /// So many of the queue came to stand behind a record that was given back.
    detained: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Busy,
    Ready,
    Waits(Spot),
}

/// How the work on a record ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The lane may go on.
    Free,
    /// The record was given back, and comes again.
    Back(Spot),
    /// The record was given back, and does not come again in this opening of its shard.
    Lost(Spot),
}

impl<I> Lanes<I> {
    pub(super) fn new() -> Self {
        Self { by_id: HashMap::new(), ready: VecDeque::new(), awaiting: 0, standing: 0, behind_work: 0 }
    }

    /// Takes a record in, for the first time or `again`. It comes back if its lane is free for it, which is busy from then on.
    pub(super) fn arrive(&mut self, id: u64, spot: Spot, again: bool, item: I) -> Option<I> {
        let new = || Lane { state: State::Ready, queue: VecDeque::new(), detained: 0 };
        let lane = self.by_id.entry(id).or_insert_with(new);
        let waits = match lane.state {
            State::Ready if lane.queue.is_empty() => {
                lane.state = State::Busy;
                return Some(item);
            }
            State::Waits(awaited) if awaited == spot => {
                lane.state = State::Busy;
                self.awaiting -= 1;
                return Some(item);
            }
            State::Waits(_) => true,
            State::Ready | State::Busy => false,
        };
        lane.insert(spot, again, item);
        self.standing += 1;
        if waits {
            lane.detained += 1;
        } else {
            self.behind_work += 1;
        }
        None
    }

    /// The next record whose lane is ready, which is busy from then on.
    pub(super) fn next(&mut self) -> Option<(u64, I)> {
        let id = self.ready.pop_front()?;
        let lane = self.by_id.get_mut(&id)?;
        let (_, item) = lane.queue.pop_front()?;
        lane.state = State::Busy;
        self.standing -= 1;
        if lane.detained > 0 {
            lane.detained -= 1;
        } else {
            self.behind_work -= 1;
        }
        Some((id, item))
    }

    /// The work with which a lane was busy has ended. Gives what must not be worked on any more.
    pub(super) fn done(&mut self, id: u64, end: End) -> Vec<I> {
        match end {
            End::Free => self.go_on(id),
            End::Back(spot) => self.wait(id, spot),
            End::Lost(spot) => {
                self.wait(id, spot);
                return self.lost(id, spot);
            }
        }
        Vec::new()
    }

    /// The record was settled elsewhere: if its lane waits for it, the lane may go on.
    pub(super) fn settled(&mut self, id: u64, spot: Spot) {
        if self.stops_waiting(id, spot) {
            self.go_on(id);
        }
    }

    /// The record does not come again: if its lane waits for it, the lane may go on, with other shards or another opening. Gives
    /// what stood behind it. That comes again after it, since no checkpoint passes it.
    pub(super) fn lost(&mut self, id: u64, spot: Spot) -> Vec<I> {
        if !self.stops_waiting(id, spot) {
            return Vec::new();
        }
        let Some(lane) = self.by_id.get_mut(&id) else { return Vec::new() };
        let (lost, rest) = lane.queue.drain(..).partition::<Vec<_>, _>(|(behind, _)| behind.is_beside(&spot));
        lane.queue = rest.into();
        lane.detained = lane.queue.len();
        self.standing -= lost.len();
        self.go_on(id);
        lost.into_iter().map(|(_, item)| item).collect()
    }

    /// Nothing arrives any more, so no record comes again. Gives what stood behind those.
    pub(super) fn end(&mut self) -> Vec<I> {
        let awaited = |(id, lane): (&u64, &Lane<I>)| match lane.state {
            State::Waits(spot) => Some((*id, spot)),
            State::Busy | State::Ready => None,
        };
        let waiting: Vec<(u64, Spot)> = self.by_id.iter().filter_map(awaited).collect();
        waiting.into_iter().flat_map(|(id, spot)| self.lost(id, spot)).collect()
    }

    /// Everything that stands in a lane, in the order of each lane.
    pub(super) fn clear(&mut self) -> impl Iterator<Item = I> {
        let cleared = std::mem::replace(self, Self::new());
        cleared.by_id.into_values().flat_map(|lane| lane.queue).map(|(_, item)| item)
    }

    /// How many records stand behind work that goes on, or for want of a place to work on them.
    pub(super) fn behind_work(&self) -> usize {
        self.behind_work
    }

    /// How many records stand in the lanes in all.
    pub(super) fn standing(&self) -> usize {
        self.standing
    }

    /// Whether any lane waits for a record that was given back.
    pub(super) fn is_awaiting(&self) -> bool {
        self.awaiting > 0
    }

    /// The lane goes on with its next record, or is done.
    fn go_on(&mut self, id: u64) {
        let Some(lane) = self.by_id.get_mut(&id) else { return };
        if lane.queue.is_empty() {
            self.by_id.remove(&id);
        } else {
            lane.state = State::Ready;
            self.ready.push_back(id);
        }
    }

    /// The lane waits for this record, unless the record stands there already.
    fn wait(&mut self, id: u64, spot: Spot) {
        let Some(lane) = self.by_id.get_mut(&id) else { return };
        if lane.queue.iter().any(|(standing, _)| *standing == spot) {
            return self.go_on(id);
        }
        self.behind_work -= lane.queue.len() - lane.detained;
        self.awaiting += 1;
        lane.detained = lane.queue.len();
        lane.state = State::Waits(spot);
    }

    fn stops_waiting(&mut self, id: u64, spot: Spot) -> bool {
        let waited = self.by_id.get(&id).is_some_and(|lane| lane.state == State::Waits(spot));
        self.awaiting -= usize::from(waited);
        waited
    }
}

impl<I> Lane<I> {
    /// Last, unless it comes again: then before those that follow it in its shard.
    fn insert(&mut self, spot: Spot, again: bool, item: I) {
        let followed = || self.queue.iter().position(|(standing, _)| spot.precedes(standing));
        let at = if again { followed() } else { None };
        self.queue.insert(at.unwrap_or(self.queue.len()), (spot, item));
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
    fn spot(book: usize, generation: u64, offset: u64) -> Spot {
        Spot { book, ticket: Ticket::of(generation, offset) }
    }

    /// The record at this place of the first opening of the first shard.
    fn at(offset: u64) -> Spot {
        spot(1, 1, offset)
    }

    /// Takes records in that come the first time, and tells which may be worked on.
    fn arrive(lanes: &mut Lanes<u64>, id: u64, offsets: impl IntoIterator<Item = u64>) -> Vec<u64> {
        offsets.into_iter().filter_map(|offset| lanes.arrive(id, at(offset), false, offset)).collect()
    }

    fn counts(lanes: &Lanes<u64>) -> (usize, usize, bool) {
        (lanes.standing(), lanes.behind_work(), lanes.is_awaiting())
    }

    /// Works on everything that stands in the one lane with this id.
    fn rest(lanes: &mut Lanes<u64>, id: u64) -> Vec<u64> {
        let mut rest = Vec::new();
        assert_eq!(lanes.done(id, End::Free), NOTHING);
        while let Some((of, item)) = lanes.next() {
            assert_eq!((of, lanes.done(id, End::Free)), (id, Vec::new()));
            rest.push(item);
        }
        rest
    }

    #[test]
    fn a_lane_takes_one_record_at_a_time_and_ready_lanes_take_turns() {
        let mut lanes = Lanes::new();
        assert_eq!(arrive(&mut lanes, 1, [0, 1, 2]), [0]);
        assert_eq!(arrive(&mut lanes, 2, [3, 4]), [3]);
        assert_eq!((lanes.next(), counts(&lanes)), (None, (3, 3, false)));
        lanes.done(2, End::Free);
        lanes.done(1, End::Free);
        assert_eq!((lanes.next(), lanes.next(), lanes.next()), (Some((2, 4)), Some((1, 1)), None));
        lanes.done(2, End::Free);
        lanes.done(1, End::Free);
        assert_eq!((lanes.next(), lanes.next()), (Some((1, 2)), None));
        lanes.done(1, End::Free);
        assert_eq!((counts(&lanes), lanes.by_id.len()), ((0, 0, false), 0));
    }

    // A7
    #[test]
    fn a_record_that_was_given_back_holds_its_lane_until_it_comes_again() {
        let mut lanes = Lanes::new();
        arrive(&mut lanes, 1, [0, 1]);
        assert_eq!(counts(&lanes), (1, 1, false));
        lanes.done(1, End::Back(at(0)));
        assert_eq!(arrive(&mut lanes, 1, [2]), NOTHING);
        assert_eq!((lanes.next(), counts(&lanes)), (None, (2, 0, true)));
        assert_eq!(lanes.arrive(1, at(0), true, 0), Some(0));
        assert_eq!(arrive(&mut lanes, 1, [3]), NOTHING);
        assert_eq!(counts(&lanes), (3, 1, false));
        assert_eq!((rest(&mut lanes, 1), counts(&lanes)), (vec![1, 2, 3], (0, 0, false)));
    }

    // A7
    #[test]
    fn a_record_that_comes_again_while_its_lane_is_busy_is_next_in_its_shard() {
        let mut lanes = Lanes::new();
        arrive(&mut lanes, 1, [1]);
        assert_eq!(lanes.arrive(1, spot(2, 1, 0), false, 90), None);
        arrive(&mut lanes, 1, [2, 3]);
        assert_eq!(lanes.arrive(1, at(0), true, 0), None);
        assert_eq!(lanes.arrive(1, at(1), true, 1), None);
        // The record that it is busy with was given back and stands here already.
        assert_eq!(lanes.done(1, End::Back(at(1))), NOTHING);
        assert_eq!(lanes.next(), Some((1, 90)));
        assert_eq!((rest(&mut lanes, 1), counts(&lanes)), (vec![0, 1, 2, 3], (0, 0, false)));
    }

    // A7
    #[test]
    fn a_lane_goes_on_when_the_record_that_it_waits_for_is_settled_elsewhere() {
        let mut lanes = Lanes::new();
        arrive(&mut lanes, 1, [0, 1]);
        lanes.settled(1, at(0));
        assert_eq!(lanes.next(), None);
        lanes.done(1, End::Back(at(0)));
        lanes.settled(1, at(1));
        assert_eq!(lanes.next(), None);
        lanes.settled(1, at(0));
        assert_eq!((lanes.next(), counts(&lanes)), (Some((1, 1)), (0, 0, false)));
    }

    // A7
    #[test]
    fn what_stands_behind_a_lost_record_goes_with_it_and_other_shards_and_openings_go_on() {
        let mut lanes = Lanes::new();
        arrive(&mut lanes, 1, [0, 1]);
        lanes.arrive(1, spot(2, 1, 5), false, 25);
        lanes.arrive(1, spot(1, 2, 0), false, 10);
        arrive(&mut lanes, 1, [2]);
        assert_eq!(lanes.done(1, End::Lost(at(0))), [1, 2]);
        assert_eq!((lanes.next(), counts(&lanes)), (Some((1, 25)), (1, 0, false)));
        assert_eq!(lanes.lost(1, at(0)), NOTHING);
        assert_eq!(rest(&mut lanes, 1), [10]);
    }

    // A7
    #[test]
    fn at_the_end_only_lanes_that_wait_are_given_up() {
        let mut lanes = Lanes::new();
        arrive(&mut lanes, 1, [0, 1]);
        arrive(&mut lanes, 2, [2, 3]);
        lanes.done(1, End::Back(at(0)));
        assert_eq!((lanes.end(), counts(&lanes)), (vec![1], (1, 1, false)));
        assert_eq!(rest(&mut lanes, 2), [3]);
        assert_eq!(lanes.by_id.len(), 0);
    }

    /// A step of whoever uses lanes. Numbers pick from what there is.
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
        lanes: Lanes<u64>,
        arrived: u64,
        /// Records in work and given back, each with its lane.
        working: BTreeMap<u64, u64>,
        back: BTreeMap<u64, u64>,
        /// Of each lane, what is next: everything before it is settled or lost.
        settled: BTreeSet<u64>,
        lost: BTreeSet<u64>,
        lane_of: BTreeMap<u64, u64>,
    }

    impl Model {
        fn begins(&mut self, lane: u64, offset: u64) {
            assert!(!self.working.values().any(|busy| *busy == lane), "lane {lane} is busy");
            assert!(!self.back.values().any(|waits| *waits == lane), "lane {lane} waits");
            let earlier = self.lane_of.iter().filter(|(earlier, of)| **of == lane && **earlier < offset);
            let mut open =
                earlier.filter(|(earlier, _)| !self.settled.contains(earlier) && !self.lost.contains(earlier));
            assert_eq!(open.next(), None, "before {offset} of {lane}");
            self.working.insert(offset, lane);
        }

        fn step(&mut self, step: &Step) {
            match step {
                Step::Arrive(lane) => {
                    let offset = self.arrived;
                    self.arrived += 1;
                    self.lane_of.insert(offset, *lane);
                    if let Some(offset) = self.lanes.arrive(*lane, at(offset), false, offset) {
                        self.begins(*lane, offset);
                    }
                }
                Step::Start => {
                    if let Some((lane, offset)) = self.lanes.next() {
                        self.begins(lane, offset);
                    }
                }
                Step::Done(which, ending) => {
                    let Some((offset, lane)) = nth(&self.working, *which) else { return };
                    self.working.remove(&offset);
                    let end = match ending {
                        Ending::Free => End::Free,
                        Ending::Back => End::Back(at(offset)),
                        Ending::Lost => End::Lost(at(offset)),
                    };
                    match ending {
                        Ending::Free => self.settled.insert(offset),
                        Ending::Back => self.back.insert(offset, lane).is_none(),
                        Ending::Lost => self.lost.insert(offset),
                    };
                    self.lost.extend(self.lanes.done(lane, end));
                }
                Step::Then(which, ending) => {
                    let Some((offset, lane)) = nth(&self.back, *which) else { return };
                    self.back.remove(&offset);
                    match ending {
                        Ending::Free => {
                            self.settled.insert(offset);
                            self.lanes.settled(lane, at(offset));
                        }
                        Ending::Back => {
                            let begins = self.lanes.arrive(lane, at(offset), true, offset);
                            assert_eq!(begins, Some(offset));
                            self.begins(lane, offset);
                        }
                        Ending::Lost => {
                            self.lost.insert(offset);
                            self.lost.extend(self.lanes.lost(lane, at(offset)));
                        }
                    }
                }
            }
        }

        /// Counts agree, and nothing is forgotten.
        fn check(&self) {
            let standing: usize = self.lanes.by_id.values().map(|lane| lane.queue.len()).sum();
            let detained: usize = self.lanes.by_id.values().map(|lane| lane.detained).sum();
            let there = standing + self.working.len() + self.back.len() + self.settled.len() + self.lost.len();
            assert_eq!(u64::try_from(there).unwrap(), self.arrived);
            assert_eq!(counts(&self.lanes), (standing, standing - detained, !self.back.is_empty()));
            assert!(standing == 0 || !self.working.is_empty() || !self.back.is_empty() || !self.lanes.ready.is_empty());
        }
    }

    fn nth(of: &BTreeMap<u64, u64>, which: usize) -> Option<(u64, u64)> {
        of.iter().cycle().nth(which).map(|(offset, lane)| (*offset, *lane))
    }

    proptest! {
        // A7
        #[test]
        fn whatever_happens_a_record_begins_after_all_earlier_ones_of_its_lane_and_none_is_forgotten(steps in steps()) {
            let mut model = Model {
                lanes: Lanes::new(),
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
