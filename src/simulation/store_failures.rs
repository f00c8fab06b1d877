//! A lease store that fails, refuses or hangs (A1, A4, E3).

use futures::StreamExt;
use tokio::time::{Duration, Instant, sleep, timeout, timeout_at};

use super::{
    script::{Fault, Rule},
    scripted_table::TableOp,
};
use crate::{
    delivery::Delivery,
    error::{KinesisError, service::StoreError},
    simulation::harness::{Harness, horizon, item, latest, millis, name, next, seconds, take},
    subscription::Subscription,
    types::commit::Commit,
};

/// The records that arrive within this time, and how many errors of the store there were.
async fn records(subscription: &mut Subscription, time: Duration) -> (Vec<String>, usize) {
    let until = Instant::now() + time;
    let (mut records, mut errors) = (Vec::new(), 0);
    while let Ok(item) = timeout_at(until, subscription.next()).await {
        match item.unwrap() {
            Ok(record) => {
                records.push(name(&record).to_owned());
                record.ack();
            }
            Err(KinesisError::Store { .. }) => errors += 1,
            Err(error) => panic!("{error}"),
        }
    }
    (records, errors)
}

// L6, E3
#[tokio::test(start_paused = true)]
async fn one_failed_renewal_is_retried_and_reading_continues() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    me.table.fail(Rule::on(TableOp::Renew));
    let mut subscription = me.subscribe(latest()).await;
    sleep(millis(3_500)).await;
    assert_eq!(me.table.script.times(TableOp::Renew, "a"), [3_000, 3_100].map(millis));
    harness.kinesis.put("a", 1);
    assert_eq!(records(&mut subscription, seconds(20)).await, (vec!["a0".to_owned()], 1));
    assert_eq!(harness.row("a").await.unwrap().epoch, 1);
}

// E3
#[tokio::test(start_paused = true)]
async fn a_store_outage_shorter_than_the_ttl_costs_no_lease() {
    for (fault, time) in [(Fault::Fail(StoreError::new("throttled")), 7), (Fault::Hang, 5)] {
        let harness = Harness::new(&["a"]);
        let (me, other) = (harness.instance("me"), harness.instance("other"));
        let mut subscription = me.subscribe(latest()).await;
        let others = other.subscribe(latest()).await;
        sleep(millis(2_500)).await;
        me.table.script.plan(Rule::everything(), fault);
        sleep(seconds(time)).await;
        me.table.script.heal();
        harness.kinesis.put("a", 1);
        assert_eq!(records(&mut subscription, seconds(30)).await.0, ["a0"]);
        assert_eq!((harness.owner("a").await.as_str(), harness.row("a").await.unwrap().epoch), ("me", 1));
        drop(others);
    }
}

// E3
#[tokio::test(start_paused = true)]
async fn past_its_deadline_a_shard_delivers_nothing_until_the_store_recovers() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 100);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon().read_limit(10)).await;
    take(&mut subscription, 5).await.into_iter().for_each(Delivery::ack);
    sleep(millis(3_500)).await;
    me.table.script.plan(Rule::everything(), Fault::Fail(StoreError::new("down")));
    let (last_write, mut handed_out) = (3_000, 5);
    while harness.millis() < 40_000 {
        let step = millis(100);
        if let Ok(Some(Ok(record))) = timeout(step, subscription.next()).await {
            assert!(harness.millis() < last_write + 10_000, "{} at {}", name(&record), harness.millis());
            handed_out += 1;
            sleep(millis(500)).await;
            record.ack();
        }
    }
    assert!((10..30).contains(&handed_out), "{handed_out}");
    me.table.script.heal();
    let (rest, _) = records(&mut subscription, seconds(60)).await;
    assert_eq!(rest.len(), 100 - handed_out);
    assert_eq!((harness.row("a").await.unwrap().epoch, harness.checkpoint("a").await.as_str()), (1, "after a99"));
}

// E3, A7
#[tokio::test(start_paused = true)]
async fn a_redelivery_due_past_the_deadline_waits_for_the_store() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let record = next(&mut subscription).await;
    me.table.script.plan(Rule::everything(), Fault::Fail(StoreError::new("down")));
    sleep(seconds(20)).await;
    record.nack();
    assert_eq!(records(&mut subscription, seconds(20)).await.0, Vec::<String>::new());
    me.table.script.heal();
    assert_eq!(records(&mut subscription, seconds(20)).await.0, ["a0"]);
}

// A4
#[tokio::test(start_paused = true)]
async fn failing_checkpoints_of_one_shard_block_neither_other_shards_nor_its_lease() {
    let harness = Harness::new(&["0", "a", "b"]);
    harness.kinesis.put("a", 1);
    harness.kinesis.put("b", 1);
    let (me, other) = (harness.instance("me"), harness.instance("other"));
    let others = other.subscribe(horizon().max_leases(1)).await;
    let mut subscription = me.subscribe(horizon()).await;
    take(&mut subscription, 2).await.into_iter().for_each(Delivery::ack);
    sleep(millis(1_500)).await;
    me.table.fail(Rule::on(TableOp::Checkpoint).of("a").always());
    for n in 1..=60 {
        harness.kinesis.put("a", 1);
        harness.kinesis.put("b", 1);
        while let Ok(Some(item)) = timeout(seconds(1), subscription.next()).await {
            match item {
                Ok(record) => record.ack(),
                Err(error) => assert!(matches!(error, KinesisError::Store { .. }), "{error}"),
            }
        }
        sleep(seconds(2)).await;
        assert_eq!(harness.checkpoint("b").await, format!("after b{n}"));
    }
    assert_eq!((harness.owner("a").await.as_str(), harness.checkpoint("a").await.as_str()), ("me", "after a0"));
    me.table.script.heal();
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a60");
    drop(others);
}

// A1
#[tokio::test(start_paused = true)]
async fn a_commit_fails_after_five_failed_writes_and_the_record_is_stored_later() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let (first, second) = (next(&mut subscription).await, next(&mut subscription).await);
    let begun = harness.millis();
    me.table.fail(Rule::on(TableOp::Checkpoint).times(5));
    let failed = first.commit().await.unwrap_err();
    assert!(matches!(failed, KinesisError::Store { shard: Some(_), .. }), "{failed}");
    assert_eq!(harness.millis() - begun, 100 + 200 + 400 + 800);
    assert_eq!(second.commit().await.unwrap(), Commit::Stored);
    assert_eq!(harness.checkpoint("a").await, "after a1");
}

// A1
#[tokio::test(start_paused = true)]
async fn a_hanging_store_call_fails_after_a_renew_interval() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let record = next(&mut subscription).await;
    let begun = harness.millis();
    me.table.script.plan(Rule::on(TableOp::Checkpoint), Fault::Hang);
    assert_eq!(record.commit().await.unwrap(), Commit::Stored);
    assert_eq!(harness.millis() - begun, 3_100);
    assert!(matches!(item(&mut subscription).await, Some(Err(KinesisError::Store { .. }))));
}

// E2, L6
#[tokio::test(start_paused = true)]
async fn a_write_with_a_lost_response_is_safely_retried() {
    for op in [TableOp::Take, TableOp::Renew, TableOp::Checkpoint, TableOp::Leases] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 3);
        let me = harness.instance("me");
        let lost = || Fault::LoseAnswer(StoreError::new("lost"));
        me.table.script.plan(Rule::on(op), lost());
        me.table.script.plan(Rule::on(TableOp::Release), lost());
        let mut subscription = me.subscribe(horizon()).await;
        let (taken, errors) = records(&mut subscription, seconds(20)).await;
        assert_eq!((taken.len(), errors), (3, 1), "{op:?}");
        assert!(subscription.close().await.is_clean());
        assert_eq!((harness.owner("a").await.as_str(), harness.checkpoint("a").await.as_str()), ("", "after a2"));
    }
}
