//! Publishing many records at a time (P3).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{FutureExt, Sink, SinkExt, StreamExt, future::join_all, pin_mut, poll, stream};
use proptest::{collection::vec, prelude::*};
use tokio::{
    runtime::Builder,
    task::yield_now,
    time::{Duration, sleep, timeout},
};

use super::put_service::{Outcome, PutService, ROUND_TRIP};
use crate::{
    connection::Connection,
    delivery::{Acker, Delivery},
    error::{KinesisError, service::FailureKind},
    kinesis::{Entry, Service},
    publishing::{
        Publisher,
        error::PublishError,
        options::PublishTo,
        record::{Outgoing, PublishOrder, Published},
        sink::PublishSink,
    },
    simulation::harness::{CapturedLogs, Harness, horizon, millis, names, next, seconds, take, within},
};

/// Longer than any wait of a test.
const LONG: Duration = Duration::from_hours(1);

fn to() -> PublishTo {
    PublishTo::new("s")
}

/// Records with these one-letter keys, and their numbers as payloads.
fn records(keys: &str) -> Vec<Outgoing> {
    keys.chars().enumerate().map(|(number, key)| Outgoing::new(key, number.to_string())).collect()
}

fn sink(put_service: &Arc<PutService>, to: PublishTo) -> PublishSink {
    put_service.publisher().1.sink(to).unwrap()
}

/// The results of records: the sequence number, or the cause of the failure.
fn result_texts(results: &[Result<Published, PublishError>]) -> Vec<String> {
    let tell = |result: &Result<Published, PublishError>| match result {
        Ok(published) => published.sequence_number().to_string(),
        Err(error) => cause(error).to_owned(),
    };
    results.iter().map(tell).collect()
}

fn cause(error: &PublishError) -> &'static str {
    match error.cause() {
        KinesisError::Invalid { .. } => "invalid",
        KinesisError::Refused { .. } => "refused",
        KinesisError::Denied { .. } => "denied",
        KinesisError::Stream { .. } => "stream",
        KinesisError::Service { .. } => "service",
        KinesisError::GaveUp { .. } => "gave up",
        KinesisError::NotConnected => "not connected",
        KinesisError::Interrupted { .. } => "interrupted",
        other => panic!("{other}"),
    }
}

async fn send(sink: &mut PublishSink, records: Vec<Outgoing>) {
    for record in records {
        SinkExt::<Outgoing>::feed(sink, record).await.unwrap();
    }
}

// L1, P3
#[tokio::test(start_paused = true)]
async fn only_the_failed_one_of_three_records_is_resent_and_each_gets_its_result() {
    let put_service = PutService::new(|k, _| match k {
        0 => Outcome::Fails(vec![(1, FailureKind::Throttled)]),
        _ => Outcome::Stored,
    });
    let results = put_service.publisher().1.publish_all("s", records("abc")).await;
    assert_eq!(result_texts(&results), ["1", "3", "2"]);
    assert!(results.iter().flatten().all(|published| published.shard().as_str() == "shard"));
    assert_eq!(put_service.requests(), ["0 1 2", "1"]);
    let (first, again) = (put_service.asked()[0].at + ROUND_TRIP, put_service.asked()[1].at);
    assert!((first + millis(100)..=first + millis(200)).contains(&again), "{again:?}");
}

// P3
#[tokio::test(start_paused = true)]
async fn results_arrive_in_record_order_and_an_invalid_record_stops_no_other() {
    let put_service = PutService::kind();
    let mut given = records("aab");
    given.insert(1, Outgoing::new("", "no key"));
    given.push(Outgoing::new("k", vec![0; 10 << 20]));
    let results = put_service.publisher().1.publish_all(to().request_records(1).max_requests(1), given).await;
    assert_eq!(result_texts(&results), ["1", "invalid", "2", "3", "invalid"]);
    let (record, _) = results[1].clone().unwrap_err().into_parts();
    assert_eq!(record, Outgoing::new("", "no key"));
    let none = put_service.publisher().1.publish_all("no spaces", records("ab")).await;
    assert_eq!(result_texts(&none), ["invalid", "invalid"]);
    assert!(put_service.publisher().1.publish_all("s", []).await.is_empty());
}

// P3
#[tokio::test(start_paused = true)]
async fn a_partial_request_lingers_and_a_full_one_does_not() {
    let put_service = PutService::kind();
    let mut sink = sink(&put_service, to().request_records(3).linger(millis(50)));
    send(&mut sink, records("abcd")).await;
    sleep(millis(1)).await;
    assert_eq!(put_service.requests(), ["0 1 2"]);
    sleep(millis(48)).await;
    assert_eq!(put_service.requests(), ["0 1 2"]);
    sleep(millis(2)).await;
    // The test has not polled the sink.
    assert_eq!(put_service.requests(), ["0 1 2", "3"]);
}

// P3
#[tokio::test(start_paused = true)]
async fn flush_sends_at_once_and_waits_for_every_response() {
    let put_service = PutService::kind();
    let mut sink = sink(&put_service, to().linger(seconds(60)));
    send(&mut sink, records("aba")).await;
    sink.flush().await.unwrap();
    assert_eq!((put_service.requests(), put_service.millis()), (vec!["0 1".to_owned(), "2".to_owned()], 40));
    assert_eq!(sink.stats().in_flight, 0);
    sink.flush().await.unwrap();
    // The flush does not wait for records that others send meanwhile.
    let mut other = sink.clone();
    send(&mut sink, records("a")).await;
    {
        let flush = sink.flush();
        pin_mut!(flush);
        assert!(poll!(&mut flush).is_pending());
        sleep(millis(1)).await;
        send(&mut other, records("b")).await;
        flush.await.unwrap();
    }
    assert_eq!(other.stats().in_flight, 1);
    sink.close().await.unwrap();
    assert_eq!(put_service.texts().len(), 5);
}

// P3
#[tokio::test(start_paused = true)]
async fn a_key_has_one_record_in_flight_and_keeps_its_order_through_failures() {
    let put_service = PutService::new(|k, entries| match k {
        0..6 => Outcome::Fails(vec![(entries.len() - 1, FailureKind::Throttled)]),
        6 => Outcome::Refused(FailureKind::Other),
        7 => Outcome::Lost(FailureKind::Unreachable),
        _ => Outcome::Stored,
    });
    let results = put_service.publisher().1.publish_all("s", records("ababababab")).await;
    assert!(results.iter().all(Result::is_ok));
    for asked in put_service.asked() {
        let keys: BTreeSet<_> = asked.entries.iter().map(|entry| &entry.partition_key).collect();
        assert_eq!(keys.len(), asked.entries.len());
    }
    assert_in_order(&put_service.stored());
}

/// Whether the first copies of each key's records are in order.
fn assert_in_order(stored: &[Entry]) {
    let mut by_key: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for entry in stored {
        let number = String::from_utf8_lossy(&entry.data).parse().unwrap();
        let numbers = by_key.entry(&entry.partition_key).or_default();
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    assert!(by_key.values().all(|numbers| numbers.is_sorted()), "{by_key:?}");
}

// P3
#[tokio::test(start_paused = true)]
async fn a_key_sends_one_record_per_round_trip_unless_the_order_is_relaxed() {
    let (ordered, relaxed) = (PutService::kind(), PutService::kind());
    let fifty = records(&"a".repeat(50));
    ordered.publisher().1.publish_all("s", fifty.clone()).await;
    assert_eq!((ordered.requests().len(), ordered.millis()), (50, 1_000));
    let begun = relaxed.millis();
    relaxed.publisher().1.publish_all(to().order(PublishOrder::Relaxed), fifty).await;
    assert_eq!((relaxed.requests().len(), relaxed.millis() - begun), (1, 20));
}

// P3
#[tokio::test(start_paused = true)]
async fn after_seconds_of_throttling_every_record_is_stored_with_few_calls() {
    let start = tokio::time::Instant::now();
    let throttled = PutService::new(move |_, entries| {
        if start.elapsed() < seconds(5) {
            Outcome::Fails((0..entries.len()).map(|place| (place, FailureKind::Throttled)).collect())
        } else {
            Outcome::Stored
        }
    });
    let results = throttled.publisher().1.publish_all("s", records("abcdefgh")).await;
    assert!(results.iter().all(Result::is_ok));
    assert!(throttled.requests().len() <= 8, "{:?}", throttled.requests());
    assert!(throttled.requests().iter().all(|request| request == "0 1 2 3 4 5 6 7"));
}

// P3
#[tokio::test(start_paused = true)]
async fn a_lost_response_can_store_a_record_twice_but_never_loses_it() {
    let put_service =
        PutService::new(|k, _| if k == 0 { Outcome::Lost(FailureKind::Unreachable) } else { Outcome::Stored });
    let results = put_service.publisher().1.publish_all("s", records("ab")).await;
    assert_eq!(result_texts(&results), ["3", "4"]);
    assert_eq!(put_service.texts(), ["0", "1", "0", "1"]);
}

// P3
#[tokio::test(start_paused = true)]
async fn a_refused_record_fails_alone_and_at_once() {
    let put_service = PutService::new(|_, entries| {
        let too_large = entries.iter().any(|entry| entry.data.len() > 1_000);
        if too_large { Outcome::Refused(FailureKind::Rejected) } else { Outcome::Stored }
    });
    let mut given: Vec<_> = (0..500).map(|number| Outgoing::new(format!("key {number}"), "x")).collect();
    given[123] = Outgoing::new("large", vec![b'.'; 1_001]);
    let results = put_service.publisher().1.publish_all("s", given).await;
    let refused: Vec<_> = results.iter().enumerate().filter(|(_, result)| result.is_err()).collect();
    assert_eq!((refused.len(), refused[0].0), (1, 123));
    let error = refused[0].1.clone().unwrap_err();
    assert_eq!((cause(&error), error.attempts(), error.record().payload().len()), ("refused", 1, 1_001));
    assert_eq!(put_service.stored().len(), 499);
    // The sink halves the 500 records nine times, with two requests each time.
    assert!(put_service.requests().len() <= 1 + 2 * 9, "{}", put_service.requests().len());
    assert!(put_service.millis() <= 10 * 20);
}

// P3
#[tokio::test(start_paused = true)]
async fn permanent_errors_are_not_retried() {
    let table =
        [(FailureKind::Denied, "denied"), (FailureKind::NotFound, "stream"), (FailureKind::KeyUnusable, "service")];
    for (kind, expected) in table {
        let put_service = PutService::new(move |_, _| Outcome::Refused(kind));
        let results = put_service.publisher().1.publish_all("s", records("ab")).await;
        assert_eq!((result_texts(&results), put_service.requests().len()), (vec![expected.to_owned(); 2], 1));
    }
}

// P3
#[tokio::test(start_paused = true)]
async fn a_record_fails_once_its_time_or_its_attempts_are_used_up() {
    let out_of_reach = || PutService::new(|_, _| Outcome::Refused(FailureKind::Unreachable));
    let put_service = out_of_reach();
    let results = put_service.publisher().1.publish_all(to().delivery_timeout(seconds(10)), records("aa")).await;
    assert_eq!(result_texts(&results), ["gave up"; 2]);
    // The pauses are random: at that time a request may be under way, and the close waits for it.
    let waited = put_service.millis();
    assert!((10_000..=10_020).contains(&waited), "{waited}");
    let error = results[0].clone().unwrap_err();
    assert_eq!(error.record(), &Outgoing::new("a", "0"));
    assert!(error.to_string().contains("s; the last one: kinesis:PutRecords failed: Unreachable"), "{error}");
    assert!(results[1].clone().unwrap_err().to_string().contains("in 0 attempts and 10"), "{results:?}");

    let put_service = out_of_reach();
    let results = put_service.publisher().1.publish_all(to().max_attempts(3), records("a")).await;
    assert_eq!((result_texts(&results), put_service.requests().len()), (vec!["gave up".to_owned()], 3));
    assert_eq!(results[0].clone().unwrap_err().attempts(), 3);
}

// P3
#[tokio::test(start_paused = true)]
async fn senders_wait_at_the_bound_and_no_record_is_dropped() {
    let put_service =
        PutService::new(|k, _| if k == 0 { Outcome::Refused(FailureKind::Other) } else { Outcome::Stored });
    let sink = sink(&put_service, to().max_in_flight_bytes(64 << 10).order(PublishOrder::Relaxed));
    let held = sink.clone();
    let many = stream::iter((0..1_000).map(|number| Ok(Outgoing::new("key", format!("{number:>900}")))));
    let sending = many.forward(sink);
    pin_mut!(sending);
    for _ in 0..200 {
        assert!(poll!(&mut sending).is_pending());
        assert!(held.stats().in_flight_bytes <= (64 << 10) + 1_200, "{:?}", held.stats());
        yield_now().await;
    }
    // The bound counts records of 900 + 3 + 256 bytes; one record exceeds it.
    assert_eq!(held.stats().in_flight, (64 << 10) / 1_159 + 1);
    timeout(LONG, sending).await.expect("the record is accepted").unwrap();
    assert_eq!(put_service.stored().len(), 1_000);
    assert_eq!((held.stats().published, held.stats().in_flight_bytes), (1_000, 0));
}

// P3
#[tokio::test(start_paused = true)]
async fn a_record_as_large_as_the_bound_is_sent_while_other_handles_are_idle() {
    let put_service = PutService::kind();
    let sink = sink(&put_service, to().max_in_flight_bytes(64 << 10));
    let mut idle = sink.clone();
    futures::future::poll_fn(|cx| Sink::<Outgoing>::poll_ready(std::pin::Pin::new(&mut idle), cx)).await.unwrap();
    let large = || sink.publish(Outgoing::new("key", vec![b'.'; 1 << 20]));
    let (one, other) = timeout(LONG, futures::future::join(large(), large())).await.expect("they go through");
    assert!(one.is_ok() && other.is_ok());
    drop(idle);
}

// P3
#[tokio::test(start_paused = true)]
async fn records_that_wait_for_room_are_accepted_first_in_first_out() {
    let put_service = PutService::kind();
    let sink = &sink(&put_service, to().max_in_flight_bytes(64 << 10).request_records(7));
    let records = (0..300).map(|number| sink.publish(Outgoing::new("key", format!("{number:>1000}"))));
    let results = stream::iter(records).buffered(200).collect::<Vec<_>>().await;
    assert!(results.iter().all(Result::is_ok));
    let numbers: Vec<usize> = put_service.texts().iter().map(|text| text.trim().parse().unwrap()).collect();
    assert_eq!(numbers, (0..300).collect::<Vec<_>>());
}

// P3
#[tokio::test(start_paused = true)]
async fn a_later_call_returns_the_failure_and_the_sink_continues() {
    let put_service =
        PutService::new(|k, _| if k == 0 { Outcome::Refused(FailureKind::Denied) } else { Outcome::Stored });
    let mut sink = sink(&put_service, to());
    send(&mut sink, records("ab")).await;
    let error = sink.flush().await.unwrap_err();
    assert_eq!((cause(&error), error.record().payload().as_ref()), ("denied", &b"0"[..]));
    let error = SinkExt::<Outgoing>::feed(&mut sink, Outgoing::new("c", "2")).await.unwrap_err();
    assert_eq!((cause(&error), error.record().payload().as_ref()), ("denied", &b"1"[..]));
    SinkExt::<Outgoing>::send(&mut sink, Outgoing::new("c", "3")).await.unwrap();
    assert_eq!(put_service.texts(), ["3"]);
    let error = SinkExt::<Outgoing>::send(&mut sink, Outgoing::new("", "4")).await.unwrap_err();
    assert_eq!(cause(&error), "invalid");
    sink.close().await.unwrap();
}

// P3
#[tokio::test(start_paused = true)]
async fn a_dropped_sink_still_sends_its_accepted_records() {
    let logged = CapturedLogs::new();
    let put_service = PutService::new(|k, _| match k {
        0 => Outcome::Refused(FailureKind::Other),
        1 => Outcome::Fails(vec![(1, FailureKind::Denied)]),
        _ => Outcome::Stored,
    });
    let mut sink = sink(&put_service, to().linger(seconds(60)));
    send(&mut sink, records("aba")).await;
    drop(sink);
    sleep(seconds(2)).await;
    assert_eq!(put_service.texts(), ["0", "2"]);
    assert_eq!(logged.with("a record was not published, and nobody asked").len(), 1);
}

// P3
#[tokio::test(start_paused = true)]
async fn a_record_is_sent_even_if_its_future_is_dropped() {
    let put_service = PutService::kind();
    let sink = sink(&put_service, to());
    assert!(sink.publish(Outgoing::new("a", "0")).now_or_never().is_none());
    sleep(seconds(1)).await;
    assert_eq!(put_service.texts(), ["0"]);
}

// P3
#[test]
fn the_end_of_the_runtime_wakes_all_waiters() {
    let runtime = || Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let first = runtime();
    let sink = first.block_on(async { sink(&PutService::new(|_, _| Outcome::Hangs), to()) });
    let mut waiting = Box::pin(sink.publish(Outgoing::new("a", "0")));
    let mut handle = sink.clone();
    first.block_on(async {
        send(&mut handle, records("b")).await;
        assert!(poll!(&mut waiting).is_pending());
        sleep(seconds(1)).await;
    });
    drop(first);
    runtime().block_on(async {
        assert_eq!(cause(&waiting.await.unwrap_err()), "interrupted");
        assert_eq!(cause(&handle.flush().await.unwrap_err()), "interrupted");
        assert_eq!(cause(&sink.publish(Outgoing::new("a", "1")).await.unwrap_err()), "interrupted");
        let mut other = sink.clone();
        assert_eq!(
            cause(&SinkExt::<Outgoing>::send(&mut other, Outgoing::new("a", "2")).await.unwrap_err()),
            "interrupted"
        );
        other.close().await.unwrap();
    });
}

// L2, L7, P3
#[tokio::test(start_paused = true)]
async fn a_sink_works_while_its_connection_is_open_and_sends_its_accepted_records() {
    let put_service = PutService::kind();
    let connection = Arc::new(Connection::default());
    let publisher = Publisher::new(Arc::clone(&connection));
    let sink = publisher.sink(to().linger(seconds(1))).unwrap();
    let early = sink.publish(Outgoing::new("a", "early").header("id", "1")).await.unwrap_err();
    assert_eq!((cause(&early), early.attempts()), ("not connected", 0));
    assert_eq!(early.record(), &Outgoing::new("a", "early").header("id", "1"));
    assert_eq!(result_texts(&publisher.publish_all("s", records("a")).await), ["not connected"]);

    connection.open(Arc::clone(&put_service) as Arc<dyn Service>);
    let accepted = sink.publish(Outgoing::new("a", "accepted"));
    pin_mut!(accepted);
    assert!(poll!(&mut accepted).is_pending());
    connection.close().await;
    let late = sink.publish(Outgoing::new("a", "late")).await.unwrap_err();
    assert_eq!(cause(&late), "not connected");
    assert!(accepted.await.is_ok());
    assert_eq!(put_service.texts(), ["accepted"]);
}

// S5
#[tokio::test(start_paused = true)]
async fn each_record_is_sent_with_its_headers_hash_key_and_partition_key() {
    let put_service = PutService::kind();
    let given = vec![
        Outgoing::new("k", "plain"),
        Outgoing::new("l", "p").header("a", "b").explicit_hash_key(u128::MAX),
        Outgoing::new("m", &b"RSK2\0\0\0\0inner"[..]),
    ];
    let results = put_service.publisher().1.publish_all("s", given).await;
    assert!(results.iter().all(Result::is_ok));
    let stored = put_service.stored();
    assert_eq!(
        (stored[0].partition_key.as_str(), stored[0].explicit_hash_key, &stored[0].data[..]),
        ("k", None, &b"plain"[..])
    );
    let enveloped = &b"RSK2\0\0\0\x0a\0\0\0\x01a\0\0\0\x01bp"[..];
    assert_eq!((stored[1].explicit_hash_key, &stored[1].data[..]), (Some(u128::MAX), enveloped));
    assert_eq!(&stored[2].data[..], b"RSK2\0\0\0\0RSK2\0\0\0\0inner");
}

// P3
#[tokio::test(start_paused = true)]
async fn a_snapshot_shows_the_state_of_a_sink() {
    let put_service = PutService::new(|k, _| match k {
        0 => Outcome::Fails(vec![(0, FailureKind::Throttled), (1, FailureKind::Denied)]),
        1 => Outcome::Hangs,
        _ => Outcome::Stored,
    });
    let mut sink = sink(&put_service, to());
    send(&mut sink, records("abca")).await;
    sleep(seconds(3)).await;
    let stats = sink.stats();
    assert_eq!((&*stats.stream, stats.published, stats.bytes, stats.failed), ("s", 1, 2, 1));
    assert_eq!((stats.requests, stats.retries, stats.throttles), (2, 1, 1));
    assert_eq!((stats.in_flight, stats.in_flight_bytes, stats.oldest), (2, 2 * (2 + 256), Some(seconds(3))));
}

async fn subscribed(records: usize) -> (Harness, crate::subscription::Subscription) {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", records);
    let subscription = harness.instance("me").subscribe(horizon()).await;
    (harness, subscription)
}

fn onwards(delivery: Delivery) -> (Outgoing, Acker) {
    let (record, acker) = delivery.into_parts();
    (Outgoing::new(record.payload.clone().slice(1..).escape_ascii().to_string(), record.payload), acker)
}

// P3, A1, A3
#[tokio::test(start_paused = true)]
async fn a_delivery_is_acknowledged_only_once_its_record_is_stored() {
    let (harness, mut subscription) = subscribed(3).await;
    let deliveries = take(&mut subscription, 3).await;
    let put_service =
        PutService::new(
            |k, _| if k == 0 { Outcome::Fails(vec![(0, FailureKind::Throttled)]) } else { Outcome::Stored },
        );
    let mut sink = sink(&put_service, to());
    for delivery in deliveries {
        sink.feed(onwards(delivery)).await.unwrap();
    }
    sleep(millis(40)).await;
    assert_eq!(put_service.texts(), ["a1", "a2"]);
    let in_flight = |subscription: &crate::subscription::Subscription| subscription.stats().shards[0].in_flight;
    assert_eq!(in_flight(&subscription), 1);
    SinkExt::<(Outgoing, Acker)>::close(&mut sink).await.unwrap();
    assert_eq!(in_flight(&subscription), 0);
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a2");
}

// P3, A2
#[tokio::test(start_paused = true)]
async fn a_delivery_whose_record_is_not_stored_is_redelivered_and_the_sink_returns_the_cause() {
    let (_ground, mut subscription) = subscribed(3).await;
    let mut deliveries = take(&mut subscription, 3).await.into_iter();
    let put_service =
        PutService::new(|k, _| if k == 0 { Outcome::Refused(FailureKind::Denied) } else { Outcome::Stored });
    let mut sink = sink(&put_service, to());
    sink.feed(onwards(deliveries.next().unwrap())).await.unwrap();
    assert_eq!(cause(&sink.flush().await.unwrap_err()), "denied");
    // The first record is invalid, the record behind it is stored.
    let (_, acker) = onwards(deliveries.next().unwrap());
    assert_eq!(cause(&sink.feed((Outgoing::new("", "x"), acker)).await.unwrap_err()), "invalid");
    sink.send(onwards(deliveries.next().unwrap())).await.unwrap();
    let again = within(&mut subscription, seconds(2)).await;
    assert_eq!(names(&again), ["a0", "a1"]);
    assert!(again.iter().all(|delivery| delivery.attempt() == 2));
}

// P3, A2
#[test]
fn the_end_of_the_runtime_acknowledges_no_delivery_in_a_sink() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let other = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 1);
        let mut subscription = harness.instance("me").subscribe(horizon().ack_on_drop()).await;
        let mut sink = {
            let _there = other.enter();
            sink(&PutService::new(|_, _| Outcome::Hangs), to())
        };
        sink.feed(onwards(next(&mut subscription).await)).await.unwrap();
        drop(sink);
        tokio::task::spawn_blocking(move || drop(other)).await.unwrap();
        assert_eq!(next(&mut subscription).await.attempt(), 2);
    });
}

// P3
#[cfg(feature = "kpl")]
#[tokio::test(start_paused = true)]
async fn aggregation_packs_the_waiting_records_of_a_key() {
    let put_service = PutService::kind();
    let hundred = records(&"a".repeat(100));
    let results = put_service.publisher().1.publish_all(to().aggregate(), hundred).await;
    assert_eq!((put_service.requests().len(), put_service.millis()), (1, 20));
    let places: Vec<_> = results.iter().map(|result| result.as_ref().unwrap().sub_sequence_number()).collect();
    assert_eq!(places, (0..100).map(Some).collect::<Vec<_>>());
    assert!(results.iter().flatten().all(|published| published.sequence_number().as_str() == "1"));
}

#[derive(Clone, Debug)]
enum PlannedOutcome {
    Stored,
    Fails(Vec<bool>, FailureKind),
    Refused(FailureKind),
    Lost,
}

fn planned_outcome() -> impl Strategy<Value = PlannedOutcome> {
    let passing =
        || prop_oneof![Just(FailureKind::Throttled), Just(FailureKind::Other), Just(FailureKind::Unreachable)];
    prop_oneof![
        3 => Just(PlannedOutcome::Stored),
        4 => (vec(any::<bool>(), 1..6), passing()).prop_map(|(mask, kind)| PlannedOutcome::Fails(mask, kind)),
        2 => passing().prop_map(PlannedOutcome::Refused),
        1 => Just(PlannedOutcome::Refused(FailureKind::Rejected)),
        2 => Just(PlannedOutcome::Lost),
    ]
}

fn outcome(planned_outcome: Option<&PlannedOutcome>, entries: &[Entry]) -> Outcome {
    match planned_outcome {
        None | Some(PlannedOutcome::Stored) => Outcome::Stored,
        // A record that is refused alone fails for good. Another test covers that.
        Some(PlannedOutcome::Refused(FailureKind::Rejected)) if entries.len() == 1 => Outcome::Stored,
        Some(PlannedOutcome::Refused(kind)) => Outcome::Refused(*kind),
        Some(PlannedOutcome::Lost) => Outcome::Lost(FailureKind::Unreachable),
        Some(PlannedOutcome::Fails(mask, kind)) => {
            let fails = mask.iter().cycle().take(entries.len()).enumerate();
            Outcome::Fails(fails.filter(|(_, fails)| **fails).map(|(place, _)| (place, *kind)).collect())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    // P3
    #[test]
    fn under_random_failures_every_record_gets_one_result_and_keys_keep_their_order(
        keys in "[a-e]{0,60}",
        request_records in 1..6_usize,
        max_requests in 1..4_usize,
        lucks in vec(planned_outcome(), 0..40),
    ) {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let put_service = PutService::new(move |k, entries| outcome(lucks.get(k), entries));
            let to = to().request_records(request_records).max_requests(max_requests).max_in_flight_bytes(64 << 10);
            let sink = sink(&put_service, to);
            let results = timeout(LONG, join_all(records(&keys).into_iter().map(|record| sink.publish(record))));
            let results = results.await.expect("every record has a result");
            prop_assert!(results.iter().all(Result::is_ok), "{:?}", result_texts(&results));
            let stored: BTreeSet<_> = put_service.texts().into_iter().collect();
            prop_assert_eq!(stored.len(), keys.len());
            assert_in_order(&put_service.stored());
            prop_assert_eq!(sink.stats().in_flight, 0);
            Ok(())
        })?;
    }
}
