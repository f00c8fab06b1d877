//! Seeks that fail, and failures after a seek (A6, R10, X2).

use futures::{FutureExt, TryStreamExt};
use tokio::time::sleep;

use super::{
    super::{
        script::{Fault, Rule},
        scripted_service::ServiceOp,
        scripted_table::TableOp,
    },
    at, drain, records,
};

use crate::{
    config::position::KinesisPosition,
    error::{
        ErrorClass, KinesisError,
        service::{FailureKind, StoreError},
    },
    simulation::harness::{Harness, beside_another, error, horizon, item, name, names, next, range, seconds, take},
    types::{
        commit::Commit::{Stored, Superseded},
        id::ShardId,
    },
};

// A6
#[tokio::test(start_paused = true)]
async fn a_failed_seek_names_the_shard_and_leaves_it_where_it_was() {
    let harness = Harness::new(&["a", "b", "c"]);
    for shard in ["a", "b", "c"] {
        harness.kinesis.put(shard, 2);
    }
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let mut first = take(&mut subscription, 6).await;
    me.service.script.plan(Rule::on(ServiceOp::GetShardIterator).of("a"), Fault::Fail(FailureKind::Other));
    me.service.script.plan(Rule::on(ServiceOp::GetShardIterator).of("c"), Fault::Fail(FailureKind::Denied));
    me.service.script.plan(Rule::on(ServiceOp::GetShardIterator).of("b").times(3), Fault::Fail(FailureKind::Throttled));
    let failed = subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap_err();
    let KinesisError::Seek { shards, source, .. } = &failed else { panic!("{failed}") };
    assert_eq!(
        (shards.iter().map(ShardId::as_str).collect::<Vec<_>>(), source.kind()),
        (vec!["a", "c"], FailureKind::Other)
    );
    first.sort_by_key(|delivery| name(delivery).to_owned());
    let mut commits = Vec::new();
    for delivery in first {
        commits.push(delivery.commit().await.unwrap());
    }
    assert_eq!(commits, [Stored, Stored, Superseded, Superseded, Stored, Stored]);
    assert_eq!(drain(&mut subscription, 30).await, ["b0", "b1"]);
}

// A6, R10
#[tokio::test(start_paused = true)]
async fn after_a_seek_the_replacement_of_a_failed_reader_starts_where_the_seek_led() {
    let harness = Harness::new(&["a", "z"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let (mut subscription, _others) = beside_another(&harness, &me, horizon()).await;
    assert_eq!(drain(&mut subscription, 3).await, range("a", 0..3));
    me.service.script.plan(Rule::on(ServiceOp::GetRecords).times(11), Fault::Fail(FailureKind::Other));
    subscription.seeker().seek(at("a", 1)).await.unwrap();
    let came = records(&mut subscription, 2).await;
    assert_eq!((names(&came), harness.row("a").await.unwrap().epoch), (vec!["a1", "a2"], 2));
}

// A6
#[tokio::test(start_paused = true)]
async fn a_process_that_dies_after_a_seek_resumes_at_the_stored_checkpoint() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    assert_eq!(drain(&mut subscription, 3).await, range("a", 0..3));
    subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    let again = next(&mut subscription).await;
    me.die(subscription);
    harness.kinesis.put("a", 1);
    let mut after = harness.instance("me").subscribe(horizon()).await;
    assert_eq!(drain(&mut after, 3).await, ["a3"]);
    drop(again);
}

// A6, R6, L7
#[tokio::test(start_paused = true)]
async fn an_impossible_seek_returns_the_reason() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let seeker = subscription.seeker();
    let future = seeker.seek(KinesisPosition::timestamp(i64::MAX)).await.unwrap_err();
    assert!(matches!(&future, KinesisError::Invalid { what: "position", .. }), "{future}");
    let unknown = seeker.seek(at("z", 0)).await.unwrap_err();
    assert!(matches!(&unknown, KinesisError::NotHeld { .. }), "{unknown}");
    me.table.script.plan(Rule::on(TableOp::Leases), Fault::Fail(StoreError::new("down")));
    let down = seeker.seek(KinesisPosition::horizon()).await.unwrap_err();
    assert!(matches!(&down, KinesisError::Store { shard: None, .. }), "{down}");
    assert_eq!(name(&next(&mut subscription).await), "a0", "the seek completed");
    subscription.close().await;
    let over = seeker.seek(KinesisPosition::horizon()).await.unwrap_err();
    assert!(matches!(&over, KinesisError::NotConnected), "{over}");
}

// A6
#[tokio::test(start_paused = true)]
async fn a_seek_completes_even_if_its_future_is_dropped() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    assert_eq!(drain(&mut subscription, 3).await, ["a0", "a1"]);
    let seeker = subscription.seeker();
    assert!(seeker.seek(at("a", 1)).now_or_never().is_none());
    assert_eq!(drain(&mut subscription, 3).await, ["a1"]);
}

// X2
#[tokio::test(start_paused = true)]
async fn a_tolerant_pipeline_survives_a_fault_a_throttle_a_lost_lease_and_a_seek() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 3);
    harness.kinesis.put("b", 3);
    let me = harness.instance("me");
    let subscription = me.subscribe(horizon()).await;
    let (seeker, closer) = (subscription.seeker(), subscription.closer());
    let troubles = async {
        sleep(seconds(5)).await;
        me.service.script.plan(Rule::on(ServiceOp::GetRecords), Fault::Fail(FailureKind::Other));
        me.service.script.plan(Rule::on(ServiceOp::GetRecords), Fault::Fail(FailureKind::Throttled));
        sleep(seconds(5)).await;
        harness.steal("b", "thief").await;
        sleep(seconds(30)).await;
        seeker.seek(KinesisPosition::horizon()).await.unwrap();
        sleep(seconds(5)).await;
        closer.close().await
    };
    let mut came = Vec::new();
    let pipeline = subscription.tolerant().try_for_each(|delivery| {
        came.push(name(&delivery).to_owned());
        async { delivery.commit().await.map(drop) }
    });
    let (ended, report) = futures::join!(pipeline, troubles);
    ended.unwrap();
    assert!(report.is_clean());
    let all = ["a0", "a1", "a2", "b0", "b1", "b2"];
    assert_eq!(came, [all, all].concat());
}

#[tokio::test(start_paused = true)]
async fn a_seek_error_is_transient() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    me.service.script.plan(Rule::on(ServiceOp::GetRecords), Fault::Fail(FailureKind::Other));
    me.service.script.plan(Rule::on(ServiceOp::GetShardIterator), Fault::Fail(FailureKind::Other));
    let failed = subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap_err();
    assert_eq!(failed.class(), ErrorClass::Transient);
    assert!(matches!(error(&mut subscription).await, KinesisError::Read { .. }));
    harness.kinesis.put("a", 1);
    assert!(matches!(item(&mut subscription).await, Some(Ok(_))));
}

// A6, L9
#[tokio::test(start_paused = true)]
async fn closing_ends_a_seek_whose_calls_hang() {
    let shards: Vec<String> = (0..200).map(|n| format!("s{n:03}.")).collect();
    let harness = Harness::new(&shards.iter().map(String::as_str).collect::<Vec<_>>());
    let me = harness.instance("me");
    let subscription = me.subscribe(horizon()).await;
    let late = Fault::FailAfter(seconds(90), FailureKind::Unreachable);
    me.service.script.plan(Rule::on(ServiceOp::GetShardIterator).always(), late);
    let seeker = subscription.seeker();
    let seek = tokio::spawn(async move { seeker.seek(KinesisPosition::horizon()).await });
    sleep(seconds(1)).await;
    let begun = harness.millis();
    assert!(subscription.close().await.is_clean());
    assert_eq!((harness.millis() - begun, harness.shares().await.len()), (0, 0));
    assert!(matches!(seek.await.unwrap(), Err(KinesisError::NotConnected)));
}

// A6, E5: a shard that cannot be moved does not keep the instance from its other work.
#[tokio::test(start_paused = true)]
async fn a_seek_whose_calls_hang_ends_after_half_a_minute_and_names_the_shards() {
    let shards: Vec<String> = (0..200).map(|n| format!("s{n:03}.")).collect();
    let harness = Harness::new(&shards.iter().map(String::as_str).collect::<Vec<_>>());
    let me = harness.instance("me");
    let subscription = me.subscribe(horizon()).await;
    me.service.script.plan(Rule::on(ServiceOp::GetShardIterator).always(), Fault::Hang);
    let begun = harness.millis();
    let failed = subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap_err();
    let KinesisError::Seek { shards, source, .. } = &failed else { panic!("{failed}") };
    assert_eq!((shards.len(), source.kind(), harness.millis() - begun), (200, FailureKind::Unreachable, 30_000));
}
