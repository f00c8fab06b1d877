//! A thousand shards with pages of the largest size, and a consumer that stands still (A5).

use std::sync::LazyLock;

use bytes::Bytes;
use tokio::time::sleep;

use super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
};
use crate::{
    budget::RECORD_OVERHEAD,
    error::service::FailureKind,
    simulation::harness::{Harness, Instance, horizon, latest, millis, name, next, seconds},
    subscription::Subscription,
};

const MIB: usize = 1 << 20;
const SHARDS: usize = 1_000;

/// The bytes of a page of the largest size, with one record.
const PAGE: usize = 10 * MIB + RECORD_OVERHEAD;

/// The record of such a page. All pages share it, because a model with many of them would not fit into memory.
static LARGE: LazyLock<Bytes> = LazyLock::new(|| vec![b'.'; 10 * MIB - 1].into());

fn shards() -> Vec<String> {
    (0..SHARDS).map(|n| format!("{n:03}")).collect()
}

fn harness() -> Harness {
    let shards = shards();
    Harness::new(&shards.iter().map(String::as_str).collect::<Vec<_>>())
}

fn put_one_each(harness: &Harness, data: &Bytes) {
    for shard in shards() {
        harness.kinesis.put_data(&shard, data.clone());
    }
}

fn with_latency(harness: &Harness) -> Instance {
    so_far_away(harness, 20)
}

/// Every read takes this many milliseconds.
fn so_far_away(harness: &Harness, latency: u64) -> Instance {
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::GetRecords).always(), Fault::Delay(millis(latency)));
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
    let harness = harness();
    (0..2).for_each(|_| put_one_each(&harness, &LARGE));
    let me = with_latency(&harness);
    let mut subscription = me.subscribe(horizon().read_limit(1)).await;
    assert_eq!(most_held(&subscription, 30).await, 6 * PAGE, "six pages fit into 64 MiB");
    for _ in 0..200 {
        next(&mut subscription).await.ack();
        assert!(subscription.stats().bytes_held <= 6 * PAGE);
    }
    assert_eq!(most_held(&subscription, 10).await, 6 * PAGE);
}

// A5
#[tokio::test(start_paused = true)]
async fn shards_at_their_tips_recover_from_an_outage_within_the_bound() {
    let harness = harness();
    let me = with_latency(&harness);
    let subscription = me.subscribe(latest()).await;
    sleep(seconds(2)).await;
    me.service
        .script
        .plan_first(Rule::on(ServiceOp::GetRecords).times(20 * SHARDS), Fault::Fail(FailureKind::Throttled));
    sleep(seconds(15)).await;
    put_one_each(&harness, &LARGE);
    assert_eq!(most_held(&subscription, 30).await, 6 * PAGE);
}

// A5
#[tokio::test(start_paused = true)]
async fn readers_that_waited_for_a_slow_consumer_continue_within_the_bound() {
    let harness = harness();
    let me = with_latency(&harness);
    let mut subscription = me.subscribe(latest().max_buffered_bytes(8 * MIB)).await;
    sleep(seconds(2)).await;
    harness.kinesis.put_data("000", LARGE.clone());
    assert_eq!(most_held(&subscription, 30).await, PAGE, "one page is read regardless of its size");
    put_one_each(&harness, &LARGE);
    for _ in 0..20 {
        next(&mut subscription).await.ack();
        assert!(most_held(&subscription, 1).await <= PAGE);
    }
}

// A5
#[tokio::test(start_paused = true)]
async fn hanging_reads_hold_their_reserved_bytes_only_for_a_while() {
    let harness = Harness::new(&["a", "b", "c", "d", "e", "f", "g"]);
    harness.kinesis.put("g", 1);
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::GetRecords).times(6), Fault::Hang);
    let mut subscription = me.subscribe(horizon()).await;
    assert_eq!(name(&next(&mut subscription).await), "g0");
    assert_eq!(harness.millis(), 5_000);
}

// A5
#[tokio::test(start_paused = true)]
async fn on_a_slow_line_the_bound_is_exceeded_by_one_page_at_most() {
    for (shards, latency) in [(8, 1_000), (8, 28_000), (32, 28_000)] {
        let names: Vec<String> = (0..shards).map(|n| format!("{n:03}")).collect();
        let harness = Harness::new(&names.iter().map(String::as_str).collect::<Vec<_>>());
        for shard in &names {
            (0..3).for_each(|_| harness.kinesis.put_data(shard, LARGE.clone()));
        }
        let me = so_far_away(&harness, latency);
        let stream = horizon().read_limit(1).max_buffered_bytes(32 * MIB);
        let mut subscription = me.subscribe(stream).await;
        let most = most_held(&subscription, 100).await;
        assert!(most <= 32 * MIB + PAGE, "{shards} shards, {latency} ms: {most}");
        for _ in 0..shards {
            next(&mut subscription).await.ack();
            let most = most_held(&subscription, 7).await;
            assert!(most <= 32 * MIB + PAGE, "{shards} shards, {latency} ms: {most}");
        }
    }
}

// A5, R7
#[tokio::test(start_paused = true)]
async fn idle_shards_are_read_at_their_interval_regardless_of_number_and_latency() {
    let harness = harness();
    let me = so_far_away(&harness, 250);
    let subscription = me.subscribe(latest()).await;
    sleep(seconds(15)).await;
    let since = millis(harness.millis().try_into().unwrap());
    sleep(seconds(60)).await;
    // One every 1.25 s.
    assert_eq!(me.service.script.count(ServiceOp::GetRecords, since), SHARDS * 60 * 4 / 5);
    drop(subscription);
}
