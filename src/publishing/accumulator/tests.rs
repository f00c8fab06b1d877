//! Step by step: what the accumulator sends and settles.

use super::*;
use crate::{
    error::service::{Action, FailureKind, ServiceFailure},
    kinesis::{Put, PutEntry},
};

#[cfg(feature = "kpl")]
mod aggregates;
mod random;

fn rules() -> PublishRules {
    PublishRules {
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

/// An accumulator with numbered records, and a clock.
struct Machine {
    accumulator: Accumulator<usize>,
    now: Instant,
    next: usize,
}

impl Machine {
    fn new(rules: PublishRules) -> Self {
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

    /// The settled records: number and result.
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
    let mut machine = Machine::new(PublishRules { request_records: 3, ..rules() });
    machine.accept("abcdefg");
    let requests = machine.requests();
    assert_eq!(requests, [(0, "0 1 2".to_owned()), (1, "3 4 5".to_owned())]);

    let mut machine = Machine::new(PublishRules { request_bytes: 10, ..rules() });
    for (key, payload) in [("a", "12345678"), ("b", ""), ("c", "123456789"), ("d", "12345678901234"), ("e", "")] {
        machine.accept_one(Outgoing::new(key, payload));
    }
    let requests: Vec<_> = machine.requests().into_iter().map(|(_, entries)| entries).collect();
    assert_eq!(requests, ["12345678 ", "123456789", "12345678901234"]);
}

// P3
#[test]
fn the_sender_is_woken_by_the_first_record_and_by_a_full_request_only() {
    let mut machine = Machine::new(PublishRules { request_records: 3, ..rules() });
    let told: Vec<_> = "abacde".chars().map(|key| machine.accept_one(Outgoing::new(key, "x"))).collect();
    assert_eq!(told, [true, false, false, true, false, false]);
}

// L1, P3
#[test]
fn only_the_failed_entries_back_off_and_they_are_retried_together() {
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
fn a_later_record_of_a_key_waits_until_the_earlier_one_is_stored_or_has_failed() {
    let mut machine = Machine::new(PublishRules { attempts: 2, ..rules() });
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
fn relaxed_order_sends_any_number_of_records_of_a_key_together() {
    let mut machine = Machine::new(PublishRules { order: PublishOrder::Relaxed, request_records: 2, ..rules() });
    machine.accept("aaaa");
    let requests: Vec<_> = machine.requests().into_iter().map(|(_, entries)| entries).collect();
    assert_eq!(requests, ["0 1", "2 3"]);
}

// P3
#[test]
fn a_request_refused_for_one_record_is_halved_until_that_record_is_alone() {
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
fn a_permanently_refused_entry_fails_at_once_and_alone() {
    let mut machine = Machine::new(rules());
    machine.accept("aab");
    let (flight, _) = machine.after(millis(10)).request();
    machine.answer(flight, "r.");
    assert_eq!(machine.settled(), ["0 refused", "2 stored"]);
    assert_eq!(machine.request().1, "1");
}

// P3
#[test]
fn a_failure_of_the_whole_request_fails_each_record_once() {
    for kind in [FailureKind::Denied, FailureKind::Rejected] {
        let mut machine = Machine::new(PublishRules { request_records: 1, ..rules() });
        machine.accept("a");
        let (flight, _) = machine.after(millis(10)).request();
        machine.fail(flight, kind);
        assert_eq!(machine.settled().len(), 1, "{kind:?}");
        assert!(machine.accumulator.is_empty());
    }
}

// P3
#[test]
fn all_requests_pause_after_a_call_that_failed_as_a_whole() {
    let kinds = [
        FailureKind::Unreachable,
        FailureKind::Other,
        FailureKind::Throttled,
        FailureKind::NotReady,
        FailureKind::NotFound,
        FailureKind::Credentials,
        FailureKind::KeyUnusable,
    ];
    for kind in kinds {
        let mut machine = Machine::new(PublishRules { request_records: 1, ..rules() });
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

// P3, P4
#[test]
fn a_record_whose_responses_cannot_be_read_is_sent_three_times() {
    let mut machine = Machine::new(rules());
    machine.accept("a");
    for _ in 0..2 {
        let (flight, _) = machine.after(Duration::from_secs(10)).request();
        machine.fail(flight, FailureKind::Unreadable);
    }
    // Another failure between them stores nothing.
    let (flight, _) = machine.after(Duration::from_secs(10)).request();
    machine.fail(flight, FailureKind::Unavailable);
    assert_eq!(machine.settled(), [""; 0]);
    let (flight, _) = machine.after(Duration::from_secs(10)).request();
    machine.fail(flight, FailureKind::Unreadable);
    assert_eq!(machine.settled(), ["0 given up after 4"]);
    assert!(machine.after(Duration::from_secs(10)).requests().is_empty());
}

// P3
#[test]
fn a_record_past_its_delivery_timeout_fails_in_every_state() {
    let mut machine = Machine::new(PublishRules { timeout: millis(1_000), requests: 1, ..rules() });
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
fn a_flush_sends_the_records_accepted_before_it_and_later_ones_linger() {
    let mut machine = Machine::new(rules());
    machine.accept("aa");
    assert_eq!(machine.accumulator.skip_linger(), 2);
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
fn abandoning_settles_every_record_once_in_every_state() {
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
