//! The machine by hand, and by chance.

use std::collections::{BTreeMap, BTreeSet};

use proptest::{collection::vec, prelude::*, sample::Index};

use super::*;
use crate::{
    error::service::{Action, FailureKind, ServiceFailure},
    kinesis::{Put, PutEntry},
};

fn rules() -> Rules {
    Rules {
        order: PublishOrder::ByKey,
        linger: millis(10),
        request_records: 500,
        request_bytes: 10 << 20,
        requests: 8,
        timeout: Duration::from_mins(2),
        attempts: u32::MAX,
        aggregate: None,
    }
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn failure(kind: FailureKind) -> ServiceFailure {
    ServiceFailure::new(Action::PutRecords, kind, format!("{kind:?}"))
}

/// Accumulator whose records are numbered, and a clock.
struct Machine {
    accumulator: Accumulator<usize>,
    now: Instant,
    next: usize,
}

impl Machine {
    fn new(rules: Rules) -> Self {
        Self { accumulator: Accumulator::new("s".into(), rules), now: Instant::now(), next: 0 }
    }

    /// Accepts records of these keys, each a letter; their numbers are their payloads.
    fn accept(&mut self, keys: &str) {
        for key in keys.chars() {
            self.accept_one(Outgoing::new(key, self.next.to_string()));
        }
    }

    fn accept_one(&mut self, record: Outgoing) -> bool {
        let (number, data) = (self.next, record.payload.clone());
        self.next += 1;
        self.accumulator.accept(record, data, number, self.now)
    }

    fn after(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self.accumulator.pass(self.now);
        self
    }

    /// The requests that are due: their numbers, and the payloads in each.
    fn requests(&mut self) -> Vec<(u64, String)> {
        let mut requests = Vec::new();
        while let Some(request) = self.accumulator.take(self.now) {
            let entries: Vec<_> = request.entries.iter().map(|entry| String::from_utf8_lossy(&entry.data)).collect();
            requests.push((request.flight, entries.join(" ")));
        }
        requests
    }

    fn request(&mut self) -> (u64, String) {
        let [request] = <[_; 1]>::try_from(self.requests()).expect("one request is due");
        request
    }

    /// Answers with a result for each record: `.` stored, `t` throttled, `r` refused.
    fn answer(&mut self, flight: u64, results: &str) {
        let results = results.chars().map(|result| match result {
            '.' => Ok(Put { shard: "shard".into(), sequence_number: "1".into() }),
            't' => Err(failure(FailureKind::Throttled)),
            _ => Err(failure(FailureKind::Rejected)),
        });
        self.accumulator.answer(flight, Ok(results.collect()), self.now);
    }

    fn fail(&mut self, flight: u64, kind: FailureKind) {
        self.accumulator.answer(flight, Err(failure(kind)), self.now);
    }

    /// What has settled: the number of each, and what it came to.
    fn settled(&mut self) -> Vec<String> {
        let told = self.accumulator.settled().into_iter().map(|settled| match settled.outcome {
            Ok(_) => format!("{} stored", settled.completion),
            Err(KinesisError::Refused { .. }) => format!("{} refused", settled.completion),
            Err(KinesisError::GaveUp { attempts, .. }) => format!("{} given up after {attempts}", settled.completion),
            Err(error) => format!("{} {error}", settled.completion),
        });
        told.collect()
    }
}

// P3
#[test]
fn a_request_goes_out_when_its_oldest_record_has_lingered_and_holds_one_record_of_a_key() {
    let mut machine = Machine::new(rules());
    machine.accept("aba");
    assert!(machine.requests().is_empty());
    assert_eq!(machine.accumulator.wake(machine.now), Some(machine.now + millis(10)));
    assert_eq!(machine.after(millis(10)).request(), (0, "0 1".to_owned()));
    machine.answer(0, "..");
    assert_eq!(machine.settled(), ["0 stored", "1 stored"]);
    // It has waited long enough already.
    assert_eq!(machine.request(), (1, "2".to_owned()));
    machine.answer(1, ".");
    assert!(machine.accumulator.is_empty());
    assert_eq!(machine.accumulator.wake(machine.now), None);
}

// P3
#[test]
fn a_full_request_goes_out_at_once_and_is_never_larger_than_the_limits() {
    let mut machine = Machine::new(Rules { request_records: 3, ..rules() });
    machine.accept("abcdefg");
    let requests = machine.requests();
    assert_eq!(requests, [(0, "0 1 2".to_owned()), (1, "3 4 5".to_owned())]);

    let mut machine = Machine::new(Rules { request_bytes: 10, ..rules() });
    for (key, payload) in [("a", "12345678"), ("b", ""), ("c", "123456789"), ("d", "12345678901234"), ("e", "")] {
        machine.accept_one(Outgoing::new(key, payload));
    }
    let requests: Vec<_> = machine.requests().into_iter().map(|(_, entries)| entries).collect();
    assert_eq!(requests, ["12345678 ", "123456789", "12345678901234"]);
}

// P3
#[test]
fn whoever_sends_is_told_of_the_first_record_and_of_a_full_request_alone() {
    let mut machine = Machine::new(Rules { request_records: 3, ..rules() });
    let told: Vec<_> = "abacde".chars().map(|key| machine.accept_one(Outgoing::new(key, "x"))).collect();
    assert_eq!(told, [true, false, false, true, false, false]);
}

// L1, P3
#[test]
fn only_the_failed_entries_rest_and_go_out_again_together() {
    let mut machine = Machine::new(rules());
    machine.accept("abcdb");
    let (flight, _) = machine.after(millis(10)).request();
    machine.answer(flight, "t.t.");
    assert_eq!(machine.settled(), ["1 stored", "3 stored"]);
    assert_eq!(machine.request().1, "4");
    assert!(machine.after(millis(99)).requests().is_empty());
    assert_eq!(machine.after(millis(102)).request().1, "0 2");
    assert_eq!((machine.accumulator.counts().retries, machine.accumulator.counts().throttles), (2, 2));
}

// P3
#[test]
fn a_later_record_of_a_key_waits_until_the_earlier_one_is_stored_or_given_up() {
    let mut machine = Machine::new(Rules { attempts: 2, ..rules() });
    machine.accept("aa");
    let (flight, _) = machine.after(millis(10)).request();
    machine.answer(flight, "t");
    assert!(machine.requests().is_empty());
    let (flight, entries) = machine.after(millis(201)).request();
    assert_eq!(entries, "0");
    machine.answer(flight, "t");
    assert_eq!(machine.settled(), ["0 given up after 2"]);
    assert_eq!(machine.request().1, "1");
}

// P3
#[test]
fn relaxed_order_sends_any_number_of_a_key_at_a_time() {
    let mut machine = Machine::new(Rules { order: PublishOrder::Relaxed, request_records: 2, ..rules() });
    machine.accept("aaaa");
    let requests: Vec<_> = machine.requests().into_iter().map(|(_, entries)| entries).collect();
    assert_eq!(requests, ["0 1", "2 3"]);
}

// P3
#[test]
fn a_request_that_is_refused_for_one_record_is_halved_until_that_one_is_alone() {
    let mut machine = Machine::new(rules());
    machine.accept("abcde");
    machine.after(millis(10));
    let (mut sent, mut open) = (Vec::new(), machine.requests());
    while let Some((flight, entries)) = open.pop() {
        if entries.contains('3') {
            machine.fail(flight, FailureKind::Rejected);
        } else {
            machine.answer(flight, &".".repeat(entries.split(' ').count()));
        }
        sent.push(entries);
        open.extend(machine.requests());
    }
    assert_eq!(sent, ["0 1 2 3 4", "2 3 4", "3 4", "4", "3", "2", "0 1"]);
    let mut settled = machine.settled();
    settled.sort();
    assert_eq!(settled, ["0 stored", "1 stored", "2 stored", "3 refused", "4 stored"]);
    assert_eq!(machine.accumulator.counts().retries, 0, "nothing of this counts as an attempt");
}

// P3
#[test]
fn an_entry_that_is_refused_for_good_fails_at_once_and_alone() {
    let mut machine = Machine::new(rules());
    machine.accept("aab");
    let (flight, _) = machine.after(millis(10)).request();
    machine.answer(flight, "r.");
    assert_eq!(machine.settled(), ["0 refused", "2 stored"]);
    assert_eq!(machine.request().1, "1");
}

// P3
#[test]
fn what_concerns_every_record_of_a_request_fails_each_of_them_once() {
    for kind in [FailureKind::Denied, FailureKind::NotFound, FailureKind::KeyUnusable] {
        let mut machine = Machine::new(rules());
        machine.accept("ab");
        let (flight, _) = machine.after(millis(10)).request();
        machine.fail(flight, kind);
        assert_eq!(machine.settled().len(), 2, "{kind:?}");
        assert!(machine.accumulator.is_empty());
    }
}

// P3
#[test]
fn nothing_goes_out_for_a_while_after_a_call_that_failed_as_a_whole() {
    let kinds = [FailureKind::Unreachable, FailureKind::Other, FailureKind::Throttled, FailureKind::NotReady];
    for kind in kinds {
        let mut machine = Machine::new(Rules { request_records: 1, ..rules() });
        machine.accept("abc");
        let requests = machine.requests();
        // All three fail together, which counts as one failure.
        for (flight, _) in requests {
            machine.fail(flight, kind);
        }
        assert!(machine.after(millis(99)).requests().is_empty(), "{kind:?}");
        let again = machine.after(millis(102)).requests();
        assert_eq!(again.iter().map(|(_, entries)| entries.as_str()).collect::<Vec<_>>(), ["0", "1", "2"]);
        machine.fail(again[0].0, kind);
        machine.answer(again[1].0, ".");
        // Another was answered: the service is there.
        assert_eq!(machine.request().1, "0");
    }
}

// P3
#[test]
fn what_is_too_old_is_given_up_whatever_it_waits_for() {
    let mut machine = Machine::new(Rules { timeout: millis(1_000), requests: 1, ..rules() });
    machine.accept("aab");
    let (flight, _) = machine.after(millis(10)).request();
    // `c` waits for a request to end, `a` behind its key.
    machine.accept("c");
    machine.answer(flight, "t.");
    assert_eq!(machine.settled(), ["2 stored"]);
    let (flight, _) = machine.after(millis(10)).request();
    assert_eq!(machine.accumulator.wake(machine.now).map(|wake| wake <= machine.now + millis(191)), Some(true));
    machine.after(millis(980));
    assert_eq!(machine.settled(), ["0 given up after 1", "1 given up after 0"]);
    machine.after(millis(500));
    assert_eq!(machine.settled(), Vec::<String>::new(), "a request that is under way is waited for");
    machine.answer(flight, ".");
    assert_eq!(machine.settled(), ["3 stored"]);
}

// P3
#[test]
fn a_flush_sends_what_was_accepted_before_it_and_lets_the_rest_linger() {
    let mut machine = Machine::new(rules());
    machine.accept("aa");
    assert_eq!(machine.accumulator.hurry(), 2);
    let (flight, _) = machine.request();
    machine.accept("b");
    assert!(machine.requests().is_empty());
    assert_eq!(machine.accumulator.open_from(), 0);
    machine.answer(flight, ".");
    assert_eq!(machine.accumulator.open_from(), 1);
    // What lingers goes along.
    assert_eq!(machine.request(), (1, "1 2".to_owned()));
    machine.answer(1, "..");
    assert_eq!(machine.accumulator.open_from(), 3);
}

// P3
#[test]
fn who_gives_up_settles_everything_once_wherever_it_is() {
    let mut machine = Machine::new(rules());
    machine.accept("abc");
    let (flight, _) = machine.after(millis(10)).request();
    machine.answer(flight, "tt.");
    machine.accept("deee");
    let (flight, _) = machine.after(millis(10)).request();
    machine.fail(flight, FailureKind::Rejected);
    machine.accept("ff");
    machine.settled();
    machine.accumulator.abandon(&KinesisError::NotConnected);
    let mut settled = machine.settled();
    settled.sort();
    let numbers: Vec<_> = settled.iter().map(|told| told.split(' ').next().unwrap()).collect();
    assert_eq!(numbers, ["0", "1", "3", "4", "5", "6", "7", "8"]);
    assert!(machine.accumulator.is_empty());
    assert_eq!(machine.accumulator.open_from(), 9);
}

#[cfg(feature = "kpl")]
mod aggregates {
    use super::*;
    use crate::wire::aggregate::{AggregateFormat, is_aggregated};

    fn machine() -> Machine {
        Machine::new(Rules { aggregate: Some(1_024), ..rules() })
    }

    fn entries(machine: &mut Machine) -> (u64, Vec<PutEntry>) {
        let request = machine.accumulator.take(machine.now).expect("a request is due");
        (request.flight, request.entries)
    }

    fn inside(key: &str, hash: Option<u128>, payloads: &[&'static str]) -> Bytes {
        AggregateFormat::new(key, hash).encode(payloads.iter().map(|payload| Bytes::from_static(payload.as_bytes())))
    }

    // P3
    #[test]
    fn what_waits_of_a_key_goes_out_as_one_entry_and_what_waits_alone_as_it_is() {
        let mut machine = machine();
        machine.accept("abaa");
        let (flight, sent) = entries(machine.after(millis(10)));
        assert_eq!(sent[0].data, inside("a", None, &["0", "2", "3"]));
        assert_eq!(sent[1].data, "1");
        assert!(is_aggregated(&sent[0].data) && sent[0].partition_key == "a");
        machine.answer(flight, "..");
        let settled = machine.accumulator.settled().into_iter();
        let places: Vec<_> =
            settled.map(|settled| (settled.completion, settled.outcome.unwrap().sub_sequence_number())).collect();
        assert_eq!(places, [(0, Some(0)), (2, Some(1)), (3, Some(2)), (1, None)]);
        assert_eq!(machine.accumulator.counts().bytes, 8);
    }

    // P3
    #[test]
    fn an_aggregate_is_of_one_hash_and_within_its_size() {
        let mut machine = machine();
        let (small, half) = (|| Outgoing::new("k", "x"), || Outgoing::new("k", vec![b'.'; 480]));
        let elsewhere = || small().explicit_hash_key(7);
        for record in [small(), small(), elsewhere(), elsewhere(), half(), half(), half()] {
            machine.accept_one(record);
        }
        machine.after(millis(10));
        let mut counts = Vec::new();
        for _ in 0..4 {
            let (flight, sent) = entries(&mut machine);
            assert!(sent[0].data.len() < 1_024);
            machine.answer(flight, ".");
            counts.push((machine.settled().len(), sent[0].explicit_hash_key));
        }
        assert_eq!(counts, [(2, None), (2, Some(7)), (2, None), (1, None)]);
    }

    // P3
    #[test]
    fn the_records_of_an_aggregate_that_fails_are_given_up_each_at_its_own_time() {
        let mut machine = Machine::new(Rules { aggregate: Some(1_024), timeout: millis(1_000), ..rules() });
        machine.accept("a");
        machine.after(millis(5)).accept("a");
        let (flight, _) = entries(machine.after(millis(5)));
        machine.answer(flight, "t");
        machine.after(millis(990));
        assert_eq!(machine.settled(), ["0 given up after 1"]);
        let (flight, sent) = entries(&mut machine);
        assert_eq!(sent[0].data, "1");
        machine.answer(flight, ".");
        assert_eq!(machine.settled(), ["1 stored"]);
        assert!(machine.accumulator.is_empty());
    }
}

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
enum Step {
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

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..6_u8, 0..40_usize, prop::bool::weighted(0.05))
            .prop_map(|(key, size, is_poison)| Step::Accept { key, size, is_poison }),
        3 => (any::<Index>(), fault()).prop_map(|(of, fault)| Step::Answer(of, fault)),
        1 => (0..400_u64).prop_map(Step::Wait),
    ]
}

/// The stream, the requests under way, and what was settled.
struct Model {
    machine: Machine,
    rules: Rules,
    flights: Vec<(u64, Vec<PutEntry>)>,
    /// By key: the numbers of the records in the order in which the stream has them.
    stream: BTreeMap<String, Vec<usize>>,
    /// What became of each record: whether it was stored.
    settled: BTreeMap<usize, bool>,
}

impl Model {
    fn new(rules: Rules) -> Self {
        let machine = Machine::new(rules.clone());
        Self { machine, rules, flights: Vec::new(), stream: BTreeMap::new(), settled: BTreeMap::new() }
    }

    fn act(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Accept { key, size, is_poison } => {
                let mark = if is_poison { "!" } else { "" };
                let payload = format!("{mark}{}:{}", self.machine.next, ".".repeat(size));
                self.machine.accept_one(Outgoing::new(format!("key {key}"), payload));
            }
            Step::Answer(of, fault) => {
                if !self.flights.is_empty() {
                    let (flight, entries) = self.flights.remove(of.index(self.flights.len()));
                    let answer = self.play(&entries, &fault);
                    self.machine.accumulator.answer(flight, answer, self.machine.now);
                }
            }
            Step::Wait(time) => drop(self.machine.after(millis(time))),
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
    fn every_record_settles_once_and_is_in_the_stream_in_the_order_of_its_key_if_it_was_said_to_be_stored(
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
        let rules = Rules { order, request_records, request_bytes, requests, timeout, attempts, aggregate, ..rules() };
        let mut model = Model::new(rules);
        for step in steps {
            model.act(step)?;
        }
        model.heal()?;
        model.check()?;
    }
}
