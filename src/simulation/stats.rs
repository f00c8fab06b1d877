//! The stats of a running subscription (L8), and pipelines that continue after transient errors (X2).

use futures::{StreamExt, TryStreamExt};
use tokio::time::sleep;

use super::{script::Rule, scripted_service::ServiceOp};
use crate::{
    budget::RECORD_OVERHEAD,
    config::position::Checkpoint,
    delivery::Delivery,
    error::{KinesisError, service::FailureKind},
    simulation::harness::{Harness, horizon, item, latest, millis, next, seconds, take},
    state::{
        health::{Health, Stall},
        stats::{ShardState, ShardStats, SubscriptionState},
    },
    subscription::Subscription,
};

fn shard(subscription: &Subscription, shard: &str) -> ShardStats {
    let shards = subscription.stats().shards;
    shards.into_iter().find(|stats| stats.shard.as_str() == shard).unwrap()
}

// L8
#[tokio::test(start_paused = true)]
async fn a_snapshot_shows_what_each_shard_does() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 6);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).of("a").times(2), FailureKind::Throttled);
    me.service.fail(Rule::on(ServiceOp::GetShardIterator).of("b"), FailureKind::Other);
    let mut subscription = me.subscribe(horizon().read_limit(4)).await;
    assert!(item(&mut subscription).await.unwrap().is_err());
    let mut records = take(&mut subscription, 4).await;
    sleep(seconds(3)).await;
    let a = shard(&subscription, "a");
    assert_eq!((a.state, a.owner.as_deref(), a.epoch), (ShardState::Reading, Some("me"), Some(1)));
    assert_eq!((a.in_flight, a.reads, a.throttles, a.redeliveries), (4, 2, 2, 0));
    assert_eq!(a.oldest, Some(("a0".into(), seconds(3))));
    assert_eq!(a.checkpoint, Some((Checkpoint::At("a0".into()), seconds(3))));
    // The reader waits with its second page, so its last response grows old.
    assert_eq!((a.behind, a.last_read, a.unanswered), (Some(millis(2_999)), Some(millis(2_999)), None));
    assert_eq!((a.records, a.bytes, a.acked, a.given_back), (6, 6 * "ka0".len() as u64, 0, 0));
    assert!(a.last_error.is_none());
    assert!(matches!(shard(&subscription, "b").last_error, Some((KinesisError::Read { failures: 1, .. }, _))));
    assert_eq!(subscription.stats().bytes_held, 2 * ("ka0".len() + RECORD_OVERHEAD));
    records.remove(0).ack();
    sleep(millis(1_500)).await;
    let a = shard(&subscription, "a");
    assert_eq!((a.in_flight, a.oldest.unwrap().0, a.acked), (3, "a1".into(), 1));
    assert!(matches!(a.checkpoint, Some((Checkpoint::After(number), _)) if number.as_str() == "a0"));
    records.remove(0).nack();
    assert_eq!((shard(&subscription, "a").given_back, shard(&subscription, "a").in_flight), (1, 3));
    let stats = subscription.stats();
    assert_eq!((&*stats.consumer, &*stats.owner, stats.state), ("test", "me", SubscriptionState::Running));
    assert_eq!((stats.errors.transient, stats.errors.fatal, stats.health().as_str()), (1, 0, "ok"));
}

// L8, R9
#[tokio::test(start_paused = true)]
async fn a_shard_that_is_throttled_for_good_is_stalled_after_thirty_seconds_and_its_lag_grows() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    harness.kinesis.put("a", 1);
    next(&mut subscription).await.ack();
    sleep(seconds(1)).await;
    me.service.fail(Rule::on(ServiceOp::GetRecords).times(1_000), FailureKind::Throttled);
    let stats = subscription.stats_handle();
    let pulling = tokio::spawn(async move { subscription.next().await });
    sleep(seconds(30)).await;
    assert_eq!(stats.snapshot().health().as_str(), "ok");
    sleep(seconds(3)).await;
    let Health::Stalled(Stall::Unanswered { shard, error: None, .. }) = stats.snapshot().health() else {
        panic!("{}", stats.snapshot().health());
    };
    let lag = stats.snapshot().shards[0].behind.unwrap();
    assert_eq!((shard.as_str(), lag.as_secs()), ("a", 33));
    pulling.abort();
}

// L8
#[tokio::test(start_paused = true)]
async fn the_state_of_a_shard_follows_its_lifecycle() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 1);
    harness.kinesis.close("a");
    harness.kinesis.put("b", 1);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let records = take(&mut subscription, 2).await;
    sleep(seconds(1)).await;
    assert_eq!(shard(&subscription, "a").state, ShardState::Ending);
    let watch = subscription.stats_handle();
    let closing = tokio::spawn(subscription.close());
    sleep(millis(1)).await;
    assert!(watch.snapshot().shards.iter().all(|shard| shard.state == ShardState::Draining));
    records.into_iter().for_each(Delivery::ack);
    closing.await.unwrap();
    let states: Vec<_> = watch.snapshot().shards.iter().map(|shard| (shard.state, shard.epoch)).collect();
    assert_eq!(states, [(ShardState::Ended, None), (ShardState::Released, None)]);
}

// X2
#[tokio::test(start_paused = true)]
async fn a_tolerant_pipeline_survives_a_failure_a_throttle_and_a_lost_lease() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).after(2), FailureKind::Other);
    me.service.fail(Rule::on(ServiceOp::GetRecords).after(3), FailureKind::Throttled);
    let subscription = me.subscribe(latest()).await;
    let closer = subscription.closer();
    let pipeline = tokio::spawn(
        subscription.tolerant().try_fold(0, async |sum, delivery| delivery.commit().await.map(|_| sum + 1)),
    );
    for n in 0..40 {
        harness.kinesis.put("a", 1);
        sleep(seconds(1)).await;
        if n == 10 {
            harness.steal("a", "thief").await;
        }
    }
    sleep(seconds(1)).await;
    assert_eq!(harness.checkpoint("a").await, "after a39");
    closer.close().await;
    let sum: usize = pipeline.await.unwrap().unwrap();
    assert!((40..=42).contains(&sum), "{sum}");
}

// L8
#[tokio::test(start_paused = true)]
async fn a_lagging_shard_shows_its_lag() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    sleep(seconds(7)).await;
    harness.kinesis.put("a", 1);
    sleep(seconds(3)).await;
    let mut subscription = harness.instance("me").subscribe(horizon().read_limit(1).max_in_flight(1)).await;
    let record = next(&mut subscription).await;
    assert_eq!(shard(&subscription, "a").behind, Some(seconds(3)));
    drop(record);
}
