//! Records that used up their attempts, together with the other features of a subscription: keys that wait for them,
//! seeks, hand-overs, the end at the tip, batches (A2, A6, A7, X2).

use futures::StreamExt;
use tokio::time::{sleep, timeout};

use super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
};

use crate::{
    config::position::KinesisPosition,
    dead_letters::dead_letter::DeadLetter,
    delivery::Delivery,
    error::{KinesisError, service::FailureKind},
    simulation::harness::{CapturedLogs, Harness, Instance, error, horizon, names, next, seconds, take, within},
    subscription::{Subscription, delivery_stream_ext::DeliveryStreamExt, descriptor::KinesisStream},
};

mod at_tip;
mod batches;
mod keys;

/// The harness's stream, with this many attempts for each record and a dead-letter stream.
fn with_attempts(attempts: u32) -> KinesisStream {
    horizon().max_attempts(attempts).dead_letter("dead")
}

/// The names of the records in the dead-letter stream, with the reasons.
fn dead_letters(harness: &Harness) -> Vec<String> {
    let texts = |written: super::kinesis::Written| {
        let letter = DeadLetter::parse(&written.key, written.data).unwrap();
        format!("{}: {}", str::from_utf8(letter.record().payload()).unwrap(), letter.reason())
    };
    harness.kinesis.written().into_iter().map(texts).collect()
}

/// An instance whose dead-letter writes are refused for now.
fn with_refused_dead_letters(harness: &Harness, owner: &str) -> Instance {
    let instance = harness.instance(owner);
    instance.service.fail(Rule::on(ServiceOp::PutRecord).always(), FailureKind::Denied);
    instance
}

fn in_flight(subscription: &Subscription) -> Vec<usize> {
    subscription.stats().shards.iter().map(|shard| shard.in_flight).collect()
}

// A6, A7
#[tokio::test(start_paused = true)]
async fn a_seek_drops_queued_dead_letters_and_the_records_start_at_attempt_one() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let me = with_refused_dead_letters(&harness, "me");
    let mut subscription = me.subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    assert!(matches!(error_after(&mut subscription, 1).await, KinesisError::DeadLetter { .. }));
    subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    me.service.script.heal();
    let again = take(&mut subscription, 2).await;
    assert_eq!((names(&again), again[0].attempt(), in_flight(&subscription)), (vec!["a0", "a1"], 1, vec![2]));
    sleep(seconds(200)).await;
    assert_eq!(dead_letters(&harness), [""; 0]);
    again.into_iter().for_each(Delivery::ack);
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a1");
}

/// The error that follows this many records. Acknowledges each of them.
async fn error_after(subscription: &mut Subscription, records: usize) -> KinesisError {
    take(subscription, records).await.into_iter().for_each(Delivery::ack);
    error(subscription).await
}

// A7, E5
#[tokio::test(start_paused = true)]
async fn a_hand_over_waits_for_a_dead_letter_write_under_way() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 1);
    harness.kinesis.put("b", 1);
    let me = harness.instance("A");
    me.service.script.plan(Rule::on(ServiceOp::PutRecord).always(), Fault::Delay(seconds(20)));
    let mut subscription = me.subscribe(with_attempts(1)).await;
    take(&mut subscription, 2).await.into_iter().for_each(Delivery::nack);
    let mut other = harness.instance("B").subscribe(horizon()).await;
    let (mine, theirs) = tokio::join!(within(&mut subscription, seconds(40)), within(&mut other, seconds(40)));
    assert_eq!((mine.len(), theirs.len()), (0, 0), "each of them is settled");
    assert_eq!(dead_letters(&harness), ["a0: given back", "b0: given back"]);
    assert_eq!(harness.shares().await.into_values().collect::<Vec<_>>(), [1, 1]);
    assert_eq!((harness.checkpoint("a").await, harness.checkpoint("b").await), ("after a0".into(), "after b0".into()));
}

// A2, A7, L9
#[tokio::test(start_paused = true)]
async fn dropping_the_subscription_makes_no_dead_letter_of_running_records() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put_keys("a", "xyz");
    let me = harness.instance("me");
    let work = async |delivery: Delivery| -> Result<(), KinesisError> {
        sleep(seconds(60)).await;
        delivery.ack();
        Ok(())
    };
    let mut by_key = me.subscribe(with_attempts(1)).await.buffer_by_key(2, work);
    assert!(timeout(seconds(1), by_key.next()).await.is_err());
    drop(by_key);
    sleep(seconds(5)).await;
    assert_eq!(dead_letters(&harness), [""; 0]);
    let again = take(&mut me.subscribe(with_attempts(1)).await, 3).await;
    assert_eq!((names(&again), again[0].attempt()), (vec!["a0", "a1", "a2"], 1));
}

// A2, A7
#[tokio::test(start_paused = true)]
async fn the_warning_about_a_drop_says_what_happens_to_the_record() {
    let table = [
        (horizon(), "will be redelivered"),
        (with_attempts(2), "will be redelivered"),
        (with_attempts(1), "becomes a dead letter"),
        (horizon().max_attempts(1), "is reported as an error"),
    ];
    for (stream, becomes) in table {
        let logged = CapturedLogs::new();
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 2);
        let mut subscription = harness.instance("me").subscribe(stream).await;
        drop(take(&mut subscription, 2).await);
        let said = logged.with("dropped without being settled");
        assert_eq!((said.len(), said[0].contains(becomes)), (1, true), "{said:?}");
    }
}
