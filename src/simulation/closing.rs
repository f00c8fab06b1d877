//! Closing in good order, and other ways in which a subscription ends (L9, X1).

use std::sync::Arc;

use futures::StreamExt;
use tokio::time::{sleep, timeout};

use super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};
use crate::{
    connection::Connection,
    delivery::Delivery,
    error::{
        KinesisError,
        service::{FailureKind, StoreError},
    },
    simulation::harness::{Harness, error, horizon, item, latest, millis, name, names, next, seconds, take, within},
    subscription::start::start,
    types::commit::Commit,
};

// L9
#[tokio::test(start_paused = true)]
async fn closing_stores_the_checkpoint_and_then_releases_the_lease() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    take(&mut subscription, 3).await.into_iter().for_each(Delivery::ack);
    assert!(subscription.close().await.is_clean());
    assert_eq!(me.table.log("a"), ["Take me", "Checkpoint at a0", "Checkpoint after a2", "Release"]);
    assert!(harness.millis() < 10);
    assert_eq!((harness.owner("a").await.as_str(), harness.checkpoint("a").await.as_str()), ("", "after a2"));
}

// L9
#[tokio::test(start_paused = true)]
async fn closing_ends_the_stream_at_once_and_waits_for_open_deliveries() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let record = next(&mut subscription).await;
    let closer = subscription.closer();
    let closing = tokio::spawn(async move { closer.close().await });
    sleep(millis(1)).await;
    assert!(item(&mut subscription).await.is_none());
    assert!(subscription.next().await.is_none());
    sleep(seconds(5)).await;
    assert_eq!(harness.owner("a").await, "me");
    assert_eq!(record.commit().await.unwrap(), Commit::Stored);
    assert!(closing.await.unwrap().is_clean());
    assert_eq!(harness.millis(), 5_001);
    assert_eq!((harness.owner("a").await.as_str(), harness.checkpoint("a").await.as_str()), ("", "after a0"));
}

// L9
#[tokio::test(start_paused = true)]
async fn deliveries_still_open_after_the_drain_timeout_are_reported() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let mut records = take(&mut subscription, 3).await;
    records.remove(0).ack();
    let stats = subscription.stats_handle();
    let report = subscription.close().await;
    assert_eq!(harness.millis() / 1_000, 30);
    assert!(stats.snapshot().shards.iter().all(|shard| (shard.in_flight, &shard.oldest) == (0, &None)));
    assert_eq!((report.open.len(), report.unsaved.len()), (1, 0));
    let open = &report.open[0];
    assert_eq!((open.shard.as_str(), open.deliveries, open.oldest.as_str()), ("a", 2, "a1"));
    assert_eq!(harness.checkpoint("a").await, "after a0");
    assert_eq!(records.remove(0).commit().await.unwrap(), Commit::Superseded);
}

// L9, H3
#[tokio::test(start_paused = true)]
async fn closing_stores_no_shard_end_over_undelivered_records() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    harness.kinesis.split("a", ["b", "c"]);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let record = next(&mut subscription).await;
    sleep(millis(10)).await;
    let closing = tokio::spawn(subscription.close());
    sleep(millis(10)).await;
    record.ack();
    assert!(closing.await.unwrap().is_clean());
    assert_eq!(harness.checkpoint("a").await, "after a0");
    let mut again = harness.instance("me").subscribe(latest()).await;
    assert_eq!(names(&within(&mut again, seconds(5)).await), ["a1", "a2"]);
}

// L9
#[tokio::test(start_paused = true)]
async fn a_draining_subscription_renews_leases_and_writes_checkpoints() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let (me, other) = (harness.instance("me"), harness.instance("other"));
    let mut subscription = me.subscribe(horizon()).await;
    let mut others = other.subscribe(horizon()).await;
    let mut records = take(&mut subscription, 2).await;
    let closing = tokio::spawn(async move { subscription.close().await });
    sleep(seconds(2)).await;
    records.remove(0).ack();
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a0");
    assert!(within(&mut others, seconds(24)).await.is_empty());
    assert_eq!((harness.owner("a").await.as_str(), harness.row("a").await.unwrap().epoch), ("me", 1));
    assert_eq!(records.remove(0).commit().await.unwrap(), Commit::Stored);
    assert!(closing.await.unwrap().is_clean());
}

// L9
#[tokio::test(start_paused = true)]
async fn a_failing_store_while_closing_is_reported_and_blocks_nobody_forever() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    next(&mut subscription).await.ack();
    me.table.script.plan(Rule::everything(), Fault::Hang);
    let report = subscription.close().await;
    assert_eq!(report.unsaved, ["a".into()]);
    assert!(harness.millis() <= 40_100, "{}", harness.millis());
}

// L9
#[tokio::test(start_paused = true)]
async fn closing_releases_a_lease_whose_take_lost_its_response() {
    let lost = || StoreError::new("no answer");
    for fault in [Fault::LoseAnswer(lost()), Fault::Fail(lost())] {
        let harness = Harness::new(&["a", "b"]);
        let me = harness.instance("me");
        me.table.script.plan(Rule::on(TableOp::Take).of("a"), fault);
        let subscription = me.subscribe(latest()).await;
        assert!(subscription.close().await.is_clean());
        assert_eq!(me.table.log("a"), ["Take me", "Take me", "Release"]);
        assert_eq!((harness.owner("a").await, harness.owner("b").await), (String::new(), String::new()));
        assert!(harness.millis() < 10);
    }
}

// L9, E2
#[tokio::test(start_paused = true)]
async fn closing_does_not_release_a_lease_that_another_instance_took() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    me.table.script.plan(Rule::on(TableOp::Take), Fault::Fail(StoreError::new("no answer")));
    let subscription = me.subscribe(latest()).await;
    harness.steal("a", "other").await;
    assert!(subscription.close().await.is_clean());
    assert_eq!((me.table.log("a"), harness.owner("a").await.as_str()), (vec!["Take me".to_owned(); 2], "other"));
}

// L9
#[tokio::test(start_paused = true)]
async fn a_hanging_take_delays_closing_by_one_renew_interval() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    me.table.script.plan(Rule::on(TableOp::Take).always(), Fault::Hang);
    let subscription = me.subscribe(latest()).await;
    assert!(subscription.close().await.is_clean());
    assert_eq!((me.table.log("a"), harness.millis() / 100), (vec!["Take me".to_owned(); 2], 2 * 30));
}

// X1
#[tokio::test(start_paused = true)]
async fn a_deleted_stream_ends_the_subscription_after_an_error_that_says_so() {
    let harness = Harness::new(&["a", "b"]);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(latest()).await;
    sleep(millis(2_500)).await;
    harness.kinesis.delete();
    let gone = error(&mut subscription).await;
    assert!(matches!(gone, KinesisError::StreamGone { .. }), "{gone}");
    assert!(item(&mut subscription).await.is_none());
    assert!(item(&mut subscription).await.is_none());
    sleep(seconds(1)).await;
    assert_eq!((harness.owner("a").await, harness.owner("b").await), (String::new(), String::new()));
}

// X1
#[tokio::test(start_paused = true)]
async fn a_subscription_that_holds_no_shard_is_pending_and_not_ended() {
    let harness = Harness::new(&["a"]);
    let first = harness.instance("me").subscribe(latest()).await;
    let mut second = harness.instance("other").subscribe(latest()).await;
    assert!(within(&mut second, seconds(60)).await.is_empty());
    drop(first);
    sleep(seconds(3)).await;
    harness.kinesis.put("a", 1);
    assert_eq!(names(&within(&mut second, seconds(3)).await), ["a0"]);
}

// L9
#[tokio::test(start_paused = true)]
async fn pending_redeliveries_do_not_delay_closing() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    for record in take(&mut subscription, 2).await {
        record.nack();
    }
    let report = subscription.close().await;
    assert_eq!((harness.millis() < 10, report.open[0].deliveries), (true, 2));
    let mut again = harness.instance("me").subscribe(horizon()).await;
    let record = next(&mut again).await;
    assert_eq!((name(&record), record.attempt()), ("a0", 1));
}

// L9
#[tokio::test(start_paused = true)]
async fn every_call_of_close_returns_the_report() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let record = next(&mut subscription).await;
    let (one, two) = (subscription.closer(), subscription.closer());
    let (first, second) = tokio::join!(one.close(), two.close());
    assert_eq!(first, second);
    assert_eq!(first, one.close().await);
    assert_eq!(first.open.len(), 1);
    drop(record);
}

// L9
#[tokio::test(start_paused = true)]
async fn a_cancelled_subscribe_releases_its_leases() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::GetShardIterator).always(), Fault::Hang);
    assert!(timeout(seconds(5), me.subscribe(latest())).await.is_err());
    sleep(millis(10)).await;
    assert_eq!(harness.owner("a").await, "");
    assert_eq!(me.table.script.calls(TableOp::Release).len(), 1);
}

// L7, L4
#[tokio::test(start_paused = true)]
async fn shutdown_closes_every_subscription_and_lets_it_drain() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let me = harness.instance("me");
    let connection = Connection::default();
    connection.open(Arc::clone(&me.service) as Arc<_>);
    let context = me.context(horizon());
    connection.enter(&context).await.unwrap();
    let mut subscription = start(context).await.unwrap();
    let refused = connection.enter(&me.context(horizon())).await.unwrap_err();
    assert!(matches!(refused, KinesisError::AlreadySubscribed { .. }));
    let record = next(&mut subscription).await;
    let worker = async {
        sleep(seconds(3)).await;
        assert!(item(&mut subscription).await.is_none());
        assert_eq!(record.commit().await.unwrap(), Commit::Stored);
    };
    tokio::join!(connection.close(), worker);
    assert_eq!((harness.millis(), harness.owner("a").await.as_str()), (3_000, ""));
    assert!(matches!(connection.service(), Err(KinesisError::NotConnected)));
}

// L4
#[tokio::test(start_paused = true)]
async fn the_next_subscription_waits_for_a_closing_one() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    let connection = Connection::default();
    connection.open(Arc::clone(&me.service) as Arc<_>);
    let context = me.context(horizon());
    connection.enter(&context).await.unwrap();
    let mut subscription = start(context).await.unwrap();
    let record = next(&mut subscription).await;
    let closing = tokio::spawn(subscription.close());
    let settling = tokio::spawn(async move {
        sleep(seconds(7)).await;
        record.ack();
    });
    sleep(millis(1)).await;
    connection.enter(&me.context(horizon())).await.unwrap();
    assert_eq!((harness.millis(), harness.owner("a").await.as_str()), (7_000, ""));
    assert!(closing.await.unwrap().is_clean());
    settling.await.unwrap();
}

// L4
#[tokio::test(start_paused = true)]
async fn a_missing_stream_fails_before_any_other_call() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.delete();
    let me = harness.instance("me");
    let refused = start(me.context(latest())).await.unwrap_err();
    assert!(matches!(refused, KinesisError::Stream { .. }), "{refused}");
    me.service.fail(Rule::on(ServiceOp::DescribeStreamSummary), FailureKind::Denied);
    let denied = start(me.context(latest())).await.unwrap_err();
    assert!(matches!(denied, KinesisError::Denied { .. }), "{denied}");
    assert_eq!(me.service.script.calls(ServiceOp::ListShards), []);
}
