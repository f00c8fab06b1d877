//! Closing, lost leases and ended shards while dead letters wait (A7, L9, E3, H1).

use tokio::time::sleep;

use super::{
    super::{
        script::{Fault, Rule},
        scripted_service::ServiceOp,
    },
    dead_letters, with_attempts,
};

use crate::{
    error::{
        ErrorClass, KinesisError,
        service::{FailureKind, StoreError},
    },
    simulation::harness::{Harness, error, millis, name, names, next, seconds, take},
    types::commit::Commit,
};

// A7, L9
#[tokio::test(start_paused = true)]
async fn closing_waits_for_a_dead_letter_write_under_way() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::PutRecord), Fault::Delay(seconds(5)));
    let mut subscription = me.subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    sleep(millis(1)).await;
    assert!(subscription.close().await.is_clean());
    assert_eq!(harness.millis() / 100, 50);
    assert_eq!((dead_letters(&harness), harness.checkpoint("a").await.as_str()), (vec!["a0".to_owned()], "after a0"));
}

// A7, L9
#[tokio::test(start_paused = true)]
async fn closing_does_not_wait_for_a_queued_dead_letter_and_the_record_is_redelivered() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::PutRecord), FailureKind::Denied);
    let mut subscription = me.subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    sleep(millis(1)).await;
    let report = subscription.close().await;
    assert_eq!((harness.millis() < 10, report.open[0].deliveries), (true, 1));
    let mut again = me.subscribe(with_attempts(1)).await;
    let record = next(&mut again).await;
    assert_eq!((name(&record), record.attempt(), dead_letters(&harness).len()), ("a0", 1, 0));
    assert_eq!(record.commit().await.unwrap(), Commit::Stored);
}

// A7, L9
#[tokio::test(start_paused = true)]
async fn a_hanging_dead_letter_write_delays_closing_by_the_drain_timeout_only() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::PutRecord), Fault::Hang);
    let mut subscription = me.subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    sleep(millis(1)).await;
    let report = subscription.close().await;
    assert_eq!((harness.millis() / 1_000, report.open[0].deliveries), (30, 1));
}

// A7
#[tokio::test(start_paused = true)]
async fn a_lost_lease_drops_its_queued_dead_letters() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::PutRecord), FailureKind::Throttled);
    let mut subscription = me.subscribe(with_attempts(1)).await;
    let mut records = take(&mut subscription, 2).await;
    sleep(millis(2_900)).await;
    records.remove(0).nack();
    harness.steal("a", "thief").await;
    assert!(matches!(error(&mut subscription).await, KinesisError::DeadLetter { .. }));
    assert!(matches!(error(&mut subscription).await, KinesisError::LeaseLost { .. }));
    let again = take(&mut subscription, 2).await;
    assert_eq!((names(&again), again[0].attempt(), again[0].epoch()), (vec!["a0", "a1"], 1, 3));
    assert_eq!((me.service.script.calls(ServiceOp::PutRecord).len(), dead_letters(&harness).len()), (1, 0));
}

// A7, E3
#[tokio::test(start_paused = true)]
async fn no_dead_letter_is_written_past_the_lease_deadline() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(with_attempts(1)).await;
    let record = next(&mut subscription).await;
    me.table.script.plan(Rule::everything(), Fault::Fail(StoreError::new("away")));
    sleep(seconds(15)).await;
    record.nack();
    sleep(seconds(15)).await;
    assert_eq!(dead_letters(&harness), Vec::<String>::new());
    me.table.script.heal();
    sleep(seconds(4)).await;
    assert_eq!((dead_letters(&harness), harness.checkpoint("a").await.as_str()), (vec!["a0".to_owned()], "after a0"));
    drop(subscription);
}

// A7, H1
#[tokio::test(start_paused = true)]
async fn the_children_of_a_shard_wait_for_its_dead_letters() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::PutRecord).times(3), FailureKind::Other);
    let mut subscription = me.subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    let failed = error(&mut subscription).await;
    assert!(matches!(failed, KinesisError::DeadLetter { .. }), "{failed}");
    sleep(millis(6_900)).await;
    assert_eq!((harness.checkpoint("a").await.as_str(), harness.owner("b").await.as_str()), ("at a0", ""));
    assert!(error(&mut subscription).await.class() == ErrorClass::Transient);
    assert_eq!(name(&next(&mut subscription).await), "b0");
    assert_eq!((harness.checkpoint("a").await.as_str(), harness.millis() / 1_000), ("SHARD_END", 7));
}
