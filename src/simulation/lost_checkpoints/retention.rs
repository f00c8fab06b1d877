//! The retention is read before a silent checkpoint counts as lost (R8, H7).

use tokio::time::sleep;

use super::{
    super::{kinesis::OnTrimmed, script::Rule, scripted_service::ServiceOp},
    DAY, half_read, lost,
};
use crate::{
    delivery::Delivery,
    error::service::FailureKind,
    simulation::harness::{Harness, horizon, latest, millis, names, range, seconds, take, within},
};

/// Lags of empty pages, in milliseconds: from this many hours down to almost nothing.
fn falling_from(hours: i64, pages: i64) -> impl Iterator<Item = i64> {
    (1..=pages).rev().map(move |left| hours * 3_600_000 * left / pages)
}

// R8, H7
#[tokio::test(start_paused = true)]
async fn a_checkpoint_older_than_the_former_retention_is_kept_after_the_retention_was_raised() {
    let still = std::iter::repeat_n(30 * 3_600_000, 1_000);
    for lags in [falling_from(30, 1_000).collect::<Vec<_>>(), still.collect()] {
        let harness = half_read().await;
        harness.kinesis.keeps(DAY, OnTrimmed::Stick);
        let me = harness.instance("me");
        harness.kinesis.gap("a", lags);
        let mut subscription = me.subscribe(latest()).await;
        harness.kinesis.keeps(7 * DAY, OnTrimmed::Stick);
        assert_eq!(names(&within(&mut subscription, seconds(600)).await), range("a", 2..5));
        assert!(harness.millis() > 200_000, "{}", harness.millis());
    }
}

// R8, H7
#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_a_lowered_retention_trimmed_is_reported_after_a_minute() {
    let harness = half_read().await;
    harness.kinesis.keeps(7 * DAY, OnTrimmed::Stick);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords), FailureKind::Throttled);
    let mut subscription = me.subscribe(latest()).await;
    harness.kinesis.keeps(DAY, OnTrimmed::Stick);
    harness.kinesis.trim("a", 3);
    harness.kinesis.iterators_live(millis(500));
    sleep(millis(1_100)).await;
    harness.kinesis.iterators_live(seconds(300));
    assert_eq!(lost(&mut subscription).await, ("a1".to_owned(), false));
    assert_eq!(harness.millis() / 1_000, 61);
    assert_eq!(names(&within(&mut subscription, seconds(600)).await), ["a3", "a4"]);
}

// R8, H7
#[tokio::test(start_paused = true)]
async fn without_the_retention_a_checkpoint_is_not_given_up() {
    let harness = half_read().await;
    harness.kinesis.keeps(DAY, OnTrimmed::Stick);
    harness.kinesis.trim("a", 3);
    let me = harness.instance("me");
    let begun = harness.millis();
    let mut subscription = me.subscribe(latest()).await;
    me.service.fail(Rule::on(ServiceOp::DescribeStreamSummary).times(3), FailureKind::Throttled);
    assert_eq!(lost(&mut subscription).await, ("a1".to_owned(), false));
    assert_eq!(harness.millis() - begun, 60_000 + 3 * 10_000);
}

// R8, H7
#[tokio::test(start_paused = true)]
async fn shards_that_stand_still_together_read_the_retention_once() {
    let shards: Vec<String> = (0..100).map(|n| format!("s{n:02}")).collect();
    let shards: Vec<&str> = shards.iter().map(String::as_str).collect();
    let harness = Harness::new(&shards);
    for shard in &shards {
        harness.kinesis.put(shard, 2);
    }
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    take(&mut subscription, 200).await.into_iter().for_each(Delivery::ack);
    subscription.close().await;
    harness.kinesis.keeps(DAY, OnTrimmed::Stick);
    for shard in &shards {
        harness.kinesis.trim(shard, 2);
    }
    let me = harness.instance("me");
    let subscription = me.subscribe(latest()).await;
    let described = || me.service.script.calls(ServiceOp::DescribeStreamSummary).len();
    sleep(seconds(59)).await;
    let before = described();
    sleep(seconds(3)).await;
    // One for the retention, and one because a lost checkpoint asks whether the stream is still the same.
    assert_eq!(described() - before, 2);
    assert!(shards.iter().all(|shard| me.service.places(shard).last().unwrap() == "Horizon"));
    drop(subscription);
}
