//! Iterators that expire: no record is skipped, and none is delivered twice (R8).

use tokio::time::sleep;

use super::{kinesis::EPOCH, script::Rule, scripted_service::ServiceOp};
use crate::{
    config::position::KinesisPosition,
    delivery::Delivery,
    error::{KinesisError, service::FailureKind},
    simulation::harness::{Harness, error, horizon, latest, millis, names, range, seconds, take, within},
};

// R8
#[tokio::test(start_paused = true)]
async fn after_an_expiry_exactly_the_new_records_are_delivered() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 10);
    harness.kinesis.iterators_live(millis(500));
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let unsettled = take(&mut subscription, 10).await;
    sleep(seconds(20)).await;
    harness.kinesis.put("a", 1);
    let new = within(&mut subscription, seconds(20)).await;
    assert_eq!(names(&new), ["a10"]);
    drop(unsettled);
}

// R8
#[tokio::test(start_paused = true)]
async fn the_new_iterator_follows_the_last_record_read_for_every_opening_position() {
    for position in
        [KinesisPosition::horizon(), KinesisPosition::timestamp(EPOCH), KinesisPosition::sequence("a", "a0")]
    {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 2);
        harness.kinesis.iterators_live(millis(500));
        let me = harness.instance("me");
        let mut subscription = me.subscribe(latest().start_at(position)).await;
        take(&mut subscription, 2).await.into_iter().for_each(Delivery::ack);
        sleep(millis(3_500)).await;
        let places = me.service.places("a");
        assert!(places.len() > 2 && places[1..].iter().all(|place| place == "After(a1)"), "{places:?}");
    }
}

// R8
#[tokio::test(start_paused = true)]
async fn an_expired_latest_iterator_reopens_at_the_time_of_opening() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 5);
    sleep(millis(5_700)).await;
    harness.kinesis.iterators_live(millis(500));
    let me = harness.instance("me");
    let mut subscription = me.subscribe(latest()).await;
    harness.kinesis.put("a", 1);
    assert_eq!(names(&within(&mut subscription, seconds(20)).await), ["a5"]);
    let places = me.service.places("a");
    assert_eq!(places[..2], ["Latest".to_owned(), format!("Timestamp({})", EPOCH + 4_000)]);
}

// R8
#[tokio::test(start_paused = true)]
async fn a_record_put_after_the_first_iterator_expired_is_read() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 5);
    sleep(seconds(5)).await;
    let me = harness.instance("me");
    let mut subscription = me.subscribe(latest()).await;
    sleep(millis(10_100)).await;
    harness.kinesis.iterators_live(millis(100));
    harness.kinesis.put("a", 3);
    assert_eq!(names(&within(&mut subscription, seconds(20)).await), range("a", 5..8));
}

// R8
#[tokio::test(start_paused = true)]
async fn expired_horizon_and_timestamp_iterators_reopen_where_they_were_opened() {
    for (position, place) in [
        (KinesisPosition::horizon(), "Horizon".to_owned()),
        (KinesisPosition::timestamp(EPOCH + 1), format!("Timestamp({})", EPOCH + 1)),
    ] {
        let harness = Harness::new(&["a"]);
        sleep(seconds(1)).await;
        harness.kinesis.iterators_live(millis(500));
        let me = harness.instance("me");
        let mut subscription = me.subscribe(latest().start_at(position)).await;
        sleep(millis(3_100)).await;
        harness.kinesis.put("a", 1);
        assert_eq!(names(&within(&mut subscription, seconds(5)).await), ["a0"]);
        assert!(me.service.places("a")[..4].iter().all(|placed| *placed == place));
    }
}

// R8
#[tokio::test(start_paused = true)]
async fn a_consumer_that_pauses_longer_than_an_iterator_lives_gets_every_record_once() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 20);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon().read_limit(3)).await;
    let mut taken = take(&mut subscription, 1).await;
    sleep(seconds(1_000)).await;
    taken.extend(take(&mut subscription, 9).await);
    sleep(seconds(1_000)).await;
    taken.extend(within(&mut subscription, seconds(60)).await);
    assert_eq!(names(&taken), range("a", 0..20));
    assert!(me.service.places("a").len() > 2);
}

// R8
#[tokio::test(start_paused = true)]
async fn a_slow_consumer_does_not_expire_the_iterator_of_an_idle_shard() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(latest()).await;
    sleep(seconds(2_000)).await;
    assert_eq!(me.service.places("a"), ["Latest"]);
    harness.kinesis.put("a", 1);
    assert_eq!(names(&take(&mut subscription, 1).await), ["a0"]);
}

// R8
#[tokio::test(start_paused = true)]
async fn iterators_that_expire_in_a_row_are_requested_with_growing_pauses_and_reported_from_the_third_on() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).times(6), FailureKind::IteratorExpired);
    let mut subscription = me.subscribe(horizon()).await;
    for (expired, at) in [(3, 1), (4, 3), (5, 7), (6, 15)] {
        let failure = error(&mut subscription).await;
        let KinesisError::Read { failures, gave_up: false, source, .. } = &failure else { panic!("{failure}") };
        assert_eq!((*failures, source.kind(), harness.millis()), (expired, FailureKind::IteratorExpired, at * 1_000));
    }
    assert_eq!(names(&take(&mut subscription, 1).await), ["a0"]);
    let times = [0, 0, 1, 3, 7, 15, 31].map(seconds);
    assert_eq!(me.service.script.times(ServiceOp::GetRecords, "a"), times);
    assert_eq!(me.service.script.times(ServiceOp::GetShardIterator, "a"), times);
    let stats = subscription.stats().shards.remove(0);
    assert_eq!(stats.expired_iterators, 6);
    assert!(matches!(stats.last_error, Some((KinesisError::Read { failures: 6, .. }, _))));
}

// R8
#[tokio::test(start_paused = true)]
async fn a_service_whose_iterators_expire_for_an_hour_is_asked_twice_a_minute() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).always(), FailureKind::IteratorExpired);
    let subscription = me.subscribe(latest()).await;
    sleep(seconds(3_600)).await;
    let reads = me.service.script.times(ServiceOp::GetRecords, "a").len();
    assert_eq!((reads, harness.owner("a").await.as_str()), (125, "me"));
    drop(subscription);
}

// R8
#[tokio::test(start_paused = true)]
async fn a_good_read_starts_the_count_of_expired_iterators_anew() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    for round in 0..5 {
        let rule = Rule::on(ServiceOp::GetRecords).after(round).times(2);
        me.service.fail(rule, FailureKind::IteratorExpired);
    }
    let mut subscription = me.subscribe(latest()).await;
    assert!(within(&mut subscription, seconds(60)).await.is_empty());
    assert_eq!(subscription.stats().shards[0].expired_iterators, 10);
}
