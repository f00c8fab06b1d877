//! Records that are too old to be delivered (A8).

use futures::StreamExt;
use tokio::time::{Duration, sleep, timeout};

use super::{
    harness::{CapturedLogs, Harness, error, horizon, item, name, names, next, seconds, take, within},
    script::{Fault, Rule},
    scripted_service::ServiceOp,
};
use crate::{
    config::max_age::TooOld,
    dead_letters::dead_letter::DeadLetter,
    delivery::Delivery,
    error::{KinesisError, service::FailureKind},
    simulation::kinesis::EPOCH,
    subscription::{Subscription, delivery_stream_ext::DeliveryStreamExt, descriptor::KinesisStream},
};

/// Five minutes.
const LIMIT: Duration = Duration::from_mins(5);

fn skipping() -> KinesisStream {
    horizon().max_age(LIMIT)
}

fn with_dead_letters() -> KinesisStream {
    skipping().dead_letter("dead")
}

/// A stream with two old records and two new ones.
async fn two_old_ones() -> Harness {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    sleep(LIMIT).await;
    harness.kinesis.put("a", 2);
    sleep(seconds(10)).await;
    harness
}

fn letters(harness: &Harness) -> Vec<String> {
    let texts = |put: super::kinesis::Written| {
        let letter = DeadLetter::parse(&put.key, put.data).unwrap();
        let name = letter.record().sequence_number().to_string();
        format!("{name}#{}: {}, {}", letter.attempts(), letter.reason(), letter.is_rejected())
    };
    harness.kinesis.written().into_iter().map(texts).collect()
}

/// What `stats()` counts of shard `a`: too old, spent, dead letters, acknowledged, in flight.
fn counts(subscription: &Subscription) -> [u64; 5] {
    let shard = subscription.stats().shards.remove(0);
    [shard.too_old, shard.spent, shard.dead_letters, shard.acked, shard.in_flight as u64]
}

// A8
#[tokio::test(start_paused = true)]
async fn old_records_are_passed_over_and_counted_and_one_warning_says_so() {
    for (stream, what) in [(skipping(), "usual"), (with_dead_letters().too_old(TooOld::Skip), "chosen")] {
        let (harness, logs) = (two_old_ones().await, CapturedLogs::new());
        let mut subscription = harness.instance("me").subscribe(stream).await;
        let records = within(&mut subscription, seconds(3)).await;
        assert_eq!(names(&records), ["a2", "a3"], "{what}");
        assert_eq!(harness.checkpoint("a").await, "after a1", "{what}");
        assert_eq!(counts(&subscription), [2, 0, 0, 0, 2], "{what}");
        records.into_iter().for_each(Delivery::ack);
        sleep(seconds(2)).await;
        assert_eq!((harness.checkpoint("a").await.as_str(), letters(&harness)), ("after a3", Vec::new()), "{what}");
        assert_eq!(logs.with("records are older than `max_age` and are passed over").len(), 1, "{what}");
    }
}

// A8
#[tokio::test(start_paused = true)]
async fn old_records_become_dead_letters_without_an_attempt_and_hold_the_checkpoint_until_then() {
    let (harness, logs) = (two_old_ones().await, CapturedLogs::new());
    let me = harness.instance("me");
    // The first of the two writes takes longer.
    me.service.script.plan(Rule::on(ServiceOp::PutRecord), Fault::Delay(seconds(5)));
    let mut subscription = me.subscribe(with_dead_letters()).await;
    let records = take(&mut subscription, 2).await;
    assert_eq!(names(&records), ["a2", "a3"]);
    records.into_iter().for_each(Delivery::ack);
    sleep(seconds(4)).await;
    assert_eq!((harness.checkpoint("a").await.as_str(), counts(&subscription)), ("at a0", [2, 2, 1, 2, 1]));
    sleep(seconds(10)).await;
    assert_eq!((harness.checkpoint("a").await.as_str(), counts(&subscription)), ("after a3", [2, 2, 2, 2, 0]));
    assert_eq!(letters(&harness), ["a1#0: older than 300s, false", "a0#0: older than 300s, false"]);
    assert_eq!(logs.with("records are older than `max_age` and go to the dead-letter stream").len(), 1);
    assert!(timeout(seconds(100), subscription.next()).await.is_err());
}

// A8, X2
#[tokio::test(start_paused = true)]
async fn an_old_record_that_no_dead_letter_can_hold_is_yielded_as_an_error() {
    let harness = two_old_ones().await;
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::PutRecord).times(1), FailureKind::Rejected);
    let mut subscription = me.subscribe(with_dead_letters()).await;
    take(&mut subscription, 2).await.into_iter().for_each(Delivery::ack);
    let KinesisError::AttemptsSpent { record, attempts, reason, .. } = error(&mut subscription).await else {
        panic!("another error");
    };
    assert_eq!((record.sequence_number().as_str(), attempts, &*reason), ("a0", 0, "older than 300s"));
    sleep(seconds(2)).await;
    assert_eq!((harness.checkpoint("a").await.as_str(), letters(&harness).len()), ("after a3", 1));
}

// A8, A5
#[tokio::test(start_paused = true)]
async fn a_record_that_became_too_old_in_its_page_is_not_delivered() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 4);
    let mut subscription = harness.instance("me").subscribe(skipping()).await;
    let held = next(&mut subscription).await;
    sleep(LIMIT + seconds(1)).await;
    assert!(timeout(seconds(10), subscription.next()).await.is_err());
    assert_eq!((harness.checkpoint("a").await.as_str(), counts(&subscription)), ("at a0", [3, 0, 0, 0, 1]));
    // A record that is in hands is its handler's.
    held.ack();
    sleep(seconds(2)).await;
    assert_eq!((harness.checkpoint("a").await.as_str(), counts(&subscription)), ("after a3", [3, 0, 0, 1, 0]));
}

// A8, A7
#[tokio::test(start_paused = true)]
async fn a_record_that_becomes_too_old_before_its_redelivery_is_not_delivered_again() {
    for (stream, expected) in [
        (skipping(), (vec![], [1, 0, 0, 0, 0])),
        (with_dead_letters(), (vec!["a0#1: older than 300s; the reason before: busy, false".into()], [1, 1, 1, 0, 0])),
    ] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 1);
        let mut subscription = harness.instance("me").subscribe(stream.retry_backoff(LIMIT * 2..=LIMIT * 2)).await;
        next(&mut subscription).await.nack_because("busy");
        assert!(timeout(LIMIT * 4, subscription.next()).await.is_err());
        assert_eq!((letters(&harness), counts(&subscription)), expected);
        assert_eq!(harness.checkpoint("a").await, "after a0");
    }
}

// A8, A7
#[tokio::test(start_paused = true)]
async fn the_key_of_a_record_that_becomes_too_old_goes_on() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put_keys("a", "xx");
    let stream = skipping().retry_backoff(LIMIT * 2..=LIMIT * 2);
    let mut work = harness.instance("me").subscribe(stream).await.buffer_by_key(2, async |delivery| {
        let what = format!("{} at {}", name(&delivery), harness.millis() / 1_000);
        if name(&delivery) == "a0" {
            delivery.nack();
        } else {
            delivery.ack();
        }
        Ok(what)
    });
    let mut done = Vec::new();
    while let Ok(Some(result)) = timeout(LIMIT * 4, work.next()).await {
        done.extend(result.ok());
    }
    assert_eq!(done, ["a0 at 0", "a1 at 600"]);
    assert_eq!(harness.checkpoint("a").await, "after a1");
}

// A8
#[tokio::test(start_paused = true)]
async fn a_stream_of_old_records_ends_at_its_tip() {
    for stream in [skipping(), with_dead_letters()] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 1_500);
        sleep(LIMIT + seconds(10)).await;
        let mut subscription = harness.instance("me").subscribe(stream.stop_at_tip()).await;
        assert!(item(&mut subscription).await.is_none());
        assert_eq!(counts(&subscription)[0], 1_500);
        sleep(seconds(2)).await;
        assert_eq!(harness.checkpoint("a").await, "after a1499");
    }
}

// A8
#[tokio::test(start_paused = true)]
async fn the_services_clock_decides_and_without_it_the_hosts_clock_with_a_minute_of_doubt() {
    // The clock of the host shows 2026 or later, and the one of the service 2023.
    let harness = two_old_ones().await;
    let told = within(&mut harness.instance("me").subscribe(skipping()).await, seconds(3)).await;
    assert_eq!(names(&told), ["a2", "a3"]);

    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    let now = crate::util::clock::unix_millis();
    for (age, what) in [(LIMIT + seconds(90), "old"), (LIMIT + seconds(30), "in doubt"), (LIMIT, "new")] {
        let age = i64::try_from(age.as_millis()).unwrap();
        harness.kinesis.set_time(now - age);
        assert!(harness.kinesis.millis() > EPOCH, "{what}");
        harness.kinesis.put("a", 1);
    }
    harness.kinesis.set_time(now);
    harness.kinesis.hide_its_time();
    let untold = within(&mut me.subscribe(skipping()).await, seconds(3)).await;
    assert_eq!(names(&untold), ["a1", "a2"]);
}
