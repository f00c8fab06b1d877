//! Which deliveries of one shard are settled, and how far its checkpoint may move: pure, without I/O.
//!
//! Records are numbered in the order of their first delivery. The watermark is the end of the longest run of settled
//! records from the front. Behind it, settled records between unsettled ones are kept as ranges. A generation is one
//! opening of the shard under one lease: a ticket of an earlier generation is stale.

use std::collections::VecDeque;

use tokio::time::Instant;

use crate::types::id::SequenceNumber;

/// The most positions between the oldest open record and the newest record, settled ones included.
const MAX_SPAN: u64 = 100_000;

/// How many settled entries, beyond the number of open ones, may collect behind an open one before they are merged into
/// ranges. Merging walks all entries, so it waits until it removes about as many entries as it walks.
const LOOSE: usize = 64;

/// Identifies a delivered record within its shard. Tickets have the order of the first deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket {
    generation: u64,
    offset: u64,
}

impl Ticket {
    pub(crate) fn generation(self) -> u64 {
        self.generation
    }

    /// For tests that only compare tickets.
    #[cfg(test)]
    pub(crate) fn of(generation: u64, offset: u64) -> Self {
        Self { generation, offset }
    }

    /// Whether both are from the same generation.
    pub(crate) fn shares_generation(self, other: Self) -> bool {
        self.generation == other.generation
    }
}

/// An open position, or a range of settled ones that starts after the previous entry.
#[derive(Debug)]
struct TrackedRecord {
    last: u64,
    number: SequenceNumber,
    state: RecordState,
}

#[derive(Debug)]
enum RecordState {
    Open { since: Instant, returned: bool },
    Settled,
}

impl TrackedRecord {
    fn is_settled(&self) -> bool {
        matches!(self.state, RecordState::Settled)
    }
}

/// The end of the settled run: every record below `upto` is settled, and `number` is the last of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Watermark {
    pub(crate) upto: u64,
    pub(crate) number: SequenceNumber,
}

/// The deliveries of one shard.
#[derive(Debug)]
pub(crate) struct Tracker {
    generation: u64,
    next: u64,
    /// Starts at the first open position: the front entry is always open.
    entries: VecDeque<TrackedRecord>,
    watermark: Option<Watermark>,
    open: usize,
    returned: usize,
    settled_entries: usize,
    merge_at: usize,
}

impl Tracker {
    pub(crate) fn new() -> Self {
        Self {
            generation: 0,
            next: 0,
            entries: VecDeque::new(),
            watermark: None,
            open: 0,
            returned: 0,
            settled_entries: 0,
            merge_at: LOOSE,
        }
    }

    /// Begins a generation: every earlier ticket becomes stale.
    pub(crate) fn begin(&mut self) -> u64 {
        *self = Self { generation: self.generation + 1, ..Self::new() };
        self.generation
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// Numbers the next record.
    pub(crate) fn hand_out(&mut self, number: SequenceNumber, now: Instant) -> Ticket {
        let offset = self.next;
        self.next += 1;
        self.open += 1;
        self.entries.push_back(TrackedRecord {
            last: offset,
            number,
            state: RecordState::Open { since: now, returned: false },
        });
        Ticket { generation: self.generation, offset }
    }

    /// Settles a record at any position, even one that waits for a redelivery. False if the ticket is stale or settled.
    pub(crate) fn settle(&mut self, ticket: Ticket) -> bool {
        let Some(index) = self.find(ticket) else { return false };
        let RecordState::Open { returned, .. } = self.entries[index].state else { return false };
        self.entries[index].state = RecordState::Settled;
        self.open -= 1;
        self.returned -= usize::from(returned);
        self.settled_entries += 1;
        if index == 0 {
            self.advance();
            return true;
        }
        if self.settled_entries > self.merge_at {
            self.merge();
        }
        true
    }

    /// Notes that the user gave the record back: it stays open, but the user no longer holds it. False if the ticket is
    /// stale or settled.
    pub(crate) fn give_back(&mut self, ticket: Ticket) -> bool {
        self.set_returned(ticket, true)
    }

    /// Notes that the record is redelivered. False if the ticket is stale or settled.
    pub(crate) fn hand_out_again(&mut self, ticket: Ticket) -> bool {
        self.set_returned(ticket, false)
    }

    /// The end of the settled run. None until the first record of the generation is settled.
    pub(crate) fn watermark(&self) -> Option<&Watermark> {
        self.watermark.as_ref()
    }

    /// How many records were delivered in this generation.
    pub(crate) fn handed_out(&self) -> u64 {
        self.next
    }

    /// Whether the watermark covers this record.
    pub(crate) fn covers(&self, ticket: Ticket) -> bool {
        ticket.generation == self.generation && self.watermark.as_ref().is_some_and(|mark| ticket.offset < mark.upto)
    }

    /// The number of unsettled records, including those that wait for a redelivery.
    pub(crate) fn open(&self) -> usize {
        self.open
    }

    /// The number of unsettled records that the user or the dead-letter writer holds.
    pub(crate) fn held(&self) -> usize {
        self.open - self.returned
    }

    /// Whether one more record may be delivered under this bound of unsettled records.
    pub(crate) fn has_room(&self, max_in_flight: usize) -> bool {
        let span = self.entries.front().map_or(0, |front| self.next - front.last);
        self.open < max_in_flight && span < MAX_SPAN
    }

    /// The oldest unsettled record, and the time of its first delivery.
    pub(crate) fn oldest(&self) -> Option<(&SequenceNumber, Instant)> {
        let TrackedRecord { number, state, .. } = self.entries.front()?;
        match state {
            RecordState::Open { since, .. } => Some((number, *since)),
            RecordState::Settled => None,
        }
    }

    fn set_returned(&mut self, ticket: Ticket, value: bool) -> bool {
        let Some(index) = self.find(ticket) else { return false };
        let RecordState::Open { returned, .. } = &mut self.entries[index].state else { return false };
        match (*returned, value) {
            (false, true) => self.returned += 1,
            (true, false) => self.returned -= 1,
            _ => {}
        }
        *returned = value;
        true
    }

    /// The index of the entry that covers this position. Until a range is merged, the index is plain arithmetic.
    fn find(&self, ticket: Ticket) -> Option<usize> {
        let front = self.entries.front()?.last;
        if ticket.generation != self.generation || ticket.offset < front {
            return None;
        }
        let guess = usize::try_from(ticket.offset - front).ok()?;
        if self.entries.get(guess).is_some_and(|entry| entry.last == ticket.offset) {
            return Some(guess);
        }
        let index = self.entries.partition_point(|entry| entry.last < ticket.offset);
        (index < self.entries.len()).then_some(index)
    }

    /// Moves the watermark over the settled entries at the front.
    fn advance(&mut self) {
        while let Some(TrackedRecord { last, number, .. }) = self.entries.pop_front_if(|entry| entry.is_settled()) {
            self.settled_entries -= 1;
            self.watermark = Some(Watermark { upto: last + 1, number });
        }
    }

    /// Merges neighbouring settled entries into ranges.
    fn merge(&mut self) {
        let mut merged: VecDeque<TrackedRecord> = VecDeque::with_capacity(self.open * 2 + 1);
        for entry in self.entries.drain(..) {
            match merged.back_mut() {
                Some(back) if back.is_settled() && entry.is_settled() => *back = entry,
                _ => merged.push_back(entry),
            }
        }
        self.settled_entries = merged.len() - self.open;
        self.merge_at = self.settled_entries + self.open + LOOSE;
        self.entries = merged;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn number(n: u64) -> SequenceNumber {
        SequenceNumber::new(n.to_string())
    }

    fn handed_out(tracker: &mut Tracker, count: u64) -> Vec<Ticket> {
        (0..count).map(|n| tracker.hand_out(number(n), Instant::now())).collect()
    }

    fn mark(tracker: &Tracker) -> Option<String> {
        tracker.watermark().map(|mark| mark.number.to_string())
    }

    // A3
    #[test]
    fn the_watermark_covers_the_longest_settled_run_from_the_front() {
        let mut tracker = Tracker::new();
        let tickets = handed_out(&mut tracker, 5);
        assert!(tracker.settle(tickets[1]));
        assert!(tracker.settle(tickets[3]));
        assert_eq!(mark(&tracker), None);
        assert!(tracker.settle(tickets[0]));
        assert_eq!(mark(&tracker).as_deref(), Some("1"));
        assert!(tracker.settle(tickets[2]));
        assert_eq!(mark(&tracker).as_deref(), Some("3"));
        assert_eq!(tracker.open(), 1);
        assert_eq!(tracker.oldest().map(|(number, _)| number.to_string()).as_deref(), Some("4"));
    }

    // A3
    #[test]
    fn a_ticket_of_an_earlier_generation_changes_nothing() {
        let mut tracker = Tracker::new();
        let old = handed_out(&mut tracker, 3);
        tracker.begin();
        let new = handed_out(&mut tracker, 1);
        assert!(!tracker.settle(old[0]));
        assert!(!tracker.give_back(old[1]));
        assert_eq!(mark(&tracker), None);
        assert!(tracker.settle(new[0]));
        assert!(!tracker.settle(new[0]));
    }

    // A5, A7
    #[test]
    fn a_returned_record_stays_open_but_is_not_held() {
        let mut tracker = Tracker::new();
        let tickets = handed_out(&mut tracker, 2);
        assert!(tracker.give_back(tickets[0]));
        assert_eq!((tracker.open(), tracker.held()), (2, 1));
        assert!(tracker.settle(tickets[1]));
        assert!(tracker.hand_out_again(tickets[0]));
        assert_eq!((tracker.open(), tracker.held()), (1, 1));
        assert!(tracker.settle(tickets[0]));
        assert_eq!(mark(&tracker).as_deref(), Some("1"));
    }

    // A5
    #[test]
    fn one_stuck_record_bounds_the_span_and_costs_a_few_entries() {
        let mut tracker = Tracker::new();
        let stuck = tracker.hand_out(number(0), Instant::now());
        for n in 1..MAX_SPAN {
            assert!(tracker.has_room(10));
            let ticket = tracker.hand_out(number(n), Instant::now());
            tracker.settle(ticket);
        }
        assert!(!tracker.has_room(10));
        assert!(tracker.entries.len() < 3 * LOOSE, "{} entries", tracker.entries.len());
        tracker.settle(stuck);
        assert_eq!(tracker.watermark().map(|mark| mark.upto), Some(MAX_SPAN));
        assert!(tracker.has_room(10));
    }

    #[derive(Clone, Debug)]
    enum Step {
        HandOut,
        Settle(prop::sample::Index),
        GiveBack(prop::sample::Index),
        Again(prop::sample::Index),
        Begin,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let pick = any::<prop::sample::Index>;
        let step = prop_oneof![
            40 => Just(Step::HandOut),
            40 => pick().prop_map(Step::Settle),
            8 => pick().prop_map(Step::GiveBack),
            8 => pick().prop_map(Step::Again),
            1 => Just(Step::Begin),
        ];
        prop::collection::vec(step, 0..600)
    }

    /// What the tracker should report, computed the slow way.
    #[derive(Default)]
    struct Model {
        tickets: Vec<Ticket>,
        first: usize,
        settled: BTreeSet<usize>,
        returned: BTreeSet<usize>,
    }

    impl Model {
        fn run(&self) -> usize {
            (self.first..self.tickets.len()).take_while(|index| self.settled.contains(index)).count()
        }

        fn counts(&self, index: usize) -> bool {
            index >= self.first && !self.settled.contains(&index)
        }

        fn apply(&mut self, tracker: &mut Tracker, step: &Step) {
            let pick =
                |index: &prop::sample::Index| (!self.tickets.is_empty()).then(|| index.index(self.tickets.len()));
            match step {
                Step::HandOut => {
                    let offset = u64::try_from(self.tickets.len()).unwrap();
                    self.tickets.push(tracker.hand_out(number(offset), Instant::now()));
                }
                Step::Settle(index) => {
                    let Some(index) = pick(index) else { return };
                    let was_open = self.counts(index);
                    assert_eq!(tracker.settle(self.tickets[index]), was_open);
                    if was_open {
                        self.settled.insert(index);
                        self.returned.remove(&index);
                    }
                }
                Step::GiveBack(index) => {
                    let Some(index) = pick(index) else { return };
                    assert_eq!(tracker.give_back(self.tickets[index]), self.counts(index));
                    if self.counts(index) {
                        self.returned.insert(index);
                    }
                }
                Step::Again(index) => {
                    let Some(index) = pick(index) else { return };
                    assert_eq!(tracker.hand_out_again(self.tickets[index]), self.counts(index));
                    self.returned.remove(&index);
                }
                Step::Begin => {
                    tracker.begin();
                    *self = Self {
                        first: self.tickets.len(),
                        tickets: std::mem::take(&mut self.tickets),
                        ..Self::default()
                    };
                }
            }
        }
    }

    proptest! {
        // A3, A5: never passes an unsettled record, never moves back within a generation, bounds hold
        #[test]
        fn any_order_of_settling_redelivery_and_generations_keeps_the_bounds(steps in steps()) {
            let mut tracker = Tracker::new();
            let mut model = Model::default();
            let mut before = (tracker.generation(), 0);
            for step in &steps {
                model.apply(&mut tracker, step);
                let run = model.run();
                let upto = tracker.watermark().map_or(0, |mark| mark.upto);
                prop_assert_eq!(upto, u64::try_from(run).unwrap());
                if run > 0 {
                    prop_assert_eq!(mark(&tracker), Some((model.first + run - 1).to_string()));
                }
                let now = (tracker.generation(), upto);
                prop_assert!(now >= before, "moved back from {before:?} to {now:?}");
                before = now;
                let open = model.tickets.len() - model.first - model.settled.len();
                prop_assert_eq!(tracker.open(), open);
                prop_assert_eq!(tracker.held(), open - model.returned.len());
                prop_assert!(tracker.entries.len() <= 3 * open + 2 * LOOSE + 2);
            }
        }
    }
}
