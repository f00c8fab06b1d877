//! When reads are sent (R7, R9).

use tokio::time::{Duration, sleep};

use super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
};
use crate::{
    delivery::Delivery,
    error::service::FailureKind,
    simulation::harness::{Harness, horizon, latest, millis, name, next, seconds, take, within},
};

fn every_second(times: u64) -> Vec<Duration> {
    (0..times).map(seconds).collect()
}

// R7
#[tokio::test(start_paused = true)]
async fn an_idle_shard_is_read_once_per_poll_interval_whether_or_not_the_stream_is_polled() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(latest()).await;
    sleep(millis(5_500)).await;
    assert!(within(&mut subscription, seconds(5)).await.is_empty());
    assert_eq!(me.service.script.times(ServiceOp::GetRecords, "a"), every_second(11));
}

// R7
#[tokio::test(start_paused = true)]
async fn a_page_pauses_its_shard_for_its_bytes_at_2_mib_a_second() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put_bytes("a", 3 << 20);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    next(&mut subscription).await.ack();
    sleep(seconds(3)).await;
    assert_eq!(me.service.script.times(ServiceOp::GetRecords, "a"), [0, 1_500, 2_500].map(millis));
}

// R7
#[tokio::test(start_paused = true)]
async fn a_trickling_shard_is_read_evenly_at_most_twice_per_poll_interval() {
    for (poll, expected) in [(1_000, [0, 500, 1_000, 1_500, 2_000, 2_500]), (200, [0, 200, 400, 600, 800, 1_000])] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 1);
        let me = harness.instance("me");
        let mut subscription = me.subscribe(horizon().poll_interval(millis(poll))).await;
        for _ in 0..60 {
            harness.kinesis.put("a", 1);
            within(&mut subscription, millis(50)).await.into_iter().for_each(Delivery::ack);
        }
        assert_eq!(me.service.script.times(ServiceOp::GetRecords, "a")[..6], expected.map(millis));
    }
}

// R7
#[tokio::test(start_paused = true)]
async fn a_lagging_shard_is_read_back_to_back() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 4);
    harness.kinesis.put("b", 1);
    harness.kinesis.close("b");
    harness.kinesis.end_with_an_empty_page();
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon().read_limit(2)).await;
    take(&mut subscription, 5).await.into_iter().for_each(Delivery::ack);
    sleep(millis(900)).await;
    assert_eq!(
        me.service.script.times(ServiceOp::GetRecords, "a"),
        [0, 1, 2].map(millis),
        "a full page may not be all"
    );
    assert_eq!(me.service.script.times(ServiceOp::GetRecords, "b"), [0, 1].map(millis), "a closed shard has an end");
}

// R7
#[tokio::test(start_paused = true)]
async fn a_shard_under_load_is_read_at_most_five_times_in_any_second() {
    for latency in [0, 30, 700] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 60);
        let me = harness.instance("me");
        for k in [2, 5, 11, 12] {
            me.service.fail(Rule::on(ServiceOp::GetRecords).after(k), FailureKind::Throttled);
        }
        me.service.script.plan(Rule::on(ServiceOp::GetRecords).always(), Fault::Delay(millis(latency)));
        let poll = millis(10);
        let mut subscription = me.subscribe(horizon().read_limit(1).poll_interval(poll)).await;
        for delivery in take(&mut subscription, 60).await {
            delivery.ack();
        }
        let reads = me.service.script.times(ServiceOp::GetRecords, "a");
        assert!(reads.len() >= 64, "{}", reads.len());
        for six in reads.windows(6) {
            assert!(six[5] >= six[0] + seconds(1), "{six:?}");
        }
    }
}

// R7
#[tokio::test(start_paused = true)]
async fn reads_per_second_can_be_raised() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 50);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon().read_limit(1).reads_per_second(1_000)).await;
    take(&mut subscription, 50).await.into_iter().for_each(Delivery::ack);
    assert!(harness.millis() < 100, "{}", harness.millis());
}

// R9
#[tokio::test(start_paused = true)]
async fn a_throttled_read_is_retried_with_the_same_iterator_a_poll_interval_later_without_an_error() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).times(3), FailureKind::Throttled);
    let mut subscription = me.subscribe(horizon()).await;
    let record = next(&mut subscription).await;
    assert_eq!((name(&record), harness.millis()), ("a0", 3_000));
    let reads = me.service.script.calls(ServiceOp::GetRecords);
    assert_eq!(reads.iter().map(|call| call.at).collect::<Vec<_>>(), every_second(4));
    assert!(reads.iter().all(|call| call.what == reads[0].what), "{reads:?}");
}

// R7
#[tokio::test(start_paused = true)]
async fn each_shard_is_paced_separately() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put_bytes("a", 8 << 20);
    harness.kinesis.put("b", 5);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon().read_limit(1)).await;
    take(&mut subscription, 6).await.into_iter().for_each(Delivery::ack);
    sleep(seconds(4)).await;
    assert_eq!(me.service.script.times(ServiceOp::GetRecords, "a"), [0, 4_000].map(millis));
    assert_eq!(me.service.script.times(ServiceOp::GetRecords, "b")[..5], [0, 1, 2, 3, 4].map(millis));
}

/// Lags that fall from three hours to almost nothing, in milliseconds.
fn lags(pages: i64) -> impl Iterator<Item = i64> {
    (1..=pages).rev().map(move |left| left * 3 * 3_600_000 / pages)
}

// R7
#[tokio::test(start_paused = true)]
async fn empty_pages_of_a_lagging_shard_are_read_at_the_allowed_rate() {
    for (pages, poll, expected) in [(30, seconds(1), 6_000), (30, seconds(20), 6_000), (3, seconds(20), 0)] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.gap("a", lags(pages));
        harness.kinesis.put("a", 1);
        let me = harness.instance("me");
        let mut subscription = me.subscribe(horizon().poll_interval(poll)).await;
        next(&mut subscription).await.ack();
        assert_eq!(harness.millis(), expected, "{pages} pages, a poll interval of {poll:?}");
    }
}

// R7
#[tokio::test(start_paused = true)]
async fn empty_pages_are_read_once_per_poll_interval_at_the_tip() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.gap("a", [2_000, 1_000, 0, 0, 0, 0]);
    let me = harness.instance("me");
    let subscription = me.subscribe(latest().poll_interval(seconds(20))).await;
    sleep(seconds(65)).await;
    assert_eq!(me.service.script.times(ServiceOp::GetRecords, "a"), [0, 0, 0, 20, 40, 60].map(seconds));
    drop(subscription);
}
