//! What `subscribe` asks of the dead-letter stream (L4).

use tokio::time::sleep;

use super::{
    super::{
        script::{Fault, Rule},
        scripted_service::ServiceOp,
    },
    dead_letters, with_attempts,
};

use crate::{
    error::{ErrorClass, KinesisError, chain::Chain, service::FailureKind},
    simulation::harness::{CapturedLogs, Harness, Instance, next, seconds},
    subscription::{descriptor::KinesisStream, start},
};

async fn refusal(me: &Instance, stream: KinesisStream) -> KinesisError {
    start::start(me.context(stream)).await.expect_err("subscribe fails")
}

/// A stream whose dead-letter stream is missing.
fn without_dead() -> Harness {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    harness.kinesis.lacks("dead");
    harness
}

fn created(me: &Instance) -> Vec<String> {
    me.service.script.calls(ServiceOp::CreateStream).into_iter().map(|call| call.what).collect()
}

// L4
#[tokio::test(start_paused = true)]
async fn a_missing_dead_letter_stream_fails_the_start_at_once_and_takes_no_lease() {
    let harness = without_dead();
    let me = harness.instance("me");
    let error = refusal(&me, with_attempts(1)).await;
    assert!(matches!(&error, KinesisError::DeadLetterStream { dead_letter, .. } if &**dead_letter == "dead"));
    assert_eq!(
        Chain(&error).to_string(),
        "stream s: its dead-letter stream dead cannot be used; correct the name, create the stream, or set \
         dead_letter_if_missing: kinesis:DescribeStreamSummary failed: NotFound"
    );
    assert_eq!((error.class(), harness.millis(), harness.rows().await), (ErrorClass::Fatal, 0, 0));
}

// L4
#[tokio::test(start_paused = true)]
async fn a_missing_dead_letter_stream_is_created_once_if_that_is_allowed() {
    let harness = without_dead();
    let me = harness.instance("me");
    let stream = || with_attempts(1).dead_letter_if_missing(3);
    let mut subscription = me.subscribe(stream()).await;
    assert_eq!(created(&me), ["dead 3"]);
    next(&mut subscription).await.nack();
    sleep(seconds(2)).await;
    assert_eq!(dead_letters(&harness), ["a0"]);
    subscription.close().await;
    let _again = me.subscribe(stream()).await;
    assert_eq!(created(&me).len(), 1);
}

// L4
#[tokio::test(start_paused = true)]
async fn it_is_no_error_if_another_instance_creates_the_dead_letter_stream_first() {
    let harness = without_dead();
    let (one, other) = (harness.instance("one"), harness.instance("other"));
    let stream = || with_attempts(1).dead_letter_if_missing(1);
    one.service.script.plan(Rule::on(ServiceOp::CreateStream), Fault::Delay(seconds(1)));
    let (_one, _other) = tokio::join!(one.subscribe(stream()), other.subscribe(stream()));
    assert_eq!((created(&one), created(&other)), (vec!["dead 1".to_owned()], vec!["dead 1".to_owned()]));
}

// L4
#[tokio::test(start_paused = true)]
async fn a_dead_letter_stream_that_cannot_be_created_fails_the_start() {
    let harness = without_dead();
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::CreateStream).always(), FailureKind::Denied);
    let error = refusal(&me, with_attempts(1).dead_letter_if_missing(1)).await;
    assert!(matches!(error, KinesisError::Denied { .. }));
    assert_eq!(error.to_string(), "access denied: kinesis:CreateStream on stream dead");
}

// L4
#[tokio::test(start_paused = true)]
async fn a_dead_letter_stream_that_cannot_be_described_is_logged_once_and_used() {
    let table = [
        (FailureKind::Denied, 0..=0),
        (FailureKind::Unreachable, 0..=0),
        (FailureKind::Rejected, 0..=0),
        (FailureKind::Throttled, 60_000..=60_000),
    ];
    for (kind, millis) in table {
        for stream in [with_attempts(1), with_attempts(1).dead_letter_if_missing(1)] {
            let logged = CapturedLogs::new();
            let harness = Harness::new(&["a"]);
            harness.kinesis.put("a", 1);
            let me = harness.instance("me");
            me.service.fail(Rule::on(ServiceOp::DescribeStreamSummary).after(1).always(), kind);
            let mut subscription = me.subscribe(stream).await;
            assert!(millis.contains(&harness.millis()), "{kind:?}: {}", harness.millis());
            let said = logged.with("it is not known whether the dead-letter stream exists");
            assert_eq!((said.len(), said[0].contains("dead_letter=dead")), (1, true), "{said:?}");
            next(&mut subscription).await.nack();
            sleep(seconds(2)).await;
            assert_eq!((dead_letters(&harness), created(&me)), (vec!["a0".to_owned()], Vec::new()));
        }
    }
}

// L4
#[tokio::test(start_paused = true)]
async fn a_describe_of_the_dead_letter_stream_that_fails_for_now_is_repeated() {
    let harness = without_dead();
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::DescribeStreamSummary).after(1).times(2), FailureKind::Throttled);
    assert!(matches!(refusal(&me, with_attempts(1)).await, KinesisError::DeadLetterStream { .. }));
    assert!((1_500..=3_010).contains(&harness.millis()), "{} ms", harness.millis());
}
