//! Where and when shards are opened (L5, R5).

use tokio::time::sleep;

use super::{
    kinesis::EPOCH,
    script::{Fault, Rule},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};
use crate::{
    config::position::KinesisPosition,
    delivery::Delivery,
    error::{KinesisError, service::FailureKind},
    simulation::harness::{Harness, error, horizon, latest, millis, names, next, seconds, within},
};

/// A harness with a shard that holds some old records.
async fn old() -> Harness {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 5);
    sleep(seconds(5)).await;
    harness
}

// L5
#[tokio::test(start_paused = true)]
async fn a_record_put_right_after_subscribing_is_read() {
    let harness = old().await;
    let mut subscription = harness.instance("me").subscribe(latest()).await;
    harness.kinesis.put("a", 1);
    assert_eq!(names(&within(&mut subscription, seconds(5)).await), ["a5"]);
}

// L5
#[tokio::test(start_paused = true)]
async fn a_shard_whose_first_iterator_failed_opens_at_the_time_of_subscribing() {
    let harness = old().await;
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetShardIterator).times(4), FailureKind::Other);
    let mut subscription = me.subscribe(latest()).await;
    harness.kinesis.put("a", 1);
    sleep(millis(4_500)).await;
    assert!(matches!(error(&mut subscription).await, KinesisError::Read { failures: 4, .. }));
    assert_eq!(names(&within(&mut subscription, seconds(5)).await), ["a5"]);
}

// L5
#[tokio::test(start_paused = true)]
async fn a_failure_in_the_first_pass_does_not_move_the_tip() {
    for broken in ["listing", "leases", "take"] {
        let harness = old().await;
        let me = harness.instance("me");
        match broken {
            "listing" => me.service.fail(Rule::on(ServiceOp::ListShards), FailureKind::Other),
            "leases" => me.table.fail(Rule::on(TableOp::Leases)),
            _ => me.table.fail(Rule::on(TableOp::Take)),
        }
        let mut subscription = me.subscribe(latest()).await;
        harness.kinesis.put("a", 1);
        let first = error(&mut subscription).await;
        assert!(matches!(first, KinesisError::List { .. } | KinesisError::Store { .. }), "{first}");
        assert_eq!(names(&within(&mut subscription, seconds(20)).await), ["a5"], "{broken}");
    }
}

// L5, H4
#[tokio::test(start_paused = true)]
async fn an_urgent_listing_is_retried_within_a_second() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::ListShards).times(2), FailureKind::Throttled);
    let mut subscription = me.subscribe(horizon()).await;
    assert!(matches!(error(&mut subscription).await, KinesisError::List { .. }));
    assert!(matches!(error(&mut subscription).await, KinesisError::List { .. }));
    let parent = next(&mut subscription).await;
    assert_eq!(harness.millis(), 2_000);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    sleep(millis(1_500)).await;
    me.service.fail(Rule::on(ServiceOp::ListShards).times(2), FailureKind::Throttled);
    parent.ack();
    assert!(matches!(error(&mut subscription).await, KinesisError::List { .. }));
    assert!(matches!(error(&mut subscription).await, KinesisError::List { .. }));
    assert_eq!((next(&mut subscription).await.sequence_number().as_str(), harness.millis()), ("b0", 5_500));
}

// L5
#[tokio::test(start_paused = true)]
async fn the_first_iterators_are_fetched_concurrently_and_before_subscribe_returns() {
    let harness = Harness::new(&["a", "b", "c"]);
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::GetShardIterator).always(), Fault::Delay(millis(100)));
    let subscription = me.subscribe(latest()).await;
    assert_eq!(harness.millis(), 100);
    assert_eq!(me.service.script.calls(ServiceOp::GetShardIterator).len(), 3);
    drop(subscription);
}

// R5
#[tokio::test(start_paused = true)]
async fn initial_position_applies_to_new_consumers_and_start_at_to_all() {
    let harness = old().await;
    let mut first = harness.instance("me").subscribe(horizon()).await;
    for _ in 0..3 {
        next(&mut first).await.ack();
    }
    first.close().await;
    let mut second = harness.instance("me").subscribe(horizon()).await;
    assert_eq!(names(&within(&mut second, seconds(1)).await), ["a3", "a4"]);
    second.close().await;
    let mut third = harness.instance("me").subscribe(latest().start_at(KinesisPosition::horizon())).await;
    assert_eq!(names(&within(&mut third, seconds(1)).await), ["a0", "a1", "a2", "a3", "a4"]);
}

// R6
#[tokio::test(start_paused = true)]
async fn start_at_a_record_moves_only_its_shard() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 3);
    harness.kinesis.put("b", 3);
    sleep(seconds(5)).await;
    let me = harness.instance("me");
    let mut subscription = me.subscribe(latest().start_at(KinesisPosition::sequence("a", "a1"))).await;
    assert_eq!(names(&within(&mut subscription, seconds(5)).await), ["a1", "a2"]);
}

// R2
#[tokio::test(start_paused = true)]
async fn a_timestamp_starts_at_the_first_record_that_arrived_then_or_later() {
    let harness = Harness::new(&["a"]);
    for _ in 0..5 {
        harness.kinesis.put("a", 1);
        sleep(seconds(1)).await;
    }
    let me = harness.instance("me");
    let from = KinesisPosition::timestamp(EPOCH + 1_500);
    let mut subscription = me.subscribe(latest().initial_position(from)).await;
    assert_eq!(names(&within(&mut subscription, seconds(5)).await), ["a2", "a3", "a4"]);
}

// H5
#[tokio::test(start_paused = true)]
async fn under_latest_a_closed_shard_next_to_open_ones_is_skipped_silently() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 5);
    harness.kinesis.split("a", ["b", "c"]);
    sleep(seconds(5)).await;
    let me = harness.instance("me");
    let mut subscription = me.subscribe(latest()).await;
    harness.kinesis.put("b", 1);
    harness.kinesis.put("c", 1);
    let records = within(&mut subscription, seconds(60)).await;
    assert_eq!(names(&records), ["b0", "c0"]);
    assert_eq!(harness.row("a").await, None);
    assert_eq!(me.service.places("b").len() + me.service.places("c").len(), 2);
    records.into_iter().for_each(Delivery::ack);
}

// L5, H4
#[tokio::test(start_paused = true)]
async fn a_slow_first_iterator_of_a_later_shard_blocks_no_other_shard() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(latest()).await;
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.split("c", ["d", "e"]);
    harness.kinesis.put("d", 1);
    let fault = Fault::FailAfter(seconds(30), FailureKind::Unreachable);
    me.service.script.plan(Rule::on(ServiceOp::GetShardIterator).of("b"), fault);
    let record = next(&mut subscription).await;
    assert_eq!((record.sequence_number().as_str(), harness.millis()), ("d0", 1_000));
    harness.kinesis.put("b", 1);
    assert!(matches!(error(&mut subscription).await, KinesisError::Read { failures: 1, .. }));
    assert_eq!(names(&within(&mut subscription, seconds(2)).await), ["b0"]);
}
