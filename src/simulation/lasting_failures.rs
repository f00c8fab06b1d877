//! Failures that only a person can end, and records that are lost (X2).

use futures::StreamExt;
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};
use crate::{
    error::{
        ErrorClass, KinesisError,
        service::{FailureKind, StoreError, StoreErrorKind},
    },
    simulation::harness::{CapturedLogs, Harness, Instance, horizon, latest, seconds},
    subscription::Tolerant,
};

/// When lasting errors came, in whole seconds, until this many seconds after the start. Other items fail the test.
async fn lasting(harness: &Harness, tolerant: &mut Tolerant, until: u64) -> Vec<u64> {
    let until = Instant::now() + seconds(until) - seconds(u64::try_from(harness.millis() / 1_000).unwrap());
    let mut times = Vec::new();
    while let Ok(item) = timeout_at(until, tolerant.next()).await {
        match item {
            Some(Err(error)) if error.class() == ErrorClass::Lasting => {
                times.push(u64::try_from(harness.millis() / 1_000).unwrap());
            }
            other => panic!("{other:?}"),
        }
    }
    times
}

fn denied() -> StoreError {
    StoreError::new("AccessDeniedException").with_kind(StoreErrorKind::Unusable)
}

fn without_credentials() -> StoreError {
    StoreError::new("no credentials for DynamoDB").with_kind(StoreErrorKind::Credentials)
}

fn deny(me: &Instance, what: &str) {
    match what {
        "reads" => me.service.fail(Rule::on(ServiceOp::GetRecords).always(), FailureKind::Denied),
        "listings" => me.service.fail(Rule::on(ServiceOp::ListShards).always(), FailureKind::Denied),
        "scans without credentials" => {
            me.table.script.plan(Rule::on(TableOp::Leases).always(), Fault::Fail(without_credentials()));
        }
        "renewals without credentials" => {
            me.table.script.plan(Rule::on(TableOp::Renew).always(), Fault::Fail(without_credentials()));
        }
        "scans" => me.table.script.plan(Rule::on(TableOp::Leases).always(), Fault::Fail(denied())),
        _ => me.table.script.plan(Rule::on(TableOp::Renew).always(), Fault::Fail(denied())),
    }
}

// X2
#[tokio::test(start_paused = true)]
async fn a_denial_that_lasts_is_yielded_once_per_patience_also_by_a_tolerant_stream() {
    let of_the_store = ["scans", "renewals", "scans without credentials", "renewals without credentials"];
    for what in ["reads", "listings"].into_iter().chain(of_the_store) {
        let harness = Harness::new(&["a", "b"]);
        let me = harness.instance("me");
        let mut tolerant = me.subscribe(latest()).await.tolerant();
        sleep(seconds(1)).await;
        let logs = CapturedLogs::new();
        deny(&me, what);
        let times = lasting(&harness, &mut tolerant, 300).await;
        assert_eq!(times.len(), 2, "{what}: {times:?}");
        assert!((120..135).contains(&times[0]) && (240..256).contains(&times[1]), "{what}: {times:?}");
        let told = logs.with("a failure lasts that only a person can end");
        assert_eq!(told.iter().filter(|line| line.contains("ERROR")).count(), 2, "{what}: {told:?}");
        let failing = tolerant.get_ref().stats().failing;
        assert_eq!(failing.len(), 1, "{what}");
        assert!((285..=300).contains(&failing[0].lasted.as_secs()), "{what}: {failing:?}");
        me.service.script.heal();
        me.table.script.heal();
        assert_eq!(lasting(&harness, &mut tolerant, 600).await, [0; 0], "{what}");
        assert!(tolerant.get_ref().stats().failing.is_empty(), "{what}");
    }
}

// X2
#[tokio::test(start_paused = true)]
async fn the_patience_is_a_setting() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    let mut tolerant = me.subscribe(latest().patience(seconds(10))).await.tolerant();
    deny(&me, "listings");
    assert_eq!(lasting(&harness, &mut tolerant, 35).await, [20, 30]);
}

// X2
#[tokio::test(start_paused = true)]
async fn an_outage_never_becomes_a_lasting_error_and_shows_in_stats() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    let mut tolerant = me.subscribe(latest()).await.tolerant();
    me.table.fail(Rule::everything());
    assert_eq!(lasting(&harness, &mut tolerant, 300).await, [0; 0]);
    let failing = tolerant.get_ref().stats().failing;
    assert!(failing.iter().any(|failing| matches!(failing.error, KinesisError::Store { shard: None, .. })));
}

// X2
#[tokio::test(start_paused = true)]
async fn a_loss_is_logged_as_an_error_counted_and_dropped_by_a_tolerant_stream() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut first = me.subscribe(horizon()).await;
    first.next().await.unwrap().unwrap().commit().await.unwrap();
    assert_eq!((first.stats().errors.loss, first.stats().last_loss.is_none()), (0, true));
    first.close().await;
    sleep(seconds(10)).await;
    harness.kinesis.recreate(&["a"]);
    harness.kinesis.put("a", 1);
    let logs = CapturedLogs::new();
    let mut tolerant = me.subscribe(horizon()).await.tolerant();
    assert_eq!(tolerant.next().await.unwrap().unwrap().sequence_number().as_str(), "a'0");
    sleep(seconds(7)).await;
    let stats = tolerant.get_ref().stats();
    let (lost, age) = stats.last_loss.unwrap();
    assert!(matches!(lost, KinesisError::StreamRecreated { .. }), "{lost}");
    assert_eq!((lost.class(), stats.errors.loss, age.as_secs()), (ErrorClass::Loss, 1, 7));
    assert!(logs.with("ignoring the checkpoints of the old stream")[0].contains("ERROR"));
}
