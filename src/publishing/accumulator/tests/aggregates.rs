//! KPL aggregates that the accumulator builds.

use super::*;
use crate::wire::aggregate::{AggregateFormat, is_aggregated};

fn machine() -> Machine {
    Machine::new(PublishRules { aggregate: Some(1_024), ..rules() })
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
fn waiting_records_of_a_key_are_aggregated_and_a_single_record_is_sent_plain() {
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
fn an_aggregate_holds_one_hash_key_and_keeps_to_its_size() {
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
fn the_records_of_a_failing_aggregate_expire_each_at_their_own_time() {
    let mut machine = Machine::new(PublishRules { aggregate: Some(1_024), timeout: millis(1_000), ..rules() });
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
