//! Starting at a position regardless of the checkpoints (R5, R6).

use std::collections::BTreeSet;

use futures::{StreamExt, future::join};
use tokio::time::{Instant, sleep, timeout_at};

use super::kinesis::EPOCH;
use crate::{
    config::position::KinesisPosition,
    delivery::Delivery,
    simulation::harness::{Harness, horizon, latest, millis, name, names, next, range, seconds, take, within},
    subscription::descriptor::KinesisStream,
};

/// The names of these records, each once and in order.
fn distinct(records: &[Delivery]) -> Vec<String> {
    let names: BTreeSet<String> = names(records).into_iter().map(str::to_owned).collect();
    names.into_iter().collect()
}

fn from_the_start() -> KinesisStream {
    latest().start_at(KinesisPosition::horizon())
}

/// A split stream whose records were all read and settled, with two records in each shard.
async fn read_through() -> Harness {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    sleep(seconds(10)).await;
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 2);
    harness.kinesis.put("c", 2);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    for _ in 0..6 {
        next(&mut subscription).await.ack();
    }
    assert!(subscription.close().await.is_clean());
    assert_eq!(harness.checkpoint("a").await, "SHARD_END");
    assert_eq!(harness.checkpoint("b").await, "after b1");
    harness
}

// R6
#[tokio::test(start_paused = true)]
async fn a_forced_start_rereads_ended_shards_parents_first() {
    let harness = read_through().await;
    let mut subscription = harness.instance("me").subscribe(from_the_start()).await;
    let parents = take(&mut subscription, 2).await;
    assert!(within(&mut subscription, seconds(30)).await.is_empty());
    assert_eq!(names(&parents), ["a0", "a1"]);
    parents.into_iter().for_each(Delivery::ack);
    let children = within(&mut subscription, seconds(30)).await;
    assert_eq!(names(&children), ["b0", "b1", "c0", "c1"]);
}

// R6
#[tokio::test(start_paused = true)]
async fn a_replay_reads_every_record_once_and_then_continues_with_new_ones() {
    let harness = read_through().await;
    let mut subscription = harness.instance("me").subscribe(from_the_start()).await;
    for _ in 0..6 {
        next(&mut subscription).await.ack();
    }
    harness.kinesis.put("c", 1);
    let rest = within(&mut subscription, seconds(100)).await;
    assert_eq!(names(&rest), ["c2"]);
    assert_eq!(harness.checkpoint("a").await, "SHARD_END");
    assert_eq!(harness.row("a").await.unwrap().epoch, 2);
}

// A3
#[tokio::test(start_paused = true)]
async fn a_restart_in_the_middle_of_a_replay_continues_the_replay() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 10);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    take(&mut subscription, 10).await.into_iter().for_each(Delivery::ack);
    subscription.close().await;
    let me = harness.instance("me");
    let mut subscription = me.subscribe(from_the_start()).await;
    let replayed = take(&mut subscription, 10).await;
    assert_eq!(names(&replayed), range("a", 0..10));
    replayed.into_iter().take(4).for_each(Delivery::ack);
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a3");
    me.die(subscription);
    let mut subscription = harness.instance("me").subscribe(latest()).await;
    assert_eq!(names(&within(&mut subscription, seconds(5)).await), range("a", 4..10));
}

// R6
#[tokio::test(start_paused = true)]
async fn start_at_a_time_after_a_split_reads_nothing_older() {
    let harness = read_through().await;
    sleep(seconds(10)).await;
    harness.kinesis.put("b", 1);
    let start = latest().start_at(KinesisPosition::timestamp(EPOCH + 15_000));
    let mut subscription = harness.instance("new").subscribe(start).await;
    let records = within(&mut subscription, seconds(30)).await;
    assert_eq!(names(&records), ["b2"]);
}

// R6
#[tokio::test(start_paused = true)]
async fn start_at_a_time_before_a_split_begins_in_the_parent() {
    let harness = Harness::new(&["a"]);
    for _ in 0..4 {
        harness.kinesis.put("a", 1);
        sleep(seconds(1)).await;
    }
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    let start = latest().start_at(KinesisPosition::timestamp(EPOCH + 1_500));
    let mut subscription = harness.instance("me").subscribe(start).await;
    let mut seen = Vec::new();
    for _ in 0..3 {
        let record = next(&mut subscription).await;
        seen.push(name(&record).to_owned());
        record.ack();
    }
    assert_eq!(seen, ["a2", "a3", "b0"]);
}

// E5, R6
#[tokio::test(start_paused = true)]
async fn a_forced_start_covers_shards_of_a_dead_owner_but_no_later_hand_over() {
    for (dies_after, begins) in [(0, "a0"), (60, "a2")] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 3);
        let holder = harness.instance("holder");
        let mut holding = holder.subscribe(horizon()).await;
        let mut held = take(&mut holding, 3).await;
        held.drain(..2).for_each(Delivery::ack);
        sleep(seconds(2)).await;
        let taker = tokio::spawn({
            let me = harness.instance("me");
            async move {
                let mut subscription = me.subscribe(from_the_start()).await;
                let record = next(&mut subscription).await;
                name(&record).to_owned()
            }
        });
        sleep(seconds(dies_after) + millis(100)).await;
        holder.die(holding);
        assert_eq!(taker.await.unwrap(), begins, "after {dies_after} s");
    }
}

// R6
#[tokio::test(start_paused = true)]
async fn a_forced_start_acts_once_even_if_the_lease_is_lost_and_retaken() {
    let harness = read_through().await;
    let mut subscription = harness.instance("me").subscribe(from_the_start()).await;
    for _ in 0..6 {
        next(&mut subscription).await.ack();
    }
    sleep(seconds(2)).await;
    harness.steal("b", "thief").await;
    let mut errors = 0;
    let until = Instant::now() + seconds(60);
    while let Ok(Some(item)) = timeout_at(until, subscription.next()).await {
        assert!(item.is_err(), "{item:?}");
        errors += 1;
    }
    assert_eq!((errors, harness.owner("b").await.as_str()), (1, "me"));
}

// R6
#[tokio::test(start_paused = true)]
async fn a_replay_continues_on_the_instance_that_a_shard_moves_to() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 10);
    harness.kinesis.put("b", 10);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    take(&mut subscription, 20).await.into_iter().for_each(Delivery::ack);
    subscription.close().await;

    let mut first = harness.instance("me").subscribe(from_the_start()).await;
    let held = take(&mut first, 20).await;
    let mut second = harness.instance("other").subscribe(from_the_start()).await;
    sleep(seconds(5)).await;
    // The hand-over waits until the records in flight are settled or given back.
    drop(held);
    let (mut here, there) = join(within(&mut first, seconds(60)), within(&mut second, seconds(60))).await;
    here.extend(there);
    assert_eq!(distinct(&here), [range("a", 0..10), range("b", 0..10)].concat());
    assert_eq!(harness.shares().await, [("me".to_owned(), 1), ("other".to_owned(), 1)].into());
}

// R6, A6
#[tokio::test(start_paused = true)]
async fn a_seek_continues_on_the_instance_that_a_shard_moves_to() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 10);
    harness.kinesis.put("b", 10);
    let mut first = harness.instance("me").subscribe(horizon()).await;
    take(&mut first, 20).await.into_iter().for_each(Delivery::ack);
    sleep(seconds(2)).await;
    first.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    let mut second = harness.instance("other").subscribe(latest()).await;
    sleep(seconds(5)).await;
    let (mut here, there) = join(within(&mut first, seconds(60)), within(&mut second, seconds(60))).await;
    here.extend(there);
    assert_eq!(distinct(&here), [range("a", 0..10), range("b", 0..10)].concat());
}
