//! Checkpoints at which Kinesis no longer has records (H7).

use tokio::time::{Duration, sleep};

use super::{
    kinesis::OnTrimmed,
    script::{Fault, Rule},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};
use crate::{
    delivery::Delivery,
    error::{ErrorClass, KinesisError, service::FailureKind},
    simulation::harness::{
        Harness, error, horizon, item, latest, millis, name, names, next, range, seconds, take, within,
    },
    subscription::Subscription,
    types::commit::Commit,
};

mod retention;

const DAY: Duration = Duration::from_hours(24);

/// A shard of five records. Two of them are settled, and its lease row says so.
async fn half_read() -> Harness {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 5);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    take(&mut subscription, 5).await.into_iter().take(2).for_each(Delivery::ack);
    subscription.close().await;
    assert_eq!(harness.checkpoint("a").await, "after a1");
    harness
}

/// Takes the next item, which must report a lost checkpoint of shard `a`. Returns the checkpoint and whether the
/// service refused it.
async fn lost(subscription: &mut Subscription) -> (String, bool) {
    let lost = error(subscription).await;
    assert_eq!(lost.class(), ErrorClass::Loss);
    match &lost {
        KinesisError::CheckpointLost { stream, shard, checkpoint, source } => {
            assert_eq!((&**stream, shard.as_str()), ("s", "a"));
            assert!(lost.to_string().starts_with(&format!("stream s, shard a: the checkpoint {checkpoint} no longer")));
            (checkpoint.to_string(), source.is_some())
        }
        _ => panic!("{lost}"),
    }
}

// H7
#[tokio::test(start_paused = true)]
async fn a_refused_checkpoint_is_reported_once_and_reading_restarts_at_the_oldest_record() {
    let harness = half_read().await;
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetShardIterator).times(2), FailureKind::InvalidPosition);
    let mut subscription = me.subscribe(latest()).await;
    assert_eq!(lost(&mut subscription).await, ("a1".to_owned(), true));
    assert_eq!(names(&within(&mut subscription, seconds(60)).await), range("a", 0..5));
    assert_eq!(me.service.places("a"), ["After(a1)", "After(a1)", "Horizon"]);
    assert_eq!(me.service.script.times(ServiceOp::GetShardIterator, "a"), [0, 1, 1].map(seconds));
}

// H7
#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_was_refused_only_once_is_kept() {
    for (kind, reported) in [(FailureKind::InvalidPosition, 0), (FailureKind::Rejected, 1), (FailureKind::Other, 1)] {
        let harness = half_read().await;
        let me = harness.instance("me");
        me.service.fail(Rule::on(ServiceOp::GetShardIterator), kind);
        let mut subscription = me.subscribe(latest()).await;
        for _ in 0..reported {
            let failure = error(&mut subscription).await;
            assert!(matches!(failure, KinesisError::Read { failures: 1, gave_up: false, .. }), "{failure}");
        }
        assert_eq!(names(&within(&mut subscription, seconds(600)).await), range("a", 2..5), "{kind:?}");
        assert_eq!(me.service.places("a"), ["After(a1)", "After(a1)"]);
    }
}

// H7, R10
#[tokio::test(start_paused = true)]
async fn a_request_that_is_refused_for_another_reason_never_costs_the_checkpoint() {
    let harness = half_read().await;
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetShardIterator).times(30), FailureKind::Rejected);
    let mut subscription = me.subscribe(latest()).await;
    let mut records = Vec::new();
    while records.len() < 3 {
        match item(&mut subscription).await.unwrap() {
            Ok(delivery) => records.push(delivery),
            Err(failure) => assert!(matches!(failure, KinesisError::Read { .. }), "{failure}"),
        }
    }
    assert_eq!(names(&records), range("a", 2..5));
    assert!(me.service.places("a").iter().all(|place| place == "After(a1)"));
}

// H7
#[tokio::test(start_paused = true)]
async fn refusals_before_a_good_iterator_do_not_count() {
    let harness = half_read().await;
    let me = harness.instance("me");
    harness.kinesis.iterators_live(millis(500));
    me.service.fail(Rule::on(ServiceOp::GetShardIterator), FailureKind::InvalidPosition);
    me.service.fail(Rule::on(ServiceOp::GetShardIterator).after(1), FailureKind::InvalidPosition);
    me.service.fail(Rule::on(ServiceOp::GetRecords), FailureKind::Throttled);
    let mut subscription = me.subscribe(latest()).await;
    let failure = error(&mut subscription).await;
    assert!(matches!(failure, KinesisError::Read { failures: 2, gave_up: false, .. }), "{failure}");
    assert_eq!(names(&within(&mut subscription, seconds(60)).await), range("a", 2..5));
    assert_eq!(me.service.places("a")[..4], ["After(a1)"; 4]);
}

// H7
#[tokio::test(start_paused = true)]
async fn a_checkpoint_trimmed_while_idle_is_reported_when_the_iterator_expires() {
    let harness = half_read().await;
    let me = harness.instance("me");
    harness.kinesis.trim("a", 1);
    harness.kinesis.iterators_live(millis(500));
    me.service.fail(Rule::on(ServiceOp::GetRecords).times(3), FailureKind::Throttled);
    let subscribing = me.subscribe(latest());
    let mut subscription = subscribing.await;
    harness.kinesis.trim("a", 3);
    assert_eq!(lost(&mut subscription).await, ("a1".to_owned(), true));
    assert_eq!(names(&within(&mut subscription, seconds(60)).await), ["a4"]);
}

// H7
#[tokio::test(start_paused = true)]
async fn a_lost_checkpoint_does_not_stop_other_shards_and_is_replaced_by_a_new_one() {
    let harness = half_read().await;
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.trim("a", 3);
    harness.kinesis.put("c", 1);
    let mut subscription = harness.instance("me").subscribe(latest()).await;
    assert_eq!(lost(&mut subscription).await, ("a1".to_owned(), true));
    let records = take(&mut subscription, 2).await;
    assert_eq!(names(&records), ["a3", "a4"]);
    records.into_iter().for_each(Delivery::ack);
    assert_eq!(name(&next(&mut subscription).await), "c0");
    assert_eq!(harness.checkpoint("a").await, "SHARD_END");
}

// H7
#[tokio::test(start_paused = true)]
async fn an_accepted_checkpoint_that_finds_nothing_is_reported_after_a_minute() {
    let harness = half_read().await;
    harness.kinesis.keeps(DAY, OnTrimmed::Stick);
    harness.kinesis.trim("a", 3);
    let begun = harness.millis();
    let mut subscription = harness.instance("me").subscribe(latest()).await;
    assert_eq!(lost(&mut subscription).await, ("a1".to_owned(), false));
    assert_eq!(harness.millis() - begun, 60_000);
    assert_eq!(names(&within(&mut subscription, seconds(600)).await), ["a3", "a4"]);
}

// H7
#[tokio::test(start_paused = true)]
async fn a_lost_checkpoint_of_an_idle_shard_is_reported_once_also_over_restarts() {
    for on_trimmed in [OnTrimmed::Reject, OnTrimmed::Stick] {
        let harness = half_read().await;
        harness.kinesis.keeps(DAY, on_trimmed);
        harness.kinesis.trim("a", 5);
        let mut subscription = harness.instance("me").subscribe(latest()).await;
        assert_eq!(lost(&mut subscription).await, ("a1".to_owned(), on_trimmed == OnTrimmed::Reject));
        for _ in 0..3 {
            subscription.close().await;
            assert_eq!(harness.checkpoint("a").await, "since 0 ms", "{on_trimmed:?}");
            subscription = harness.instance("me").subscribe(latest()).await;
            assert!(within(&mut subscription, seconds(300)).await.is_empty());
        }
        harness.kinesis.put("a", 1);
        next(&mut subscription).await.commit().await.unwrap();
        assert_eq!(harness.checkpoint("a").await, "after a5");
    }
}

// H7
#[tokio::test(start_paused = true)]
async fn a_lost_checkpoint_is_reported_once_also_if_the_process_dies_or_another_instance_takes_over() {
    let harness = half_read().await;
    harness.kinesis.trim("a", 5);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(latest()).await;
    assert_eq!(lost(&mut subscription).await, ("a1".to_owned(), true));
    sleep(millis(100)).await;
    me.die(subscription);
    let mut others = harness.instance("other").subscribe(latest()).await;
    assert!(within(&mut others, seconds(300)).await.is_empty());
    assert_eq!(harness.owner("a").await, "other");
}

// R8, H7
#[tokio::test(start_paused = true)]
async fn a_record_settled_after_its_position_was_lost_does_not_bring_the_dead_position_back() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.keeps(DAY, OnTrimmed::Stick);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let mut records = take(&mut subscription, 3).await;
    let last = records.pop().unwrap();
    records.into_iter().for_each(Delivery::ack);
    harness.kinesis.iterators_live(millis(400));
    harness.kinesis.trim("a", 3);
    sleep(millis(600)).await;
    harness.kinesis.iterators_live(seconds(300));
    assert_eq!(lost(&mut subscription).await, ("a2".to_owned(), false));
    sleep(millis(100)).await;
    assert_eq!(harness.checkpoint("a").await, "since 0 ms");
    assert_eq!(last.commit().await.unwrap(), Commit::Stored);
    assert_eq!(harness.checkpoint("a").await, "since 0 ms");
    subscription.close().await;
    let mut subscription = me.subscribe(horizon()).await;
    harness.kinesis.put("a", 1);
    assert_eq!(names(&within(&mut subscription, seconds(300)).await), ["a3"]);
}

// H7
#[tokio::test(start_paused = true)]
async fn where_reading_goes_on_is_stored_although_writes_fail() {
    let harness = half_read().await;
    harness.kinesis.trim("a", 5);
    let me = harness.instance("me");
    me.table.fail(Rule::on(TableOp::Checkpoint).times(3));
    let subscription = me.subscribe(latest()).await;
    sleep(seconds(5)).await;
    assert_eq!(me.table.checkpoints("a"), ["since 0 ms"; 4]);
    assert_eq!(harness.checkpoint("a").await, "since 0 ms");
    drop(subscription);
}

// H7
#[tokio::test(start_paused = true)]
async fn where_reading_goes_on_is_stored_after_a_write_that_was_under_way() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.keeps(DAY, OnTrimmed::Stick);
    harness.kinesis.put("a", 2);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let records = take(&mut subscription, 2).await;
    harness.kinesis.iterators_live(millis(400));
    harness.kinesis.trim("a", 2);
    sleep(millis(600)).await;
    harness.kinesis.iterators_live(seconds(300));
    harness.until(58_500).await;
    me.table.script.plan(Rule::on(TableOp::Checkpoint), Fault::Delay(millis(2_900)));
    records.into_iter().for_each(Delivery::ack);
    assert_eq!(lost(&mut subscription).await, ("a1".to_owned(), false));
    sleep(seconds(5)).await;
    assert_eq!(me.table.checkpoints("a"), ["at a0", "after a1", "since 0 ms"]);
    assert_eq!(harness.checkpoint("a").await, "since 0 ms");
}

// R8, H7
#[tokio::test(start_paused = true)]
async fn a_reader_whose_last_record_is_trimmed_while_it_does_not_read_restarts_at_the_oldest_record() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.keeps(DAY, OnTrimmed::Stick);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    take(&mut subscription, 3).await.into_iter().for_each(Delivery::ack);
    harness.kinesis.iterators_live(millis(400));
    harness.kinesis.put("a", 5);
    harness.kinesis.trim("a", 5);
    let trimmed_at = harness.millis();
    sleep(millis(600)).await;
    harness.kinesis.iterators_live(seconds(300));
    assert_eq!(lost(&mut subscription).await, ("a2".to_owned(), false));
    let waited = harness.millis() - trimmed_at;
    assert!((60_000..63_000).contains(&waited), "{waited}");
    assert_eq!(names(&within(&mut subscription, seconds(600)).await), range("a", 5..8));
    assert_eq!(me.service.places("a"), ["Horizon", "After(a2)", "Horizon"]);
}

// H7
#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_lands_at_the_oldest_kept_record_is_not_reported() {
    let harness = half_read().await;
    harness.kinesis.keeps(DAY, OnTrimmed::Land);
    harness.kinesis.trim("a", 4);
    let mut subscription = harness.instance("me").subscribe(latest()).await;
    assert_eq!(names(&within(&mut subscription, seconds(600)).await), ["a4"]);
}

// H7
#[tokio::test(start_paused = true)]
async fn an_idle_shard_with_a_good_checkpoint_is_never_reported() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    harness.kinesis.keeps(DAY, OnTrimmed::Stick);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    next(&mut subscription).await.ack();
    subscription.close().await;
    let mut subscription = me.subscribe(horizon()).await;
    assert!(within(&mut subscription, seconds(1_000)).await.is_empty());
}

// R8, R10
#[tokio::test(start_paused = true)]
async fn a_position_refused_after_reading_starts_a_new_reader_at_the_checkpoint() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 4);
    harness.kinesis.iterators_live(millis(500));
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetShardIterator).after(1).times(2), FailureKind::InvalidPosition);
    let mut subscription = me.subscribe(horizon()).await;
    let mut records = take(&mut subscription, 4).await;
    let held = records.split_off(2);
    records.into_iter().for_each(Delivery::ack);
    let failure = error(&mut subscription).await;
    assert!(matches!(failure, KinesisError::Read { gave_up: true, .. }), "{failure}");
    assert_eq!(names(&within(&mut subscription, seconds(60)).await), ["a2", "a3"]);
    assert_eq!(me.service.places("a")[..4], ["Horizon", "After(a3)", "After(a3)", "After(a1)"]);
    drop(held);
}

// R10
#[tokio::test(start_paused = true)]
async fn a_shard_that_refuses_every_position_is_retried_once_a_second() {
    let harness = half_read().await;
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetShardIterator).always(), FailureKind::InvalidPosition);
    let subscription = me.subscribe(latest()).await;
    sleep(seconds(100)).await;
    let calls = |op| me.service.script.calls(op).len();
    let calls =
        (calls(ServiceOp::GetShardIterator), calls(ServiceOp::ListShards), calls(ServiceOp::DescribeStreamSummary));
    assert!(calls.0 < 110 && calls.1 < 30 && calls.2 < 30, "{calls:?}");
    drop(subscription);
}
