//! Redelivered records (A7).

use tokio::time::sleep;

use crate::{
    delivery::Delivery,
    error::KinesisError,
    simulation::harness::{Harness, horizon, item, millis, name, names, next, seconds, take, within},
    types::commit::Commit,
};

// A7
#[tokio::test(start_paused = true)]
async fn the_pause_doubles_from_a_second_to_a_minute_and_attempts_are_counted() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let mut record = next(&mut subscription).await;
    for (attempt, pause) in (2..).zip([1, 2, 4, 8, 16, 32, 60, 60, 60]) {
        let before = harness.millis();
        record.nack();
        record = next(&mut subscription).await;
        assert_eq!((name(&record), record.attempt(), record.epoch()), ("a0", attempt, 1));
        assert_eq!(harness.millis() - before, pause * 1_000);
    }
    assert_eq!(record.commit().await.unwrap(), Commit::Stored);
    assert_eq!(subscription.stats().shards[0].redeliveries, 9);
}

// A7
#[tokio::test(start_paused = true)]
async fn the_rest_of_the_shard_continues_during_the_pause() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 5);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    next(&mut subscription).await.nack();
    let rest = take(&mut subscription, 4).await;
    assert_eq!((names(&rest), harness.millis() < 10), (vec!["a1", "a2", "a3", "a4"], true));
    assert_eq!(name(&next(&mut subscription).await), "a0");
}

// A7, A3
#[tokio::test(start_paused = true)]
async fn a_checkpoint_never_passes_a_pending_redelivery() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 4);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let mut records = take(&mut subscription, 4).await;
    records.remove(2).nack();
    records.into_iter().for_each(Delivery::ack);
    sleep(seconds(20)).await;
    assert_eq!(harness.checkpoint("a").await, "after a1");
    next(&mut subscription).await.ack();
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a3");
}

// A7
#[tokio::test(start_paused = true)]
async fn records_due_at_the_same_time_are_redelivered_in_the_order_of_their_return() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 5);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    take(&mut subscription, 5).await.into_iter().rev().for_each(Delivery::nack);
    let again = within(&mut subscription, seconds(30)).await;
    assert_eq!(names(&again), ["a4", "a3", "a2", "a1", "a0"]);
}

// A7
#[tokio::test(start_paused = true)]
async fn a_redelivery_wakes_a_stream_that_another_task_polls() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let record = next(&mut subscription).await;
    let waiting = tokio::spawn(async move {
        let again = next(&mut subscription).await;
        again.attempt()
    });
    sleep(millis(2_500)).await;
    record.nack();
    assert_eq!(waiting.await.unwrap(), 2);
    assert_eq!(harness.millis() / 10, 350);
}

// A7
#[tokio::test(start_paused = true)]
async fn a_lost_lease_drops_pending_redeliveries_unsettled() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let mut records = take(&mut subscription, 2).await;
    let held = records.pop().unwrap();
    sleep(millis(2_900)).await;
    records.pop().unwrap().nack();
    harness.steal("a", "thief").await;
    assert!(matches!(item(&mut subscription).await, Some(Err(KinesisError::LeaseLost { .. }))));
    drop(held);
    let again = take(&mut subscription, 2).await;
    assert_eq!(names(&again), ["a0", "a1"]);
    assert!(again.iter().all(|record| (record.attempt(), record.epoch()) == (1, 3)));
    assert!(within(&mut subscription, seconds(100)).await.is_empty());
}
