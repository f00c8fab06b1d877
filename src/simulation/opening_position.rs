//! The opening position of a shard is durable before its first record is delivered (R13).

use tokio::time::sleep;

use super::{
    script::{Fault, Rule},
    scripted_table::TableOp,
};
use crate::{
    delivery::Delivery,
    error::KinesisError,
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
