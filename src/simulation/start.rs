//! What `subscribe` waits for, and what it fails with (L4).

use tokio::time::sleep;

use super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};
use crate::{
    error::{
        ErrorClass, KinesisError,
        chain::Chain,
        service::{FailureKind, StoreError, StoreErrorKind},
    },
    simulation::harness::{Harness, Instance, error, horizon, latest, names, seconds, within},
    subscription::start,
};

/// The error with which `subscribe` fails.
async fn refusal(me: &Instance) -> KinesisError {
    start::start(me.context(latest())).await.expect_err("subscribe fails")
}

fn denied() -> StoreError {
    StoreError::new("AccessDeniedException").with_kind(StoreErrorKind::Unusable)
}

// L4
#[tokio::test(start_paused = true)]
async fn a_describe_that_fails_for_now_is_repeated_with_jitter() {
    for kind in [FailureKind::Throttled, FailureKind::Unavailable, FailureKind::Credentials] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 1);
        let me = harness.instance("me");
        me.service.fail(Rule::on(ServiceOp::DescribeStreamSummary).times(6), kind);
        let mut subscription = me.subscribe(horizon()).await;
        // Pauses of 0.5, 1, 2, 4, 5 and 5 s, each with a jitter of up to its own length.
        assert!((17_500..=35_010).contains(&harness.millis()), "{kind:?}: {} ms", harness.millis());
        assert_eq!(names(&within(&mut subscription, seconds(5)).await), ["a0"]);
    }
}

// L4
#[tokio::test(start_paused = true)]
async fn a_describe_that_fails_for_a_minute_fails_the_start() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::DescribeStreamSummary).always(), FailureKind::Credentials);
    let error = refusal(&me).await;
    assert!(matches!(error, KinesisError::Denied { .. }), "{error}");
    assert_eq!((error.class(), harness.millis()), (ErrorClass::Fatal, 60_000));
}

// L4
#[tokio::test(start_paused = true)]
async fn a_describe_that_waiting_does_not_mend_fails_the_start_at_once() {
    for kind in [FailureKind::Denied, FailureKind::Rejected, FailureKind::Unreachable, FailureKind::NotFound] {
        let harness = Harness::new(&["a"]);
        let me = harness.instance("me");
        me.service.fail(Rule::on(ServiceOp::DescribeStreamSummary).always(), kind);
        assert_eq!(refusal(&me).await.class(), ErrorClass::Fatal);
        assert_eq!(harness.millis(), 0, "{kind:?}");
    }
}

// L4
#[tokio::test(start_paused = true)]
async fn a_create_that_is_throttled_is_repeated() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::DescribeStreamSummary).times(7), FailureKind::NotFound);
    me.service.fail(Rule::on(ServiceOp::CreateStream).times(3), FailureKind::Throttled);
    me.service.fail(Rule::on(ServiceOp::CreateStream), FailureKind::NotReady);
    let context = me.context(latest().create_if_missing(1));
    let _subscription = start::start(context).await.unwrap();
    assert_eq!(me.service.script.calls(ServiceOp::CreateStream).len(), 4);
}

// L4
#[tokio::test(start_paused = true)]
async fn a_lease_store_that_cannot_work_fails_the_start() {
    for (op, action) in [(TableOp::Leases, "reading the leases"), (TableOp::Take, "taking the lease")] {
        let harness = Harness::new(&["a", "b"]);
        let me = harness.instance("me");
        me.table.script.plan(Rule::on(op).always(), Fault::Fail(denied()));
        let error = refusal(&me).await;
        assert!(matches!(&error, KinesisError::Store { action: doing, .. } if *doing == action), "{error}");
        assert_eq!((error.class(), harness.millis()), (ErrorClass::Fatal, 0), "{error}");
        assert!(Chain(&error).to_string().ends_with("AccessDeniedException"), "{}", Chain(&error));
        // Nothing of it stays: the next attempt succeeds at once.
        me.table.script.heal();
        assert!(me.subscribe(latest()).await.close().await.is_clean());
    }
}

// L4
#[tokio::test(start_paused = true)]
async fn leases_that_cannot_be_read_for_now_are_waited_for_and_after_a_minute_fail_the_start() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    sleep(seconds(5)).await;
    let me = harness.instance("me");
    me.table.fail(Rule::on(TableOp::Leases).times(20));
    let mut subscription = me.subscribe(latest()).await;
    assert_eq!(harness.millis(), 25_000);
    harness.kinesis.put("a", 1);
    let error = error(&mut subscription).await;
    assert_eq!(error.class(), ErrorClass::Transient);
    assert_eq!(names(&within(&mut subscription, seconds(5)).await), ["a1"]);
    subscription.close().await;

    for without_credentials in [false, true] {
        let kind = if without_credentials { StoreErrorKind::Credentials } else { StoreErrorKind::Temporary };
        let fault = Fault::Fail(StoreError::new("down").with_kind(kind));
        me.table.script.plan_first(Rule::on(TableOp::Leases).always(), fault);
        let begun = harness.millis();
        let error = refusal(&me).await;
        assert!(matches!(error, KinesisError::Store { shard: None, .. }), "{error}");
        assert_eq!((error.class(), harness.millis() - begun), (ErrorClass::Fatal, 60_000), "{kind:?}");
    }
}
