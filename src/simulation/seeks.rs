//! Moving a running subscription to another position (A3, A6).

use futures::{FutureExt, StreamExt};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    kinesis::EPOCH,
    script::{Fault, Rule},
    scripted_service::ServiceOp,
};

use crate::{
    config::position::KinesisPosition,
    delivery::Delivery,
    error::{KinesisError, service::FailureKind},
    simulation::harness::{Harness, horizon, item, name, names, range, seconds, take},
    subscription::Subscription,
    types::commit::Commit::{self},
};

mod failures;
mod resharding;

fn at(shard: &str, index: usize) -> KinesisPosition {
    KinesisPosition::sequence(shard, format!("{shard}{index}"))
}

/// The names of all records that arrive within this time. Settles each one as it arrives.
async fn drain(subscription: &mut Subscription, time: u64) -> Vec<String> {
    let until = Instant::now() + seconds(time);
    let mut names = Vec::new();
    while let Ok(item) = timeout_at(until, subscription.next()).await {
        let delivery = item.expect("the stream continues").unwrap();
        names.push(name(&delivery).to_owned());
        delivery.ack();
    }
    names
}

/// The next records. Skips errors.
async fn records(subscription: &mut Subscription, count: usize) -> Vec<Delivery> {
    let mut records = Vec::new();
    while records.len() < count {
        records.extend(item(subscription).await.expect("the stream continues"));
    }
    records
}

// A3, A6
#[tokio::test(start_paused = true)]
async fn a_seek_back_replays_every_shard_and_its_first_settled_run_replaces_the_checkpoint() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 3);
    harness.kinesis.put("b", 2);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    assert_eq!(drain(&mut subscription, 3).await, ["a0", "a1", "a2", "b0", "b1"]);
    assert_eq!(harness.checkpoint("a").await, "after a2");
    // The seek runs in the consuming task, which does not poll the stream meanwhile.
    subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    assert_eq!(harness.checkpoint("a").await, "after a2", "it does not move until a record is settled");
    let again = take(&mut subscription, 5).await;
    assert_eq!(names(&again), ["a0", "a1", "a2", "b0", "b1"]);
    assert!(again.iter().all(|delivery| (delivery.epoch(), delivery.attempt()) == (1, 1)));
    let mut again = again.into_iter();
    assert_eq!(again.next().unwrap().commit().await.unwrap(), Commit::Stored);
    assert_eq!(harness.checkpoint("a").await, "after a0");
    assert_eq!(harness.checkpoint("b").await, "after b1");
}

// A6
#[tokio::test(start_paused = true)]
async fn deliveries_from_before_a_seek_are_superseded_and_not_redelivered() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 4);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let mut old = take(&mut subscription, 3).await.into_iter();
    old.next().unwrap().nack();
    subscription.seeker().seek(at("a", 3)).await.unwrap();
    assert_eq!(old.next().unwrap().commit().await.unwrap(), Commit::Superseded);
    old.next().unwrap().nack();
    assert_eq!(drain(&mut subscription, 300).await, ["a3"]);
    assert_eq!(harness.checkpoint("a").await, "after a3");
}

// A6
#[tokio::test(start_paused = true)]
async fn a_seek_to_the_tip_skips_records_and_a_seek_to_a_time_starts_there() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 2);
    sleep(seconds(10)).await;
    harness.kinesis.put("a", 2);
    harness.kinesis.put("b", 2);
    sleep(seconds(10)).await;
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let seeker = subscription.seeker();
    seeker.seek(KinesisPosition::latest()).await.unwrap();
    harness.kinesis.put("b", 1);
    assert_eq!(drain(&mut subscription, 30).await, ["b2"]);
    seeker.seek(KinesisPosition::timestamp(EPOCH + 5_000)).await.unwrap();
    assert_eq!(drain(&mut subscription, 30).await, ["a2", "a3", "b0", "b1", "b2"]);
}

// A6
#[tokio::test(start_paused = true)]
async fn a_seek_to_a_record_moves_only_its_shard() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 5);
    harness.kinesis.put("b", 5);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for delivery in take(&mut subscription, 10).await {
        if delivery.shard().as_str() == "a" { of_a.push(delivery) } else { of_b.push(delivery) }
    }
    subscription.seeker().seek(at("a", 2)).await.unwrap();
    assert_eq!(of_b.pop().unwrap().commit().await.unwrap(), Commit::Deferred);
    assert_eq!(of_a.pop().unwrap().commit().await.unwrap(), Commit::Superseded);
    assert_eq!(drain(&mut subscription, 30).await, range("a", 2..5));
}

// A6, A5, R9
#[tokio::test(start_paused = true)]
async fn a_seek_moves_shards_that_are_at_their_bound_or_throttled_or_failing() {
    let harness = Harness::new(&["a", "b", "c"]);
    for shard in ["a", "b", "c"] {
        harness.kinesis.put(shard, 10);
    }
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon().max_in_flight(2).poll_interval(seconds(60))).await;
    let held = take(&mut subscription, 6).await;
    assert!(subscription.next().now_or_never().is_none(), "all shards are at their bound");
    me.service.script.plan(Rule::on(ServiceOp::GetRecords).of("b").times(2), Fault::Fail(FailureKind::Throttled));
    me.service.script.plan(Rule::on(ServiceOp::GetRecords).of("c").times(2), Fault::Fail(FailureKind::Other));
    subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    let again = records(&mut subscription, 2).await;
    assert_eq!(names(&again), ["a0", "a1"]);
    // Shards whose reads fail now are moved as well, while their readers wait.
    subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    me.service.script.heal();
    let mut again = records(&mut subscription, 6).await;
    again.sort_by_key(|delivery| name(delivery).to_owned());
    assert_eq!(names(&again), ["a0", "a1", "b0", "b1", "c0", "c1"]);
    drop(held);
}

// A6, E5
#[tokio::test(start_paused = true)]
async fn a_seek_never_moves_shards_of_other_instances_even_after_a_hand_over() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 2);
    harness.kinesis.put("b", 2);
    let a = harness.instance("A");
    let mut one = a.subscribe(horizon()).await;
    assert_eq!(drain(&mut one, 3).await, ["a0", "a1", "b0", "b1"]);
    let mut two = harness.instance("B").subscribe(horizon()).await;
    assert!(drain(&mut two, 10).await.is_empty());
    two.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    assert_eq!(drain(&mut two, 10).await, ["a0", "a1"]);
    let gone = two.seeker().seek(at("b", 0)).await.unwrap_err();
    assert!(matches!(&gone, KinesisError::NotHeld { shard, .. } if shard.as_str() == "b"), "{gone}");
    assert!(one.close().await.is_clean());
    harness.kinesis.put("b", 1);
    assert_eq!(drain(&mut two, 30).await, ["b2"]);
}
