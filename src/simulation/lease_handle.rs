//! The lease handle that long work checks (E2, E3).

use futures::{FutureExt, StreamExt};
use tokio::time::{sleep, timeout};

use super::script::Rule;
use crate::simulation::harness::{Harness, horizon, next, seconds};

// E2, E3
#[tokio::test(start_paused = true)]
async fn a_lease_handle_reports_the_lease_as_held_while_it_is_renewed() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let record = next(&mut subscription).await;
    let lease = record.lease();
    assert_eq!((lease.is_held(), lease.epoch(), lease.shard().as_str()), (true, 1, "a"));
    assert!(timeout(seconds(600), lease.lost()).await.is_err());
    record.ack();
    assert!(lease.is_held(), "it outlives its delivery");
    drop(subscription);
    lease.lost().await;
    assert!(!lease.is_held());
}

// E3
#[tokio::test(start_paused = true)]
async fn an_unrenewed_lease_is_lost_at_its_deadline_and_waiters_are_woken() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let lease = next(&mut subscription).await.lease();
    let before = harness.millis();
    me.table.fail(Rule::everything());
    lease.lost().await;
    assert!((10_000..10_010).contains(&(harness.millis() - before)), "{}", harness.millis());
    assert!(!lease.is_held());
    assert!(lease.lost().now_or_never().is_some(), "ready at once");
}

// E2
#[tokio::test(start_paused = true)]
async fn a_lease_handle_of_an_old_epoch_stays_lost_when_the_shard_returns() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let old = next(&mut subscription).await.lease();
    harness.steal("a", "thief").await;
    old.lost().await;
    let stolen = harness.millis();
    let new = loop {
        if let Some(Ok(record)) = subscription.next().await {
            break record.lease();
        }
    };
    assert!(harness.millis() >= stolen + 5_000);
    assert_eq!((old.is_held(), new.is_held(), new.epoch()), (false, true, 3));
    sleep(seconds(60)).await;
    assert_eq!((old.is_held(), new.is_held()), (false, true));
}

// E5
#[tokio::test(start_paused = true)]
async fn a_lease_in_hand_over_is_held_until_its_deliveries_are_settled() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 1);
    let mut a = harness.instance("A").subscribe(horizon()).await;
    let record = next(&mut a).await;
    let b = harness.instance("B").subscribe(horizon()).await;
    let lease = record.lease();
    sleep(seconds(20)).await;
    assert!(lease.is_held());
    record.ack();
    lease.lost().await;
    sleep(seconds(4)).await;
    assert_eq!(harness.owner("a").await, "B");
    drop((a, b));
}
