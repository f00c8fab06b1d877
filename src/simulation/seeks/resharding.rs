//! Seeks over splits and ended shards (A3, A6, H1, H3 to H5).

use tokio::time::sleep;

use super::{
    super::{
        script::{Fault, Rule},
        scripted_service::ServiceOp,
        scripted_table::TableOp,
    },
    at, drain,
};

use crate::{
    config::position::KinesisPosition,
    delivery::Delivery,
    simulation::harness::{Harness, horizon, latest, millis, names, next, seconds, take, within},
    types::commit::Commit::{self},
};

// A6, H1, H3
#[tokio::test(start_paused = true)]
async fn a_seek_to_the_horizon_rereads_ended_shards_parents_first() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 2);
    harness.kinesis.put("c", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    assert_eq!(drain(&mut subscription, 30).await, ["a0", "a1", "b0", "b1", "c0"]);
    assert_eq!(harness.checkpoint("a").await, "SHARD_END");
    subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    let parents = take(&mut subscription, 2).await;
    assert_eq!(names(&parents), ["a0", "a1"]);
    assert!(within(&mut subscription, seconds(60)).await.is_empty(), "the children wait for their parent");
    parents.into_iter().for_each(Delivery::ack);
    assert_eq!(drain(&mut subscription, 30).await, ["b0", "b1", "c0"]);
    assert_eq!(
        (harness.checkpoint("a").await, harness.checkpoint("b").await),
        ("SHARD_END".to_owned(), "after b1".to_owned())
    );
    harness.kinesis.put("b", 1);
    assert_eq!(drain(&mut subscription, 30).await, ["b2"]);
}

// A6, H5
#[tokio::test(start_paused = true)]
async fn a_seek_to_the_horizon_reads_shards_closed_before_a_start_at_the_tip() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    let mut subscription = harness.instance("me").subscribe(latest()).await;
    assert!(drain(&mut subscription, 30).await.is_empty());
    subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    assert_eq!(drain(&mut subscription, 30).await, ["a0", "a1", "b0"]);
}

// A3
#[tokio::test(start_paused = true)]
async fn a_checkpoint_write_during_a_seek_covers_nothing_of_the_new_generation() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 5);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    take(&mut subscription, 5).await.into_iter().for_each(Delivery::ack);
    me.table.script.plan(Rule::on(TableOp::Checkpoint), Fault::Delay(seconds(2)));
    sleep(millis(1_500)).await;
    subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    let first = next(&mut subscription).await;
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a4", "the old write");
    assert_eq!((first.commit().await.unwrap(), harness.checkpoint("a").await.as_str()), (Commit::Stored, "after a0"));
}

// A3, H3, H4
#[tokio::test(start_paused = true)]
async fn a_shard_end_write_during_a_seek_does_not_start_the_children() {
    for position in [KinesisPosition::horizon(), at("a", 0)] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 2);
        harness.kinesis.split("a", ["b", "c"]);
        harness.kinesis.put("b", 1);
        let me = harness.instance("me");
        let mut subscription = me.subscribe(horizon()).await;
        let records = take(&mut subscription, 2).await;
        sleep(seconds(2)).await;
        me.table.script.plan(Rule::on(TableOp::Checkpoint), Fault::Delay(seconds(2)));
        records.into_iter().for_each(Delivery::ack);
        sleep(seconds(1)).await;
        subscription.seeker().seek(position).await.unwrap();
        let again = take(&mut subscription, 2).await;
        assert_eq!(names(&again), ["a0", "a1"]);
        assert!(within(&mut subscription, seconds(60)).await.is_empty());
        assert_eq!(harness.checkpoint("a").await, "SHARD_END", "the old write");
        again.into_iter().for_each(Delivery::ack);
        assert_eq!(drain(&mut subscription, 30).await, ["b0"]);
    }
}

// A6, H3
#[tokio::test(start_paused = true)]
async fn a_seek_back_from_the_end_of_a_shard_stores_no_end() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    harness.kinesis.split("a", ["b", "c"]);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let held = take(&mut subscription, 2).await;
    sleep(seconds(2)).await;
    me.service.script.plan(Rule::on(ServiceOp::GetRecords).always(), Fault::Delay(seconds(5)));
    subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    held.into_iter().for_each(Delivery::ack);
    sleep(seconds(4)).await;
    assert_eq!(harness.checkpoint("a").await, "at a0");
    let again = take(&mut subscription, 2).await;
    assert_eq!(names(&again), ["a0", "a1"]);
    assert_eq!(harness.checkpoint("a").await, "at a0");
}

// A6
#[tokio::test(start_paused = true)]
async fn a_shard_that_opens_after_a_seek_to_latest_skips_what_the_seek_skips() {
    let harness = Harness::new(&["a", "b"]);
    let mut subscription = harness.instance("me").subscribe(horizon().max_leases(1)).await;
    sleep(seconds(5)).await;
    harness.kinesis.put("b", 3);
    sleep(seconds(10)).await;
    subscription.seeker().seek(KinesisPosition::latest()).await.unwrap();
    sleep(seconds(10)).await;
    harness.kinesis.put("b", 1);
    // The instance reads one shard at a time, so it opens `b` once `a` is at its end.
    harness.kinesis.split("a", ["c", "d"]);
    assert_eq!(drain(&mut subscription, 60).await, ["b3"]);
}

// A6
#[tokio::test(start_paused = true)]
async fn a_seek_reaches_a_shard_that_another_instance_has_just_released() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 2);
    harness.kinesis.put("b", 2);
    let mut me = harness.instance("me").subscribe(horizon()).await;
    drain(&mut me, 5).await;
    let other = harness.instance("other").subscribe(horizon()).await;
    sleep(seconds(20)).await;
    let moved = if harness.owner("a").await == "other" { "a" } else { "b" };
    assert_eq!(harness.owner(moved).await, "other");
    other.close().await;
    me.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    let mut again = drain(&mut me, 60).await;
    again.sort();
    assert_eq!(again, ["a0", "a1", "b0", "b1"]);
}
