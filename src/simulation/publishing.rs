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

use super::intake::{Intake, Outcome, ROUND_TRIP};
use crate::{
    connection::Connection,
    delivery::{Acker, Delivery},
    error::{KinesisError, service::FailureKind},
    kinesis::{PutEntry, Service},
    publishing::{
        Publisher,
        error::PublishError,
        options::PublishTo,
        record::{Outgoing, PublishOrder, Published},
        sink::PublishSink,
    },
    simulation::harness::{Ground, Logged, horizon, millis, names, next, seconds, take, within},
};

/// Longer than anything that a test waits for.
const LONG: Duration = Duration::from_hours(1);

fn to() -> PublishTo {
    PublishTo::new("s")
}

/// Records of these keys, each a letter, with their numbers as payloads.
fn records(keys: &str) -> Vec<Outgoing> {
    keys.chars().enumerate().map(|(number, key)| Outgoing::new(key, number.to_string())).collect()
}

fn sink(intake: &Arc<Intake>, to: PublishTo) -> PublishSink {
    intake.publisher().1.sink(to).unwrap()
}

/// What became of records: the sequence number, or the cause.
fn told(results: &[Result<Published, PublishError>]) -> Vec<String> {
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
async fn of_three_records_the_one_that_fails_is_sent_again_alone_and_each_has_its_result() {
    let intake = Intake::new(|k, _| match k {
        0 => Outcome::Fails(vec![(1, FailureKind::Throttled)]),
        _ => Outcome::Stored,
    });
    let results = intake.publisher().1.publish_all("s", records("abc")).await;
    assert_eq!(told(&results), ["1", "3", "2"]);
    assert!(results.iter().flatten().all(|published| published.shard().as_str() == "shard"));
    assert_eq!(intake.requests(), ["0 1 2", "1"]);
    let (first, again) = (intake.asked()[0].at + ROUND_TRIP, intake.asked()[1].at);
    assert!((first + millis(100)..=first + millis(200)).contains(&again), "{again:?}");
}

// P3
#[tokio::test(start_paused = true)]
async fn results_come_in_the_order_of_the_records_and_an_invalid_one_stops_no_other() {
    let intake = Intake::kind();
    let mut given = records("aab");
    given.insert(1, Outgoing::new("", "no key"));
    given.push(Outgoing::new("k", vec![0; 10 << 20]));
    let results = intake.publisher().1.publish_all(to().request_records(1).max_requests(1), given).await;
    assert_eq!(told(&results), ["1", "invalid", "2", "3", "invalid"]);
    let (record, _) = results[1].clone().unwrap_err().into_parts();
    assert_eq!(record, Outgoing::new("", "no key"));
    let none = intake.publisher().1.publish_all("no spaces", records("ab")).await;
    assert_eq!(told(&none), ["invalid", "invalid"]);
    assert!(intake.publisher().1.publish_all("s", []).await.is_empty());
}

// P3
#[tokio::test(start_paused = true)]
async fn a_partial_request_lingers_and_a_full_one_does_not() {
    let intake = Intake::kind();
    let mut sink = sink(&intake, to().request_records(3).linger(millis(50)));
    send(&mut sink, records("abcd")).await;
    sleep(millis(1)).await;
    assert_eq!(intake.requests(), ["0 1 2"]);
    sleep(millis(48)).await;
    assert_eq!(intake.requests(), ["0 1 2"]);
    sleep(millis(2)).await;
    // Nobody has polled the sink.
    assert_eq!(intake.requests(), ["0 1 2", "3"]);
}

// P3
#[tokio::test(start_paused = true)]
async fn flushing_sends_at_once_and_waits_for_every_answer() {
    let intake = Intake::kind();
    let mut sink = sink(&intake, to().linger(seconds(60)));
    send(&mut sink, records("aba")).await;
    sink.flush().await.unwrap();
    assert_eq!((intake.requests(), intake.millis()), (vec!["0 1".to_owned(), "2".to_owned()], 40));
    assert_eq!(sink.stats().in_flight, 0);
    sink.flush().await.unwrap();
    // What others send meanwhile is not waited for.
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
    assert_eq!(intake.texts().len(), 5);
}

// P3
#[tokio::test(start_paused = true)]
async fn a_key_has_one_record_under_way_and_keeps_its_order_through_failures() {
    let intake = Intake::new(|k, entries| match k {
        0..6 => Outcome::Fails(vec![(entries.len() - 1, FailureKind::Throttled)]),
        6 => Outcome::Refused(FailureKind::Other),
        7 => Outcome::Lost(FailureKind::Unreachable),
        _ => Outcome::Stored,
    });
    let results = intake.publisher().1.publish_all("s", records("ababababab")).await;
    assert!(results.iter().all(Result::is_ok));
    for asked in intake.asked() {
        let keys: BTreeSet<_> = asked.entries.iter().map(|entry| &entry.partition_key).collect();
        assert_eq!(keys.len(), asked.entries.len());
    }
    assert_in_order(&intake.stored());
}

/// The first copies of the records of each key are in order.
fn assert_in_order(stored: &[PutEntry]) {
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
async fn the_rate_of_a_key_is_one_record_a_round_trip_unless_the_order_is_relaxed() {
    let (ordered, relaxed) = (Intake::kind(), Intake::kind());
    let fifty = records(&"a".repeat(50));
    ordered.publisher().1.publish_all("s", fifty.clone()).await;
    assert_eq!((ordered.requests().len(), ordered.millis()), (50, 1_000));
    let begun = relaxed.millis();
    relaxed.publisher().1.publish_all(to().order(PublishOrder::Relaxed), fifty).await;
    assert_eq!((relaxed.requests().len(), relaxed.millis() - begun), (1, 20));
}

// P3
#[tokio::test(start_paused = true)]
async fn throttled_for_seconds_everything_is_stored_in_the_end_and_the_calls_are_few() {
    let start = tokio::time::Instant::now();
    let throttled = Intake::new(move |_, entries| {
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
async fn a_lost_answer_stores_a_record_twice_and_never_not_at_all() {
    let intake = Intake::new(|k, _| if k == 0 { Outcome::Lost(FailureKind::Unreachable) } else { Outcome::Stored });
    let results = intake.publisher().1.publish_all("s", records("ab")).await;
    assert_eq!(told(&results), ["3", "4"]);
    assert_eq!(intake.texts(), ["0", "1", "0", "1"]);
}

// P3
#[tokio::test(start_paused = true)]
async fn a_record_that_its_stream_does_not_take_fails_alone_and_at_once() {
    let intake = Intake::new(|_, entries| {
        let too_large = entries.iter().any(|entry| entry.data.len() > 1_000);
        if too_large { Outcome::Refused(FailureKind::Rejected) } else { Outcome::Stored }
    });
    let mut given: Vec<_> = (0..500).map(|number| Outgoing::new(format!("key {number}"), "x")).collect();
    given[123] = Outgoing::new("large", vec![b'.'; 1_001]);
    let results = intake.publisher().1.publish_all("s", given).await;
    let refused: Vec<_> = results.iter().enumerate().filter(|(_, result)| result.is_err()).collect();
    assert_eq!((refused.len(), refused[0].0), (1, 123));
    let error = refused[0].1.clone().unwrap_err();
    assert_eq!((cause(&error), error.attempts(), error.record().payload().len()), ("refused", 1, 1_001));
    assert_eq!(intake.stored().len(), 499);
    // 500 are halved nine times, two requests each.
    assert!(intake.requests().len() <= 1 + 2 * 9, "{}", intake.requests().len());
    assert!(intake.millis() <= 10 * 20);
}

// P3
#[tokio::test(start_paused = true)]
async fn what_cannot_succeed_is_not_tried_again() {
    let table =
        [(FailureKind::Denied, "denied"), (FailureKind::NotFound, "stream"), (FailureKind::KeyUnusable, "service")];
    for (kind, expected) in table {
        let intake = Intake::new(move |_, _| Outcome::Refused(kind));
        let results = intake.publisher().1.publish_all("s", records("ab")).await;
        assert_eq!((told(&results), intake.requests().len()), (vec![expected.to_owned(); 2], 1));
    }
}

// P3
#[tokio::test(start_paused = true)]
async fn a_record_comes_back_when_its_time_or_its_attempts_are_used_up() {
    let out_of_reach = || Intake::new(|_, _| Outcome::Refused(FailureKind::Unreachable));
    let intake = out_of_reach();
    let results = intake.publisher().1.publish_all(to().delivery_timeout(seconds(10)), records("aa")).await;
    assert_eq!(told(&results), ["gave up"; 2]);
    // The pauses are random: at that moment a request may be under way, and is waited for.
    let waited = intake.millis();
    assert!((10_000..=10_020).contains(&waited), "{waited}");
    let error = results[0].clone().unwrap_err();
    assert_eq!(error.record(), &Outgoing::new("a", "0"));
    assert!(error.to_string().contains("s; the last one: kinesis:PutRecords failed: Unreachable"), "{error}");
    assert!(results[1].clone().unwrap_err().to_string().contains("in 0 attempts and 10"), "{results:?}");

    let intake = out_of_reach();
    let results = intake.publisher().1.publish_all(to().max_attempts(3), records("a")).await;
    assert_eq!((told(&results), intake.requests().len()), (vec!["gave up".to_owned()], 3));
    assert_eq!(results[0].clone().unwrap_err().attempts(), 3);
}

// P3
#[tokio::test(start_paused = true)]
async fn senders_wait_at_the_bound_and_nothing_is_dropped() {
    let intake = Intake::new(|k, _| if k == 0 { Outcome::Refused(FailureKind::Other) } else { Outcome::Stored });
    let sink = sink(&intake, to().max_in_flight_bytes(64 << 10).order(PublishOrder::Relaxed));
    let held = sink.clone();
    let many = stream::iter((0..1_000).map(|number| Ok(Outgoing::new("key", format!("{number:>900}")))));
    let sending = many.forward(sink);
    pin_mut!(sending);
    for _ in 0..200 {
        assert!(poll!(&mut sending).is_pending());
        assert!(held.stats().in_flight_bytes <= (64 << 10) + 1_200, "{:?}", held.stats());
        yield_now().await;
    }
    // The bound, in records of 900 + 3 + 256 bytes, and one that exceeds it.
    assert_eq!(held.stats().in_flight, (64 << 10) / 1_159 + 1);
    timeout(LONG, sending).await.expect("it goes on").unwrap();
    assert_eq!(intake.stored().len(), 1_000);
    assert_eq!((held.stats().published, held.stats().in_flight_bytes), (1_000, 0));
}

// P3
#[tokio::test(start_paused = true)]
async fn a_record_as_large_as_the_bound_goes_through_beside_idle_handles() {
    let intake = Intake::kind();
    let sink = sink(&intake, to().max_in_flight_bytes(64 << 10));
    let mut idle = sink.clone();
    futures::future::poll_fn(|cx| Sink::<Outgoing>::poll_ready(std::pin::Pin::new(&mut idle), cx)).await.unwrap();
    let large = || sink.publish(Outgoing::new("key", vec![b'.'; 1 << 20]));
    let (one, other) = timeout(LONG, futures::future::join(large(), large())).await.expect("they go through");
    assert!(one.is_ok() && other.is_ok());
    drop(idle);
}

// P3
#[tokio::test(start_paused = true)]
async fn records_that_wait_for_room_are_accepted_in_the_order_in_which_they_came() {
    let intake = Intake::kind();
    let sink = &sink(&intake, to().max_in_flight_bytes(64 << 10).request_records(7));
    let records = (0..300).map(|number| sink.publish(Outgoing::new("key", format!("{number:>1000}"))));
    let results = stream::iter(records).buffered(200).collect::<Vec<_>>().await;
    assert!(results.iter().all(Result::is_ok));
    let numbers: Vec<usize> = intake.texts().iter().map(|text| text.trim().parse().unwrap()).collect();
    assert_eq!(numbers, (0..300).collect::<Vec<_>>());
}

// P3
#[tokio::test(start_paused = true)]
async fn a_failure_is_the_error_of_a_later_call_and_the_sink_goes_on() {
    let intake = Intake::new(|k, _| if k == 0 { Outcome::Refused(FailureKind::Denied) } else { Outcome::Stored });
    let mut sink = sink(&intake, to());
    send(&mut sink, records("ab")).await;
    let error = sink.flush().await.unwrap_err();
    assert_eq!((cause(&error), error.record().payload().as_ref()), ("denied", &b"0"[..]));
    let error = SinkExt::<Outgoing>::feed(&mut sink, Outgoing::new("c", "2")).await.unwrap_err();
    assert_eq!((cause(&error), error.record().payload().as_ref()), ("denied", &b"1"[..]));
    SinkExt::<Outgoing>::send(&mut sink, Outgoing::new("c", "3")).await.unwrap();
    assert_eq!(intake.texts(), ["3"]);
    let error = SinkExt::<Outgoing>::send(&mut sink, Outgoing::new("", "4")).await.unwrap_err();
    assert_eq!(cause(&error), "invalid");
    sink.close().await.unwrap();
}

// P3
#[tokio::test(start_paused = true)]
async fn a_sink_that_is_dropped_still_sends_what_it_accepted() {
    let logged = Logged::new();
    let intake = Intake::new(|k, _| match k {
        0 => Outcome::Refused(FailureKind::Other),
        1 => Outcome::Fails(vec![(1, FailureKind::Denied)]),
        _ => Outcome::Stored,
    });
    let mut sink = sink(&intake, to().linger(seconds(60)));
    send(&mut sink, records("aba")).await;
    drop(sink);
    sleep(seconds(2)).await;
    assert_eq!(intake.texts(), ["0", "2"]);
    assert_eq!(logged.with("a record was not published, and nobody asked").len(), 1);
}

// P3
#[tokio::test(start_paused = true)]
async fn a_record_that_nobody_waits_for_any_more_is_sent_all_the_same() {
    let intake = Intake::kind();
    let sink = sink(&intake, to());
    assert!(sink.publish(Outgoing::new("a", "0")).now_or_never().is_none());
    sleep(seconds(1)).await;
    assert_eq!(intake.texts(), ["0"]);
}

// P3
#[test]
fn a_runtime_that_ends_leaves_nobody_waiting() {
    let runtime = || Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let first = runtime();
    let sink = first.block_on(async { sink(&Intake::new(|_, _| Outcome::Hangs), to()) });
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
async fn a_sink_works_from_when_the_connection_opens_until_it_closes_and_sends_what_it_accepted() {
    let intake = Intake::kind();
    let connection = Arc::new(Connection::default());
    let publisher = Publisher::new(Arc::clone(&connection));
    let sink = publisher.sink(to().linger(seconds(1))).unwrap();
    let early = sink.publish(Outgoing::new("a", "early").header("id", "1")).await.unwrap_err();
    assert_eq!((cause(&early), early.attempts()), ("not connected", 0));
    assert_eq!(early.record(), &Outgoing::new("a", "early").header("id", "1"));
    assert_eq!(told(&publisher.publish_all("s", records("a")).await), ["not connected"]);

    connection.open(Arc::clone(&intake) as Arc<dyn Service>);
    let accepted = sink.publish(Outgoing::new("a", "accepted"));
    pin_mut!(accepted);
    assert!(poll!(&mut accepted).is_pending());
    connection.close().await;
    let late = sink.publish(Outgoing::new("a", "late")).await.unwrap_err();
    assert_eq!(cause(&late), "not connected");
    assert!(accepted.await.is_ok());
    assert_eq!(intake.texts(), ["accepted"]);
}

// S5
#[tokio::test(start_paused = true)]
async fn headers_hashes_and_keys_go_out_with_each_record() {
    let intake = Intake::kind();
    let given = vec![
        Outgoing::new("k", "plain"),
        Outgoing::new("l", "p").header("a", "b").explicit_hash_key(u128::MAX),
        Outgoing::new("m", &b"RSK2\0\0\0\0inner"[..]),
    ];
    let results = intake.publisher().1.publish_all("s", given).await;
    assert!(results.iter().all(Result::is_ok));
    let stored = intake.stored();
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
async fn a_snapshot_tells_how_a_sink_is_doing() {
    let intake = Intake::new(|k, _| match k {
        0 => Outcome::Fails(vec![(0, FailureKind::Throttled), (1, FailureKind::Denied)]),
        1 => Outcome::Hangs,
        _ => Outcome::Stored,
    });
    let mut sink = sink(&intake, to());
    send(&mut sink, records("abca")).await;
    sleep(seconds(3)).await;
    let stats = sink.stats();
    assert_eq!((&*stats.stream, stats.published, stats.bytes, stats.failed), ("s", 1, 2, 1));
    assert_eq!((stats.requests, stats.retries, stats.throttles), (2, 1, 1));
    assert_eq!((stats.in_flight, stats.in_flight_bytes, stats.oldest), (2, 2 * (2 + 256), Some(seconds(3))));
}

async fn subscribed(records: usize) -> (Ground, crate::subscription::Subscription) {
    let ground = Ground::new(&["a"]);
    ground.kinesis.put("a", records);
    let subscription = ground.instance("me").subscribe(horizon()).await;
    (ground, subscription)
}

fn onwards(delivery: Delivery) -> (Outgoing, Acker) {
    let (record, acker) = delivery.into_parts();
    (Outgoing::new(record.payload.clone().slice(1..).escape_ascii().to_string(), record.payload), acker)
}

// P3, A1, A3
#[tokio::test(start_paused = true)]
async fn a_delivery_is_acknowledged_once_its_record_is_stored_and_not_before() {
    let (ground, mut subscription) = subscribed(3).await;
    let deliveries = take(&mut subscription, 3).await;
    let intake =
        Intake::new(|k, _| if k == 0 { Outcome::Fails(vec![(0, FailureKind::Throttled)]) } else { Outcome::Stored });
    let mut sink = sink(&intake, to());
    for delivery in deliveries {
        sink.feed(onwards(delivery)).await.unwrap();
    }
    sleep(millis(40)).await;
    assert_eq!(intake.texts(), ["a1", "a2"]);
    let in_flight = |subscription: &crate::subscription::Subscription| subscription.stats().shards[0].in_flight;
    assert_eq!(in_flight(&subscription), 1);
    SinkExt::<(Outgoing, Acker)>::close(&mut sink).await.unwrap();
    assert_eq!(in_flight(&subscription), 0);
    sleep(seconds(2)).await;
    assert_eq!(ground.checkpoint("a").await, "after a2");
}

// P3, A2
#[tokio::test(start_paused = true)]
async fn a_delivery_whose_record_is_not_stored_comes_again_and_the_sink_says_why() {
    let (_ground, mut subscription) = subscribed(3).await;
    let mut deliveries = take(&mut subscription, 3).await.into_iter();
    let intake = Intake::new(|k, _| if k == 0 { Outcome::Refused(FailureKind::Denied) } else { Outcome::Stored });
    let mut sink = sink(&intake, to());
    sink.feed(onwards(deliveries.next().unwrap())).await.unwrap();
    assert_eq!(cause(&sink.flush().await.unwrap_err()), "denied");
    // One that is invalid, and one behind it that is stored.
    let (_, acker) = onwards(deliveries.next().unwrap());
    assert_eq!(cause(&sink.feed((Outgoing::new("", "x"), acker)).await.unwrap_err()), "invalid");
    sink.send(onwards(deliveries.next().unwrap())).await.unwrap();
    let again = within(&mut subscription, seconds(2)).await;
    assert_eq!(names(&again), ["a0", "a1"]);
    assert!(again.iter().all(|delivery| delivery.attempt() == 2));
}

// P3, A2
#[test]
fn deliveries_that_were_given_to_a_sink_are_not_acknowledged_by_the_end_of_its_runtime() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let other = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let ground = Ground::new(&["a"]);
        ground.kinesis.put("a", 1);
        let mut subscription = ground.instance("me").subscribe(horizon().ack_on_drop()).await;
        let mut sink = {
            let _there = other.enter();
            sink(&Intake::new(|_, _| Outcome::Hangs), to())
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
async fn aggregation_takes_what_waits_of_a_key_along() {
    let intake = Intake::kind();
    let hundred = records(&"a".repeat(100));
    let results = intake.publisher().1.publish_all(to().aggregate(), hundred).await;
    assert_eq!((intake.requests().len(), intake.millis()), (1, 20));
    let places: Vec<_> = results.iter().map(|result| result.as_ref().unwrap().sub_sequence_number()).collect();
    assert_eq!(places, (0..100).map(Some).collect::<Vec<_>>());
    assert!(results.iter().flatten().all(|published| published.sequence_number().as_str() == "1"));
}

#[derive(Clone, Debug)]
enum Luck {
    Stored,
    Fails(Vec<bool>, FailureKind),
    Refused(FailureKind),
    Lost,
}

fn luck() -> impl Strategy<Value = Luck> {
    let passing =
        || prop_oneof![Just(FailureKind::Throttled), Just(FailureKind::Other), Just(FailureKind::Unreachable)];
    prop_oneof![
        3 => Just(Luck::Stored),
        4 => (vec(any::<bool>(), 1..6), passing()).prop_map(|(mask, kind)| Luck::Fails(mask, kind)),
        2 => passing().prop_map(Luck::Refused),
        1 => Just(Luck::Refused(FailureKind::Rejected)),
        2 => Just(Luck::Lost),
    ]
}

fn outcome(luck: Option<&Luck>, entries: &[PutEntry]) -> Outcome {
    match luck {
        None | Some(Luck::Stored) => Outcome::Stored,
        // One that is refused alone fails for good, which is for another test.
        Some(Luck::Refused(FailureKind::Rejected)) if entries.len() == 1 => Outcome::Stored,
        Some(Luck::Refused(kind)) => Outcome::Refused(*kind),
        Some(Luck::Lost) => Outcome::Lost(FailureKind::Unreachable),
        Some(Luck::Fails(mask, kind)) => {
            let fails = mask.iter().cycle().take(entries.len()).enumerate();
            Outcome::Fails(fails.filter(|(_, fails)| **fails).map(|(place, _)| (place, *kind)).collect())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    // P3
    #[test]
    fn whatever_fails_every_record_has_one_result_and_lies_in_the_stream_in_the_order_of_its_key(
        keys in "[a-e]{0,60}",
        request_records in 1..6_usize,
        max_requests in 1..4_usize,
        lucks in vec(luck(), 0..40),
    ) {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let intake = Intake::new(move |k, entries| outcome(lucks.get(k), entries));
            let to = to().request_records(request_records).max_requests(max_requests).max_in_flight_bytes(64 << 10);
            let sink = sink(&intake, to);
            let results = timeout(LONG, join_all(records(&keys).into_iter().map(|record| sink.publish(record))));
            let results = results.await.expect("every record has a result");
            prop_assert!(results.iter().all(Result::is_ok), "{:?}", told(&results));
            let stored: BTreeSet<_> = intake.texts().into_iter().collect();
            prop_assert_eq!(stored.len(), keys.len());
            assert_in_order(&intake.stored());
            prop_assert_eq!(sink.stats().in_flight, 0);
            Ok(())
        })?;
    }
}
