//! Starts during faults, and abrupt ends. No record published after `subscribe` is skipped, and no caller waits
//! forever.

use std::sync::Arc;

use futures::StreamExt;
use tokio::{
    runtime::{Builder, Runtime},
    time::{Duration, Instant, sleep, timeout, timeout_at},
};

use super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};
use crate::{
    connection::Connection,
    error::{KinesisError, service::FailureKind},
    simulation::harness::{Harness, horizon, latest, millis, next, seconds, take},
    subscription::{Subscription, start},
    types::commit::Commit,
};

const HOUR: Duration = Duration::from_hours(1);

/// The records that arrive in this time, in order. Acknowledges each one and ignores errors.
async fn drained(subscription: &mut Subscription, time: Duration) -> Vec<String> {
    let until = Instant::now() + time;
    let mut records = Vec::new();
    while let Ok(Some(item)) = timeout_at(until, subscription.next()).await {
        if let Ok(delivery) = item {
            records.push(delivery.sequence_number().to_string());
            delivery.ack();
        }
    }
    records
}

// L5, H5
#[tokio::test(start_paused = true)]
async fn a_shard_that_closes_while_the_leases_cannot_be_read_is_not_skipped() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    sleep(seconds(5)).await;
    me.table.fail(Rule::on(TableOp::Leases).times(6));
    let mut subscription = me.subscribe(latest()).await;
    sleep(seconds(2)).await;
    harness.kinesis.put("a", 2);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    assert_eq!(drained(&mut subscription, seconds(120)).await, ["a3", "a4", "b0"]);
}

// L5, H5
#[tokio::test(start_paused = true)]
async fn a_shard_that_closes_before_the_first_listing_succeeds_is_not_skipped() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    sleep(seconds(5)).await;
    me.service.fail(Rule::on(ServiceOp::ListShards).times(4), FailureKind::Unreachable);
    let mut subscription = me.subscribe(latest()).await;
    sleep(millis(500)).await;
    harness.kinesis.put("a", 2);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    assert_eq!(drained(&mut subscription, seconds(120)).await, ["a3", "a4", "b0"]);
}

// L9, X1
#[tokio::test(start_paused = true)]
async fn a_panicking_lease_store_ends_the_subscription_and_wakes_all_waiters() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let mut records = take(&mut subscription, 2).await;
    me.table.script.plan(Rule::on(TableOp::Renew).always(), Fault::Panic);
    sleep(seconds(5)).await;
    let item = timeout(HOUR, subscription.next()).await.unwrap();
    assert!(matches!(item, Some(Err(KinesisError::Interrupted { .. }))), "{item:?}");
    assert!(timeout(HOUR, subscription.next()).await.unwrap().is_none());
    assert_eq!(timeout(HOUR, records.remove(0).commit()).await.unwrap().unwrap(), Commit::Superseded);
    let report = timeout(HOUR, subscription.close()).await.unwrap();
    assert_eq!(report.unsaved, ["a".into()]);
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().start_paused(true).build().unwrap()
}

// L9
#[test]
fn a_dropped_runtime_does_not_block_the_next_subscription() {
    let connection = Arc::new(Connection::default());
    let (first, second) = (runtime(), runtime());
    let (me, subscription, closer) = first.block_on(async {
        let me = Harness::new(&["a"]).instance("me");
        connection.open(Arc::clone(&me.service) as Arc<_>);
        let context = me.context(horizon());
        connection.enter(&context).await.unwrap();
        let subscription = start::start(context).await.unwrap();
        let closer = subscription.closer();
        (me, subscription, closer)
    });
    drop(first);
    second.block_on(async {
        let mut subscription = subscription;
        let item = timeout(HOUR, subscription.next()).await.unwrap();
        assert!(matches!(item, Some(Err(KinesisError::Interrupted { .. }))), "{item:?}");
        timeout(HOUR, closer.close()).await.unwrap();
        timeout(HOUR, connection.enter(&me.context(horizon()))).await.unwrap().unwrap();
    });
}

// L7
#[tokio::test(start_paused = true)]
async fn a_closed_connection_accepts_no_subscription() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    let connection = Arc::new(Connection::default());
    connection.open(Arc::clone(&me.service) as Arc<_>);
    let first = me.context(horizon());
    connection.enter(&first).await.unwrap();
    let mut subscription = start::start(first).await.unwrap();
    harness.kinesis.put("a", 1);
    let held = next(&mut subscription).await;
    let closing = tokio::spawn(subscription.close());
    sleep(millis(1)).await;
    let (shared, second) = (Arc::clone(&connection), me.context(horizon()));
    let waiting = tokio::spawn(async move { shared.enter(&second).await });
    sleep(millis(1)).await;
    let shutdown = tokio::spawn(async move { connection.close().await });
    sleep(millis(1)).await;
    held.ack();
    closing.await.unwrap();
    shutdown.await.unwrap();
    assert!(matches!(waiting.await.unwrap(), Err(KinesisError::NotConnected)));
}

// L9
#[tokio::test(start_paused = true)]
async fn a_hanging_describe_does_not_delay_closing() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    next(&mut subscription).await.ack();
    me.service.fail(Rule::on(ServiceOp::ListShards).always(), FailureKind::NotFound);
    let hangs = Fault::FailAfter(seconds(95), FailureKind::Unreachable);
    me.service.script.plan(Rule::on(ServiceOp::DescribeStreamSummary).always(), hangs);
    me.table.script.plan(Rule::on(TableOp::Release).always(), Fault::Delay(millis(20)));
    sleep(seconds(12)).await;
    let at = harness.millis();
    assert!(subscription.close().await.is_clean());
    assert_eq!(harness.millis() - at, 20);
}

// L6
#[tokio::test(start_paused = true)]
async fn a_cancelled_start_takes_no_more_leases() {
    let shards: Vec<String> = (0..200).map(|n| format!("s{n:03}")).collect();
    let shards: Vec<&str> = shards.iter().map(String::as_str).collect();
    let harness = Harness::new(&shards);
    let me = harness.instance("me");
    me.table.script.plan(Rule::on(TableOp::Take).always(), Fault::Delay(seconds(2)));
    let context = me.context(latest());
    assert!(timeout(seconds(1), start::start(Arc::clone(&context))).await.is_err());
    assert!(context.lifecycle.over().await.unsaved.is_empty());
    assert_eq!(me.table.script.calls(TableOp::Take).len(), 64, "those that were under way");
    assert_eq!(harness.millis(), 2_000);
}
