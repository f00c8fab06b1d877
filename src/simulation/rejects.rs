//! Records that the user rejects, and pauses that the user sets (A7).

use futures::{StreamExt, TryStreamExt};
use tokio::time::{sleep, timeout};

use super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
};

use crate::{
    config::position::KinesisPosition,
    dead_letters::dead_letter::DeadLetter,
    delivery::{Acker, Delivery},
    error::{ErrorClass, KinesisError, service::FailureKind},
    simulation::harness::{Harness, error, horizon, millis, name, names, next, seconds, take, within},
    subscription::{Subscription, batch::Batch, delivery_stream_ext::DeliveryStreamExt, descriptor::KinesisStream},
    types::commit::Commit,
};

/// The harness's stream with a dead-letter stream, and without a limit of attempts.
fn unlimited() -> KinesisStream {
    horizon().dead_letter("dead")
}

/// Each dead letter: its payload, attempts, reason, and whether it was rejected.
fn dead_letters(harness: &Harness) -> Vec<String> {
    let texts = |written: super::kinesis::Written| {
        let letter = DeadLetter::parse(&written.key, written.data).unwrap();
        let name = str::from_utf8(letter.record().payload()).unwrap();
        format!("{name}#{}: {}, {}", letter.attempts(), letter.reason(), letter.is_rejected())
    };
    harness.kinesis.written().into_iter().map(texts).collect()
}

/// What `stats()` counts of shard `a`: spent, rejected, dead letters, in flight.
fn counts(subscription: &Subscription) -> (u64, u64, u64, usize) {
    let shard = subscription.stats().shards.remove(0);
    (shard.spent, shard.rejected, shard.dead_letters, shard.in_flight)
}

// A7
#[tokio::test(start_paused = true)]
async fn a_rejected_record_is_a_dead_letter_after_one_attempt_whether_or_not_attempts_have_a_limit() {
    for (stream, what) in [(unlimited(), "unlimited"), (unlimited().max_attempts(5), "five attempts")] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 3);
        let mut subscription = harness.instance("me").subscribe(stream).await;
        let mut records = take(&mut subscription, 3).await;
        let (_, acker): (_, Acker) = records.remove(1).into_parts();
        acker.reject("no such customer");
        records.remove(0).reject(format_args!("no {}", "digit"));
        records.remove(0).nack_because("later");
        sleep(seconds(2)).await;
        assert_eq!(dead_letters(&harness), ["a1#1: no such customer, true", "a0#1: no digit, true"], "{what}");
        assert_eq!(harness.checkpoint("a").await, "after a1", "{what}");
        assert_eq!(counts(&subscription), (2, 2, 2, 1), "{what}");
        let again = within(&mut subscription, seconds(60)).await;
        assert_eq!((names(&again), again[0].attempt()), (vec!["a2"], 2), "{what}");
    }
}

// A7
#[tokio::test(start_paused = true)]
async fn a_record_that_used_up_its_attempts_was_not_rejected() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(unlimited().max_attempts(1)).await;
    next(&mut subscription).await.nack_because("later");
    sleep(seconds(2)).await;
    assert_eq!((dead_letters(&harness), counts(&subscription)), (vec!["a0#1: later, false".into()], (1, 0, 1, 0)));
}

// A7, X2
#[tokio::test(start_paused = true)]
async fn without_a_dead_letter_stream_a_rejected_record_is_yielded_as_an_error_and_then_settled() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let mut records = take(&mut subscription, 2).await;
    records.remove(0).reject("no such customer");
    records.remove(0).ack();
    sleep(seconds(5)).await;
    assert_eq!(harness.checkpoint("a").await, "at a0");
    let spent = error(&mut subscription).await;
    assert_eq!(spent.class(), ErrorClass::Record);
    assert_eq!(spent.to_string(), "stream s, shard a, sequence number a0: rejected in attempt 1: no such customer");
    let KinesisError::AttemptsSpent { record, attempts, rejected, reason, .. } = spent else { panic!("{spent}") };
    assert_eq!((record.sequence_number().as_str(), record.payload().as_ref()), ("a0", &b"a0"[..]));
    assert_eq!((attempts, rejected, &*reason), (1, true, "no such customer"));
    sleep(seconds(2)).await;
    assert_eq!((harness.checkpoint("a").await.as_str(), counts(&subscription)), ("after a1", (1, 1, 0, 0)));
    assert!(within(&mut subscription, seconds(200)).await.is_empty());
}

// A7, X2
#[tokio::test(start_paused = true)]
async fn a_rejected_record_that_no_dead_letter_can_hold_is_yielded_as_an_error_that_says_so() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::PutRecord), FailureKind::Rejected);
    let mut subscription = me.subscribe(unlimited()).await;
    next(&mut subscription).await.reject("no digit");
    let spent = error(&mut subscription).await;
    assert_eq!(
        spent.to_string(),
        "stream s, shard a, sequence number a0: rejected in attempt 1: no digit; it cannot be a dead letter either"
    );
}

// A7
#[tokio::test(start_paused = true)]
async fn a_decode_error_rejects_its_record_with_the_error_as_the_reason() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(unlimited()).await;
    let record = next(&mut subscription).await;
    let number = |bytes: &bytes::Bytes| str::from_utf8(bytes).unwrap().parse::<u64>();
    record.try_map(number).unwrap_err().reject();
    sleep(seconds(2)).await;
    assert_eq!(dead_letters(&harness), ["a0#1: invalid digit found in string, true"]);
    assert_eq!(harness.checkpoint("a").await, "after a0");
}

// A7, L9
#[tokio::test(start_paused = true)]
async fn a_record_that_is_rejected_while_the_subscription_closes_is_delivered_by_the_next_start() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(unlimited()).await;
    let record = next(&mut subscription).await;
    let closing = tokio::spawn(subscription.close());
    sleep(millis(1)).await;
    record.reject("no digit");
    assert_eq!(closing.await.unwrap().open[0].deliveries, 1);
    assert_eq!((dead_letters(&harness), harness.checkpoint("a").await.as_str()), (Vec::new(), "at a0"));
    let again = next(&mut me.subscribe(unlimited()).await).await;
    assert_eq!((name(&again), again.attempt()), ("a0", 1));
}

// A6, A7
#[tokio::test(start_paused = true)]
async fn rejecting_a_record_from_before_a_seek_writes_nothing() {
    for stream in [unlimited(), horizon()] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 2);
        let mut subscription = harness.instance("me").subscribe(stream).await;
        let record = next(&mut subscription).await;
        subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
        record.reject("no digit");
        let again = within(&mut subscription, seconds(200)).await;
        assert_eq!((names(&again), dead_letters(&harness)), (vec!["a0", "a1"], Vec::new()));
        assert_eq!(counts(&subscription), (0, 0, 0, 2));
    }
}

// A7, E3
#[tokio::test(start_paused = true)]
async fn rejecting_a_record_of_a_lost_lease_writes_nothing() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(unlimited()).await;
    let record = next(&mut subscription).await;
    harness.steal("a", "thief").await;
    assert!(matches!(error(&mut subscription).await, KinesisError::LeaseLost { .. }));
    record.reject("no digit");
    let again = next(&mut subscription).await;
    assert_eq!((name(&again), again.attempt(), dead_letters(&harness)), ("a0", 1, Vec::new()));
}

// A1, A7
#[tokio::test(start_paused = true)]
async fn a_batch_is_rejected_as_a_whole_or_by_index() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 9);
    let mut batches = harness.instance("me").subscribe(unlimited()).await.batches(3).unwrap();
    let mut batch = async || timeout(seconds(60), batches.next()).await.unwrap().unwrap().unwrap();
    let reasons = ["", "no digit", ""];
    let by_index = |index: usize, _: &Delivery| (!reasons[index].is_empty()).then_some(reasons[index]);
    assert_eq!(batch().await.commit_rejecting(by_index).await.unwrap(), Commit::Deferred);
    batch().await.reject("no such table");
    sleep(seconds(2)).await;
    assert_eq!(batch().await.commit_rejecting(|_, _| None::<&str>).await.unwrap(), Commit::Stored);
    let rejected = ["a1#1: no digit, true", "a3#1: no such table, true", "a4#1: no such table, true"];
    assert_eq!(dead_letters(&harness)[..3], rejected);
    assert_eq!((dead_letters(&harness).len(), harness.checkpoint("a").await.as_str()), (4, "after a8"));
    assert!(timeout(seconds(200), batches.next()).await.is_err());
}

// A7
#[tokio::test(start_paused = true)]
async fn the_user_sets_the_pause_of_a_redelivery() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let mut records = take(&mut subscription, 3).await;
    records.remove(0).nack_after(seconds(90));
    let (_, acker) = records.remove(0).into_parts();
    acker.nack_after(seconds(0));
    records.into_iter().collect::<Batch>().nack_after(seconds(7));
    let mut seen = Vec::new();
    for _ in 0..3 {
        let record = next(&mut subscription).await;
        seen.push(format!("{}#{} at {}", name(&record), record.attempt(), harness.millis() / 1_000));
        record.ack();
    }
    assert_eq!(seen, ["a1#2 at 0", "a2#2 at 7", "a0#2 at 90"]);
    assert_eq!(counts(&subscription), (0, 0, 0, 0));
}

// A7
#[tokio::test(start_paused = true)]
async fn a_pause_of_the_user_gives_no_attempt_beyond_the_limit() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(unlimited().max_attempts(2)).await;
    next(&mut subscription).await.nack_after(seconds(3));
    next(&mut subscription).await.nack_after(seconds(3));
    sleep(seconds(1)).await;
    assert_eq!((dead_letters(&harness), harness.millis() / 1_000), (vec!["a0#2: given back, false".to_owned()], 4));
}

// A7
#[tokio::test(start_paused = true)]
async fn a_rejected_record_blocks_its_key_neither_before_its_dead_letter_is_written_nor_before_its_error() {
    for stream in [unlimited(), horizon()] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put_keys("a", "xxx");
        let me = harness.instance("me");
        me.service.script.plan(Rule::on(ServiceOp::PutRecord), Fault::Delay(seconds(5)));
        let mut work = me.subscribe(stream).await.buffer_by_key(2, async |delivery| {
            let what = format!("{}#{} at {}", name(&delivery), delivery.attempt(), harness.millis() / 1_000);
            // The rejected record had an earlier attempt, for which its key waited.
            match (name(&delivery), delivery.attempt()) {
                ("a0", 1) => delivery.nack(),
                ("a0", _) => delivery.reject("no digit"),
                _ => delivery.ack(),
            }
            Ok(what)
        });
        let mut done = Vec::new();
        while let Ok(Some(result)) = timeout(seconds(3), work.next()).await {
            done.extend(result.ok());
        }
        assert_eq!(done, ["a0#1 at 0", "a0#2 at 1", "a1#1 at 1", "a2#1 at 1"]);
        sleep(seconds(5)).await;
        assert_eq!(harness.checkpoint("a").await, "after a2");
    }
}

// A7, L9
#[tokio::test(start_paused = true)]
async fn a_key_whose_record_is_rejected_while_closing_does_not_go_on() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put_keys("a", "xx");
    let me = harness.instance("me");
    let subscription = me.subscribe(unlimited()).await;
    let closer = subscription.closer();
    let work = subscription.buffer_by_key(2, async |delivery| {
        sleep(seconds(1)).await;
        let what = name(&delivery).to_owned();
        delivery.reject("no digit");
        Ok(what)
    });
    tokio::spawn(async move {
        sleep(millis(500)).await;
        closer.close().await
    });
    assert_eq!(work.try_collect::<Vec<_>>().await.unwrap(), ["a0"]);
    assert_eq!((dead_letters(&harness), harness.checkpoint("a").await.as_str()), (Vec::new(), "at a0"));
}
