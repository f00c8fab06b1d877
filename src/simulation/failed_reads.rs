//! Failed reads (R10).

use futures::StreamExt;
use tokio::time::sleep;

use super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};
use crate::{
    delivery::Delivery,
    error::{ErrorClass, KinesisError, service::FailureKind},
    simulation::harness::{
        CapturedLogs, Harness, beside_another, error, horizon, item, latest, millis, name, names, next, seconds, take,
        within,
    },
    subscription::Subscription,
    types::commit::Commit,
};

/// Takes the next item, which must be a failed read. Returns the failures in a row, and whether the reader gave up.
async fn failed(subscription: &mut Subscription) -> (u32, bool) {
    match error(subscription).await {
        KinesisError::Read { failures, gave_up, .. } => (failures, gave_up),
        other => panic!("{other}"),
    }
}

// R10
#[tokio::test(start_paused = true)]
async fn every_failed_read_is_yielded_and_retried_a_second_later_with_the_same_iterator() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).times(3), FailureKind::Other);
    let mut subscription = me.subscribe(horizon()).await;
    for failures in 1..=3 {
        let failure = error(&mut subscription).await;
        assert_eq!(failure.class(), ErrorClass::Transient);
        assert!(matches!(failure, KinesisError::Read { failures: n, gave_up: false, .. } if n == failures));
    }
    assert_eq!(name(&next(&mut subscription).await), "a0");
    assert_eq!(harness.millis(), 3_000);
    assert_eq!(me.service.places("a").len(), 1);
}

// R10
#[tokio::test(start_paused = true)]
async fn a_connection_that_breaks_once_costs_neither_an_error_nor_a_pause() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.lose_connections();
    me.service.fail(Rule::on(ServiceOp::GetRecords), FailureKind::Unreachable);
    let mut subscription = me.subscribe(horizon()).await;
    let record = next(&mut subscription).await;
    assert_eq!((name(&record), harness.millis()), ("a0", 0));
    record.ack();
    // After a good read, the next one costs nothing either.
    me.service.fail(Rule::on(ServiceOp::GetRecords), FailureKind::Unreachable);
    assert!(within(&mut subscription, seconds(60)).await.is_empty());
}

// R10
#[tokio::test(start_paused = true)]
async fn connections_that_keep_breaking_are_reported_from_the_second_on() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.lose_connections();
    me.service.fail(Rule::on(ServiceOp::GetRecords).times(3), FailureKind::Unreachable);
    let mut subscription = me.subscribe(horizon()).await;
    for (failures, at) in [(2, 0), (3, 1_000)] {
        assert_eq!((failed(&mut subscription).await, harness.millis()), ((failures, false), at));
    }
    assert_eq!((name(&next(&mut subscription).await), harness.millis()), ("a0", 2_000));
}

// R10
#[tokio::test(start_paused = true)]
async fn after_eleven_failures_in_a_row_the_lease_is_released_and_retaken_at_the_next_listing() {
    let harness = Harness::new(&["a", "z"]);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).after(1).times(11), FailureKind::Other);
    let (mut subscription, _others) = beside_another(&harness, &me, latest()).await;
    sleep(millis(500)).await;
    harness.kinesis.put("a", 2);
    for failures in 1..=11 {
        assert_eq!(failed(&mut subscription).await, (failures, failures == 11));
    }
    assert_eq!(harness.millis(), 11_000);
    sleep(millis(10)).await;
    assert_eq!(harness.owner("a").await, "");
    let records = take(&mut subscription, 2).await;
    assert_eq!((names(&records), harness.millis(), records[0].epoch()), (vec!["a0", "a1"], 20_000, 2));
}

// R10
#[tokio::test(start_paused = true)]
async fn only_the_newest_untaken_error_is_kept() {
    let harness = Harness::new(&["a", "z"]);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).after(1).times(11), FailureKind::Unreachable);
    let (mut subscription, _others) = beside_another(&harness, &me, latest()).await;
    sleep(seconds(15)).await;
    assert_eq!(failed(&mut subscription).await, (11, true));
    assert!(within(&mut subscription, seconds(60)).await.is_empty());
}

// R10
#[tokio::test(start_paused = true)]
async fn open_deliveries_stay_valid_for_the_drain_timeout_and_are_then_redelivered() {
    let harness = Harness::new(&["a", "z"]);
    harness.kinesis.put("a", 2);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).after(1).times(11), FailureKind::Other);
    let (mut subscription, _others) = beside_another(&harness, &me, horizon()).await;
    let mut records = take(&mut subscription, 2).await;
    let (second, first) = (records.pop().unwrap(), records.pop().unwrap());
    sleep(seconds(30)).await;
    assert_eq!(failed(&mut subscription).await, (11, true));
    assert_eq!(first.commit().await.unwrap(), Commit::Stored);
    let gave_up_at = 10_001;
    harness.until(gave_up_at + 30_000 - 100).await;
    assert_eq!((harness.owner("a").await.as_str(), harness.checkpoint("a").await.as_str()), ("me", "after a0"));
    sleep(millis(1_000)).await;
    assert_eq!(harness.owner("a").await, "");
    let again = next(&mut subscription).await;
    assert_eq!((name(&again), again.attempt(), again.epoch(), harness.millis()), ("a1", 1, 2, 50_000));
    assert_eq!(second.commit().await.unwrap(), Commit::Superseded);
}

// R10
#[tokio::test(start_paused = true)]
async fn the_lease_is_released_once_no_delivery_is_open() {
    let harness = Harness::new(&["a", "z"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).after(1).times(11), FailureKind::Other);
    let (mut subscription, _others) = beside_another(&harness, &me, horizon()).await;
    let record = next(&mut subscription).await;
    sleep(seconds(15)).await;
    assert_eq!(harness.owner("a").await, "me");
    record.ack();
    sleep(millis(10)).await;
    assert_eq!((harness.owner("a").await.as_str(), harness.checkpoint("a").await.as_str()), ("", "after a0"));
}

// R10
#[tokio::test(start_paused = true)]
async fn a_good_read_resets_the_count() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).times(10), FailureKind::Other);
    me.service.fail(Rule::on(ServiceOp::GetRecords).after(1).times(10), FailureKind::Other);
    let mut subscription = me.subscribe(latest()).await;
    for failures in (1..=10).chain(1..=10) {
        assert_eq!(failed(&mut subscription).await, (failures, false));
    }
    assert!(within(&mut subscription, seconds(60)).await.is_empty());
    assert_eq!(harness.row("a").await.unwrap().epoch, 1);
}

// R10
#[tokio::test(start_paused = true)]
async fn throttles_and_expired_iterators_neither_count_nor_reset_the_count() {
    for between in [FailureKind::Throttled, FailureKind::IteratorExpired] {
        let harness = Harness::new(&["a", "z"]);
        let me = harness.instance("me");
        me.service.fail(Rule::on(ServiceOp::GetRecords).times(10), FailureKind::Other);
        me.service.fail(Rule::on(ServiceOp::GetRecords), between);
        me.service.fail(Rule::on(ServiceOp::GetRecords), FailureKind::Other);
        let (mut subscription, _others) = beside_another(&harness, &me, latest()).await;
        for failures in 1..=11 {
            assert_eq!(failed(&mut subscription).await, (failures, failures == 11), "{between:?}");
        }
    }
}

// R10
#[tokio::test(start_paused = true)]
async fn failed_iterator_requests_count_too() {
    let harness = Harness::new(&["a", "z"]);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetShardIterator).times(6), FailureKind::Denied);
    me.service.fail(Rule::on(ServiceOp::GetRecords).times(5), FailureKind::Rejected);
    let (mut subscription, _others) = beside_another(&harness, &me, latest()).await;
    for failures in 1..=11 {
        assert_eq!(failed(&mut subscription).await, (failures, failures == 11));
    }
}

// R10
#[tokio::test(start_paused = true)]
async fn a_minute_of_nothing_but_timeouts_is_enough_and_the_lease_is_kept_meanwhile() {
    let harness = Harness::new(&["a", "z"]);
    let me = harness.instance("me");
    let fault = Fault::FailAfter(seconds(25), FailureKind::Unreachable);
    me.service.script.plan(Rule::on(ServiceOp::GetRecords).times(11), fault);
    let (mut subscription, _others) = beside_another(&harness, &me, latest()).await;
    for failures in 1..=3 {
        assert_eq!(harness.owner("a").await, "me");
        assert_eq!(failed(&mut subscription).await, (failures, failures == 3));
    }
    assert_eq!((harness.millis(), harness.row("a").await.unwrap().epoch), (3 * 25_000 + 2_000, 1));
}

// R10
#[tokio::test(start_paused = true)]
async fn an_outage_is_waited_out_under_the_same_lease_if_no_other_instance_is_in_sight() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon().read_limit(1)).await;
    let record = next(&mut subscription).await;
    assert_eq!(name(&record), "a0");
    me.service.fail(Rule::on(ServiceOp::GetRecords).always(), FailureKind::Other);
    harness.until(60_000).await;
    me.service.script.heal();
    let failures = match failed(&mut subscription).await {
        (failures, false) => failures,
        gave_up => panic!("{gave_up:?}"),
    };
    assert!(failures > 11, "{failures}");
    assert_eq!(record.commit().await.unwrap(), Commit::Stored);
    let record = next(&mut subscription).await;
    assert_eq!((name(&record), record.epoch()), ("a1", 1));
    assert!(harness.millis() < 71_000, "{}", harness.millis());
}

// R10
#[tokio::test(start_paused = true)]
async fn a_reader_alone_gives_up_after_some_minutes_so_that_an_instance_without_a_lease_can_take_the_shard() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let (me, other) = (harness.instance("me"), harness.instance("other"));
    me.service.fail(Rule::on(ServiceOp::GetRecords).always(), FailureKind::Other);
    let subscription = me.subscribe(horizon()).await;
    let mut others = other.subscribe(horizon()).await;
    let record = next(&mut others).await;
    assert_eq!((name(&record), record.epoch()), ("a0", 2));
    assert!((300_000..315_000).contains(&harness.millis()), "{}", harness.millis());
    drop(subscription);
}

// R10
#[tokio::test(start_paused = true)]
async fn a_failing_reader_gives_up_when_another_instance_comes_into_sight() {
    let harness = Harness::new(&["a", "z"]);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).of("a").always(), FailureKind::Other);
    let subscription = me.subscribe(latest().max_leases(1)).await;
    harness.until(40_000).await;
    assert_eq!(harness.row("a").await.unwrap().epoch, 1);
    let others = harness.instance("other").subscribe(latest()).await;
    harness.until(60_000).await;
    assert_eq!(harness.owner("a").await, "other");
    drop((subscription, others));
}

// R10
#[tokio::test(start_paused = true)]
async fn other_shards_continue_while_one_fails() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("b", 3);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).of("a").always(), FailureKind::Other);
    let mut subscription = me.subscribe(horizon()).await;
    let (mut records, mut gave_up) = (0, 0);
    while gave_up < 3 {
        match item(&mut subscription).await.unwrap() {
            Ok(delivery) => {
                records += 1;
                Delivery::ack(delivery);
            }
            Err(KinesisError::Read { gave_up: true, .. }) => {
                gave_up += 1;
                harness.kinesis.put("b", 1);
            }
            Err(_) => {}
        }
    }
    assert_eq!(records, 5);
}

// R10
#[tokio::test(start_paused = true)]
async fn a_failing_checkpoint_does_not_keep_an_abandoned_shard_forever() {
    let harness = Harness::new(&["a", "z"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).of("a").after(1).always(), FailureKind::Other);
    let mut subscription = me.subscribe(horizon().max_leases(1)).await;
    let mut others = harness.instance("other").subscribe(horizon()).await;
    next(&mut subscription).await.ack();
    me.table.fail(Rule::on(TableOp::Checkpoint).always());
    assert_eq!(name(&next(&mut others).await), "a0");
    assert!(harness.millis() < 30_000, "{}", harness.millis());
}

// L8
#[tokio::test(start_paused = true)]
async fn an_outage_of_many_shards_logs_one_line_and_then_counts() {
    let logged = CapturedLogs::new();
    let shards: Vec<String> = (0..50).map(|n| format!("s{n:02}")).collect();
    let harness = Harness::new(&shards.iter().map(String::as_str).collect::<Vec<_>>());
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).always(), FailureKind::Unreachable);
    me.table.fail(Rule::on(TableOp::Renew).always());
    let mut subscription = me.subscribe(latest()).await.tolerant();
    assert!(tokio::time::timeout(seconds(9), subscription.next()).await.is_err());
    let lines = |from| logged.with(from).len();
    let from = ["reading::reader", "coordination::renewer", "subscription::stream", "state::warnings"];
    assert_eq!(from.map(lines), [1, 1, 2, 0], "the stream hides errors of two kinds");
    assert!(tokio::time::timeout(seconds(28), subscription.next()).await.is_err());
    assert_eq!(from.map(lines), [1, 1, 2, 4]);
    let counted = logged.with("state::warnings: a read failed (").remove(0);
    // Each of the fifty readers failed once a second, until its lease was in doubt after ten seconds.
    assert!(counted.contains("count=549") && counted.contains("kind=Some(Unreachable)"), "{counted}");
}
