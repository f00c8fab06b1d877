//! The opening position of a shard is durable: from its opening at LATEST (R5), and before its first record is
//! delivered (R13).

use tokio::time::sleep;

use super::{
    kinesis::EPOCH,
    script::{Fault, Rule},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};
use crate::{
    config::position::KinesisPosition,
    delivery::Delivery,
    error::{KinesisError, service::FailureKind},
    simulation::harness::{
        Harness, error, horizon, item, latest, millis, name, names, next, range, seconds, take, within,
    },
};

// R13
#[tokio::test(start_paused = true)]
async fn the_first_record_is_delivered_only_once_the_row_holds_its_position() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    me.table.script.plan(Rule::on(TableOp::Checkpoint), Fault::Delay(millis(1_700)));
    let mut subscription = me.subscribe(horizon()).await;
    let first = next(&mut subscription).await;
    assert_eq!((name(&first), harness.millis()), ("a0", 1_700));
    assert_eq!(harness.checkpoint("a").await, "at a0");
    assert_eq!(take(&mut subscription, 2).await.len(), 2);
    assert_eq!(me.table.checkpoints("a"), ["at a0"]);
}

// R13
#[tokio::test(start_paused = true)]
async fn the_first_record_waits_until_its_position_is_stored() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.table.fail(Rule::on(TableOp::Checkpoint).times(4));
    let mut subscription = me.subscribe(horizon()).await;
    assert!(matches!(error(&mut subscription).await, KinesisError::Store { .. }));
    loop {
        match item(&mut subscription).await.unwrap() {
            Ok(record) => break assert_eq!(name(&record), "a0"),
            Err(error) => assert!(matches!(error, KinesisError::Store { .. })),
        }
    }
    assert_eq!(harness.checkpoint("a").await, "at a0");
    assert_eq!(harness.millis(), 100 + 200 + 400 + 800);
}

// R13
#[tokio::test(start_paused = true)]
async fn ten_unsettled_records_after_the_tip_are_redelivered_after_a_crash() {
    for (successor, wait) in [("me", 0), ("another", 13)] {
        for read in [0, 5, 10] {
            let harness = Harness::new(&["a"]);
            harness.kinesis.put("a", 7);
            sleep(seconds(10)).await;
            let me = harness.instance("me");
            let mut subscription = me.subscribe(latest()).await;
            harness.kinesis.put("a", 10);
            sleep(seconds(2)).await;
            let held = take(&mut subscription, read).await;
            me.die(subscription);
            drop(held);
            let mut subscription = harness.instance(successor).subscribe(latest()).await;
            let again = within(&mut subscription, seconds(wait + 5)).await;
            assert_eq!(names(&again), range("a", 7..17), "{successor} after {read}");
        }
    }
}

// R13, A3
#[tokio::test(start_paused = true)]
async fn a_record_dropped_before_a_crash_is_redelivered_even_if_later_ones_were_settled() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 10);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    for (index, record) in take(&mut subscription, 10).await.into_iter().enumerate() {
        if index != 4 {
            record.ack();
        }
    }
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a3");
    me.die(subscription);
    let mut subscription = harness.instance("me").subscribe(latest()).await;
    assert_eq!(names(&within(&mut subscription, seconds(5)).await), range("a", 4..10));
}

// R13
#[tokio::test(start_paused = true)]
async fn a_shard_with_a_checkpoint_stores_no_opening_position() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    next(&mut subscription).await.ack();
    subscription.close().await;
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let record: Delivery = next(&mut subscription).await;
    assert_eq!((name(&record), me.table.checkpoints("a").len()), ("a1", 0));
}

// R5
#[tokio::test(start_paused = true)]
async fn latest_of_a_shard_without_records_stays_where_it_was_after_a_restart() {
    for (successor, wait, closes) in [("me", 0, true), ("other", 0, true), ("me", 0, false), ("other", 13, false)] {
        let harness = Harness::new(&["a", "b"]);
        harness.kinesis.put("a", 7);
        sleep(seconds(10)).await;
        let me = harness.instance("me");
        let mut subscription = me.subscribe(latest()).await;
        assert!(within(&mut subscription, seconds(3_600)).await.is_empty());
        if closes {
            assert!(subscription.close().await.is_clean());
        } else {
            me.die(subscription);
        }
        harness.kinesis.put("a", 3);
        sleep(seconds(60)).await;
        let mut subscription = harness.instance(successor).subscribe(latest()).await;
        let records = within(&mut subscription, seconds(wait + 5)).await;
        assert_eq!(names(&records), range("a", 7..10), "{successor}, closes: {closes}");
    }
}

// R5
#[tokio::test(start_paused = true)]
async fn the_take_stores_the_time_of_latest_in_the_same_write() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    let subscription = me.subscribe(latest()).await;
    assert_eq!(me.table.log("a"), ["Take me"]);
    assert_eq!(harness.checkpoint("a").await, format!("since {} ms", EPOCH - 1_000));
    subscription.close().await;
    let subscription = harness.instance("me").subscribe(latest()).await;
    assert_eq!(harness.checkpoint("a").await, format!("since {} ms", EPOCH - 1_000));
    subscription.close().await;
}

// R5: other positions are not remembered before a record was read, so that they can still be changed.
#[tokio::test(start_paused = true)]
async fn a_take_at_another_position_stores_no_time() {
    for start in [horizon(), latest().initial_position(KinesisPosition::timestamp(EPOCH))] {
        let harness = Harness::new(&["a"]);
        let _subscription = harness.instance("me").subscribe(start).await;
        assert_eq!(harness.row("a").await.unwrap().checkpoint, None);
    }
}

// R5, L5
#[tokio::test(start_paused = true)]
async fn latest_is_remembered_even_if_the_first_listing_comes_late() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::ListShards).times(1), FailureKind::Other);
    let subscription = me.subscribe(latest()).await;
    sleep(seconds(30)).await;
    assert_eq!(harness.checkpoint("a").await, format!("since {} ms", EPOCH - 1_000));
    subscription.close().await;
    harness.kinesis.put("a", 3);
    sleep(seconds(60)).await;
    let mut subscription = harness.instance("me").subscribe(latest()).await;
    assert_eq!(names(&within(&mut subscription, seconds(5)).await), range("a", 0..3));
}

// R5, H5
#[tokio::test(start_paused = true)]
async fn a_shard_that_was_split_while_nobody_read_is_read_from_the_remembered_latest() {
    let harness = Harness::new(&["a"]);
    let subscription = harness.instance("me").subscribe(latest()).await;
    sleep(seconds(60)).await;
    subscription.close().await;
    harness.kinesis.put("a", 2);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    sleep(seconds(60)).await;
    let mut subscription = harness.instance("me").subscribe(latest()).await;
    let parents = take(&mut subscription, 2).await;
    assert_eq!(names(&parents), ["a0", "a1"]);
    parents.into_iter().for_each(Delivery::ack);
    assert_eq!(names(&within(&mut subscription, seconds(5)).await), ["b0"]);
}
