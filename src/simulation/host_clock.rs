//! A host whose clock is ahead of the service's, or behind it: the service's clock decides about timestamps (R6).

use crate::{
    config::position::KinesisPosition,
    error::KinesisError,
    simulation::{
        harness::{Harness, Instance, latest, names, seconds, within},
        kinesis::EPOCH,
        script::{Fault, Rule},
        scripted_service::ServiceOp,
    },
    subscription::{descriptor::KinesisStream, start},
    util::clock,
};

/// The start of a stream whose host says that it is this much later than the service does.
fn starts(ahead: i64) -> [(&'static str, KinesisStream); 2] {
    let now_of_the_host = || KinesisPosition::timestamp(EPOCH + 5_700 + ahead);
    [
        ("start_at", latest().start_at(now_of_the_host())),
        ("initial_position", latest().initial_position(now_of_the_host())),
    ]
}

async fn refusal(me: &Instance, stream: KinesisStream) -> KinesisError {
    start::start(me.context(stream)).await.expect_err("subscribe fails")
}

// R6
#[tokio::test(start_paused = true)]
async fn a_start_that_is_ahead_of_the_service_by_less_than_a_minute_begins_at_its_present() {
    // The time that is asked of the service: its `Date` has whole seconds, so that 5,999 may have come.
    let table = [(-60_000, -54_300), (-701, 4_999), (-1, 5_699), (3_000, 5_999), (30_000, 5_999), (59_299, 5_999)];
    for (ahead, asked) in table {
        for (what, stream) in starts(ahead) {
            let harness = Harness::new(&["a"]);
            harness.until(5_700).await;
            let me = harness.instance("me");
            let mut subscription = me.subscribe(stream).await;
            harness.kinesis.put("a", 1);
            assert_eq!(names(&within(&mut subscription, seconds(90)).await), ["a0"], "{what}, {ahead} ms");
            let asked = format!("Timestamp({})", EPOCH + asked);
            assert_eq!(me.service.places("a"), [asked], "{what}, {ahead} ms");
        }
    }
}

// R6
#[tokio::test(start_paused = true)]
async fn a_start_that_is_further_ahead_of_the_service_is_refused_with_both_times() {
    for (what, stream) in starts(59_300) {
        let harness = Harness::new(&["a"]);
        harness.until(5_700).await;
        let me = harness.instance("me");
        let refused = refusal(&me, stream).await.to_string();
        let (now, given) = (EPOCH + 5_000, EPOCH + 65_000);
        let expected = format!(
            "invalid {what}: a timestamp may be at most the present of the service, {now} (Unix milliseconds); {given} \
             is in the future"
        );
        assert_eq!(refused, expected);
    }
}

// R6, A6
#[tokio::test(start_paused = true)]
async fn a_host_that_is_behind_refuses_no_time_that_has_come_for_the_service() {
    let harness = Harness::new(&["a"]);
    let now = clock::unix_millis() + 60_000;
    harness.kinesis.set_time(now);
    harness.kinesis.put("a", 1);
    harness.until(1_500).await;
    let me = harness.instance("me");
    let position = || KinesisPosition::timestamp(now);
    let mut subscription = me.subscribe(latest().initial_position(position())).await;
    assert_eq!(names(&within(&mut subscription, seconds(5)).await), ["a0"]);
    subscription.seeker().seek(position()).await.unwrap();
    assert_eq!(names(&within(&mut subscription, seconds(5)).await), ["a0"]);
    assert_eq!(me.service.places("a"), [format!("Timestamp({now})"), format!("Timestamp({now})")]);
}

// A6
#[tokio::test(start_paused = true)]
async fn a_seek_to_a_time_ahead_of_the_service_by_less_than_a_minute_moves_to_its_present() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(latest()).await;
    let seeker = subscription.seeker();
    harness.until(100_700).await;
    // The host of this one was suspended: the service's clock is further than this instance thinks.
    harness.kinesis.set_time(EPOCH + 200_700);
    // Each seek to a time that may not have come waits for it, for 999 ms.
    for (asked, moved_to) in [(90_000, 90_000), (150_000, 150_000), (203_700, 200_999), (259_999, 201_999)] {
        seeker.seek(KinesisPosition::timestamp(EPOCH + asked)).await.unwrap();
        let last = me.service.places("a").pop().unwrap();
        assert_eq!(last, format!("Timestamp({})", EPOCH + moved_to));
    }
    let refused = seeker.seek(KinesisPosition::timestamp(EPOCH + 262_000)).await.unwrap_err();
    assert!(matches!(&refused, KinesisError::Invalid { what: "position", .. }), "{refused}");
    assert!(refused.to_string().contains(&(EPOCH + 202_000).to_string()), "{refused}");
    harness.kinesis.put("a", 1);
    assert_eq!(names(&within(&mut subscription, seconds(5)).await), ["a0"]);
}

// A6
#[tokio::test(start_paused = true)]
async fn a_seek_to_a_time_that_has_passed_asks_for_no_time_and_a_failed_question_counts_on() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    let subscription = me.subscribe(latest()).await;
    let seeker = subscription.seeker();
    harness.until(10_500).await;
    let described = me.service.script.calls(ServiceOp::DescribeStreamSummary).len();
    seeker.seek(KinesisPosition::timestamp(EPOCH + 10_000)).await.unwrap();
    assert_eq!(me.service.script.calls(ServiceOp::DescribeStreamSummary).len(), described);
    // The question hangs: the seek takes the time that it knows, and waits until 13 s have certainly come.
    me.service.script.plan(Rule::on(ServiceOp::DescribeStreamSummary), Fault::Hang);
    seeker.seek(KinesisPosition::timestamp(EPOCH + 13_000)).await.unwrap();
    assert_eq!(me.service.places("a").pop().unwrap(), format!("Timestamp({})", EPOCH + 13_000));
    assert_eq!(harness.millis(), 13_000);
}
