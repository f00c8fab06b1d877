//! Random requests, faults and times, checked against a model of a stream.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;

/// What becomes of a request.
#[derive(Clone, Debug)]
enum Fault {
    /// These entries fail, by turns.
    Entries(Vec<bool>, FailureKind),
    /// Nothing is done.
    Fail(FailureKind),
    /// All is done, and the answer is lost.
    Lose,
}

#[derive(Clone, Debug)]
enum RandomStep {
    Accept { key: u8, size: usize, is_poison: bool },
    Answer(Index, Fault),
    Wait(u64),
}

fn fault() -> impl Strategy<Value = Fault> {
    let passing = || prop_oneof![Just(FailureKind::Throttled), Just(FailureKind::Other)];
    prop_oneof![
        4 => Just(Fault::Entries(vec![false], FailureKind::Other)),
        4 => (vec(any::<bool>(), 1..5), prop_oneof![4 => passing(), 1 => Just(FailureKind::Denied)])
            .prop_map(|(mask, kind)| Fault::Entries(mask, kind)),
        2 => passing().prop_map(Fault::Fail),
        1 => Just(Fault::Fail(FailureKind::Rejected)),
        2 => Just(Fault::Lose),
    ]
}

fn step() -> impl Strategy<Value = RandomStep> {
    prop_oneof![
        6 => (0..6_u8, 0..40_usize, prop::bool::weighted(0.05))
            .prop_map(|(key, size, is_poison)| RandomStep::Accept { key, size, is_poison }),
        3 => (any::<Index>(), fault()).prop_map(|(of, fault)| RandomStep::Answer(of, fault)),
        1 => (0..400_u64).prop_map(RandomStep::Wait),
    ]
}

/// The stream, the requests under way, and what was settled.
struct Model {
    machine: Machine,
    rules: PublishRules,
    flights: Vec<(u64, Vec<PutEntry>)>,
    /// By key: the numbers of the records in the order in which the stream has them.
    stream: BTreeMap<String, Vec<usize>>,
    /// What became of each record: whether it was stored.
    settled: BTreeMap<usize, bool>,
}

impl Model {
    fn new(rules: PublishRules) -> Self {
        let machine = Machine::new(rules.clone());
        Self { machine, rules, flights: Vec::new(), stream: BTreeMap::new(), settled: BTreeMap::new() }
    }

    fn act(&mut self, step: RandomStep) -> Result<(), TestCaseError> {
        match step {
            RandomStep::Accept { key, size, is_poison } => {
                let mark = if is_poison { "!" } else { "" };
                let payload = format!("{mark}{}:{}", self.machine.next, ".".repeat(size));
                self.machine.accept_one(Outgoing::new(format!("key {key}"), payload));
            }
            RandomStep::Answer(of, fault) => {
                if !self.flights.is_empty() {
                    let (flight, entries) = self.flights.remove(of.index(self.flights.len()));
                    let answer = self.play(&entries, &fault);
                    self.machine.accumulator.answer(flight, answer, self.machine.now);
                }
            }
            RandomStep::Wait(time) => drop(self.machine.after(millis(time))),
        }
        self.look()
    }

    /// Takes what is due and what has settled, and holds both to the promises.
    fn look(&mut self) -> Result<(), TestCaseError> {
        self.machine.accumulator.pass(self.machine.now);
        while let Some(Request { flight, entries }) = self.machine.accumulator.take(self.machine.now) {
            let bytes: usize = entries.iter().map(|entry| entry.data.len() + entry.partition_key.len()).sum();
            prop_assert!(entries.len() <= self.rules.request_records);
            prop_assert!(bytes <= self.rules.request_bytes || entries.len() == 1);
            self.flights.push((flight, entries));
        }
        prop_assert!(self.flights.len() <= self.rules.requests);
        if self.rules.order == PublishOrder::ByKey {
            let keys: Vec<_> = self.flights.iter().flat_map(|(_, entries)| entries).map(|e| &e.partition_key).collect();
            let distinct: BTreeSet<_> = keys.iter().collect();
            prop_assert_eq!(distinct.len(), keys.len(), "a key is under way twice");
        }
        for settled in self.machine.accumulator.settled() {
            let before = self.settled.insert(settled.completion, settled.outcome.is_ok());
            prop_assert_eq!(before, None, "a record settles twice");
        }
        Ok(())
    }

    fn play(&mut self, entries: &[PutEntry], fault: &Fault) -> Answer {
        if entries.iter().flat_map(payloads).any(|payload| payload.starts_with(b"!")) {
            return Err(failure(FailureKind::Rejected));
        }
        let (mask, kind) = match fault {
            Fault::Fail(kind) => return Err(failure(*kind)),
            Fault::Lose => (&vec![false], FailureKind::Other),
            Fault::Entries(mask, kind) => (mask, *kind),
        };
        let results = entries.iter().zip(mask.iter().cycle()).map(|(entry, fails)| {
            if *fails {
                return Err(failure(kind));
            }
            self.stream.entry(entry.partition_key.clone()).or_default().extend(payloads(entry).iter().map(number));
            Ok(Put { shard: "shard".into(), sequence_number: "1".into() })
        });
        let results = results.collect();
        if matches!(fault, Fault::Lose) { Err(failure(FailureKind::Unreachable)) } else { Ok(results) }
    }

    /// Lets everything go well, until nothing is open.
    fn heal(&mut self) -> Result<(), TestCaseError> {
        while !self.machine.accumulator.is_empty() {
            if let Some((flight, entries)) = self.flights.pop() {
                let answer = self.play(&entries, &Fault::Entries(vec![false], FailureKind::Other));
                self.machine.accumulator.answer(flight, answer, self.machine.now);
            } else {
                let wake = self.machine.accumulator.wake(self.machine.now);
                prop_assert!(wake.is_some(), "something is open, and nobody will look");
                self.machine.now = wake.unwrap().max(self.machine.now);
            }
            self.look()?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), TestCaseError> {
        prop_assert_eq!(self.settled.keys().copied().collect::<Vec<_>>(), (0..self.machine.next).collect::<Vec<_>>());
        let mut stored = BTreeSet::new();
        for numbers in self.stream.values() {
            let mut first: Vec<usize> = Vec::new();
            for number in numbers {
                if stored.insert(*number) {
                    first.push(*number);
                }
            }
            let in_order = self.rules.order == PublishOrder::Relaxed || first.is_sorted();
            prop_assert!(in_order, "the first copies are in order: {:?}", numbers);
        }
        for (number, is_stored) in &self.settled {
            prop_assert!(!is_stored || stored.contains(number), "{} is said to be stored", number);
        }
        Ok(())
    }
}

/// The payloads of the records in an entry.
fn payloads(entry: &PutEntry) -> Vec<Bytes> {
    #[cfg(feature = "kpl")]
    if let Some(payloads) = crate::wire::aggregate::decode(&entry.data) {
        return payloads;
    }
    vec![entry.data.clone()]
}

fn number(payload: &Bytes) -> usize {
    let text = String::from_utf8_lossy(payload);
    text.split(':').next().unwrap().parse().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    // P3
    #[test]
    fn every_record_settles_once_and_stored_records_are_in_the_stream_in_key_order(
        (is_relaxed, aggregates) in (any::<bool>(), any::<bool>()),
        request_records in 1..8_usize,
        request_bytes in prop_oneof![20..200_usize, 200..2_000_usize],
        requests in 1..4_usize,
        attempts in prop_oneof![Just(u32::MAX), 1..4_u32],
        steps in vec(step(), 0..120),
    ) {
        let order = if is_relaxed { PublishOrder::Relaxed } else { PublishOrder::ByKey };
        let timeout = millis(1_500);
        let aggregate = (aggregates && !is_relaxed && cfg!(feature = "kpl")).then_some(1_024);
        let rules = PublishRules { order, request_records, request_bytes, requests, timeout, attempts, aggregate, ..rules() };
        let mut model = Model::new(rules);
        for step in steps {
            model.act(step)?;
        }
        model.heal()?;
        model.check()?;
    }
}
