//! A thousand shards with pages of the largest size, and a consumer that stands still (A5).

use std::sync::LazyLock;

use bytes::Bytes;
use tokio::time::sleep;

use super::{
    script::{Fault, Rule},
    wire::Op,
};
use crate::{
    error::service::FailureKind,
    simulation::harness::{Ground, Instance, horizon, latest, millis, name, next, seconds},
    subscription::Subscription,
};

const MIB: usize = 1 << 20;
const SHARDS: usize = 1_000;

/// A page of the largest size. All pages share it, because a model with many of them would not fit into memory.
static LARGE: LazyLock<Bytes> = LazyLock::new(|| vec![b'.'; 10 * MIB - 1].into());

fn shards() -> Vec<String> {
    (0..SHARDS).map(|n| format!("{n:03}")).collect()
}

fn ground() -> Ground {
    let shards = shards();
    Ground::new(&shards.iter().map(String::as_str).collect::<Vec<_>>())
}

fn put_one_each(ground: &Ground, data: &Bytes) {
    for shard in shards() {
        ground.kinesis.put_data(&shard, data.clone());
    }
}

fn with_latency(ground: &Ground) -> Instance {
    so_far_away(ground, 20)
}

/// Every read takes this many milliseconds.
fn so_far_away(ground: &Ground, latency: u64) -> Instance {
    let me = ground.instance("me");
    me.wire.script.plan(Rule::on(Op::GetRecords).always(), Fault::Delay(millis(latency)));
    me
}

/// The most bytes that are held during this time.
async fn most_held(subscription: &Subscription, time: u64) -> usize {
    let mut most = 0;
    for _ in 0..time * 10 {
        sleep(millis(100)).await;
        most = most.max(subscription.stats().bytes_held);
    }
    most
}

// A5
#[tokio::test(start_paused = true)]
async fn a_thousand_shards_with_the_largest_pages_open_within_the_bound() {
    let ground = ground();
    (0..2).for_each(|_| put_one_each(&ground, &LARGE));
    let me = with_latency(&ground);
    let mut subscription = me.subscribe(horizon().read_limit(1)).await;
    assert_eq!(most_held(&subscription, 30).await, 60 * MIB, "six pages fit into 64 MiB");
    for _ in 0..200 {
        next(&mut subscription).await.ack();
        assert!(subscription.stats().bytes_held <= 60 * MIB);
    }
    assert_eq!(most_held(&subscription, 10).await, 60 * MIB);
}

// A5
#[tokio::test(start_paused = true)]
async fn shards_at_their_tips_recover_from_an_outage_within_the_bound() {
    let ground = ground();
    let me = with_latency(&ground);
    let subscription = me.subscribe(latest()).await;
    sleep(seconds(2)).await;
    me.wire.script.plan_first(Rule::on(Op::GetRecords).times(20 * SHARDS), Fault::Fail(FailureKind::Throttled));
    sleep(seconds(15)).await;
    put_one_each(&ground, &LARGE);
    assert_eq!(most_held(&subscription, 30).await, 60 * MIB);
}

// A5
#[tokio::test(start_paused = true)]
async fn readers_that_waited_for_a_slow_consumer_continue_within_the_bound() {
    let ground = ground();
    let me = with_latency(&ground);
    let mut subscription = me.subscribe(latest().max_buffered_bytes(8 * MIB)).await;
    sleep(seconds(2)).await;
    ground.kinesis.put_data("000", LARGE.clone());
    assert_eq!(most_held(&subscription, 30).await, 10 * MIB, "one page is let in whatever its size");
    put_one_each(&ground, &LARGE);
    for _ in 0..20 {
        next(&mut subscription).await.ack();
        assert!(most_held(&subscription, 1).await <= 10 * MIB);
    }
}

// A5
#[tokio::test(start_paused = true)]
async fn hanging_reads_hold_their_reserved_bytes_only_for_a_while() {
    let ground = Ground::new(&["a", "b", "c", "d", "e", "f", "g"]);
    ground.kinesis.put("g", 1);
    let me = ground.instance("me");
    me.wire.script.plan(Rule::on(Op::GetRecords).times(6), Fault::Hang);
    let mut subscription = me.subscribe(horizon()).await;
    assert_eq!(name(&next(&mut subscription).await), "g0");
    assert_eq!(ground.millis(), 5_000);
}

// A5, R7
#[tokio::test(start_paused = true)]
async fn idle_shards_are_read_at_their_interval_regardless_of_number_and_latency() {
    let ground = ground();
    let me = so_far_away(&ground, 250);
    let subscription = me.subscribe(latest()).await;
    sleep(seconds(15)).await;
    let since = millis(ground.millis().try_into().unwrap());
    sleep(seconds(60)).await;
    // One every 1.25 s.
    assert_eq!(me.wire.script.count(Op::GetRecords, since), SHARDS * 60 * 4 / 5);
    drop(subscription);
}
