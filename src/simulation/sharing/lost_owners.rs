//! Owners that die, close or cannot renew (E3, E5, R6).

use futures::{FutureExt, StreamExt};
use tokio::time::{sleep, timeout};

use super::{
    super::{
        script::{Fault, Rule},
        scripted_table::TableOp,
    },
    EIGHT, shares,
};

use crate::{
    config::position::KinesisPosition,
    delivery::Delivery,
    lease::Held,
    simulation::harness::{Harness, horizon, latest, millis, name, names, next, seconds, take, within},
    subscription::descriptor::KinesisStream,
    types::commit::Commit,
};

// E5
#[tokio::test(start_paused = true)]
async fn a_requested_shard_of_a_dead_owner_is_read_within_a_ttl() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 1);
    let a = harness.instance("A");
    let dying = a.subscribe(horizon()).await;
    sleep(millis(3_100)).await;
    let mut b = harness.instance("B").subscribe(horizon()).await;
    assert_eq!(harness.row("a").await.unwrap().wanted_by.as_deref(), Some("B"));
    a.die(dying);
    let record = next(&mut b).await;
    assert_eq!((name(&record), harness.millis()), ("a0", 13_100));
    for shard in ["a", "b"] {
        let row = harness.row(shard).await.unwrap();
        assert_eq!((row.owner.as_deref(), row.wanted_by.as_deref()), (Some("B"), None));
    }
}

// E5
#[tokio::test(start_paused = true)]
async fn a_shard_released_for_a_dead_instance_is_soon_taken_by_another() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 1);
    let mut a = harness.instance("A").subscribe(horizon()).await;
    let b = harness.instance("B");
    let dying = b.subscribe(horizon()).await;
    b.die(dying);
    sleep(seconds(4)).await;
    // The owner releases the lease at its next read of the leases, and the lease is reserved for the dead instance for
    // two more.
    let record = next(&mut a).await;
    assert_eq!((name(&record), record.epoch()), ("a0", 2));
    assert!(harness.millis() <= 13_000, "{}", harness.millis());
    assert_eq!(harness.row("a").await.unwrap().wanted_by, None);
}

// E5, L9
#[tokio::test(start_paused = true)]
async fn a_shard_released_for_another_instance_is_left_to_it_for_two_renewal_intervals() {
    let harness = Harness::new(&["a"]);
    harness.steal("a", "gone").await;
    let row = harness.row("a").await.unwrap();
    let _subscription = harness.instance("me").subscribe(latest()).await;
    harness.table().ask(&row.key, row.seen(), "heir").await.unwrap();
    harness.table().release(&Held::new(row.key, "gone", row.epoch)).await.unwrap();
    // The read at 3 s sees the release first.
    harness.until(8_999).await;
    assert_eq!(harness.owner("a").await, "");
    harness.until(9_500).await;
    assert_eq!(harness.owner("a").await, "me");
}

// E5
#[tokio::test(start_paused = true)]
async fn the_shards_of_a_closing_instance_are_taken_in_one_pass() {
    let harness = Harness::new(&EIGHT);
    let a = harness.instance("A").subscribe(latest()).await;
    let b = harness.instance("B").subscribe(latest()).await;
    sleep(seconds(20)).await;
    assert_eq!(harness.shares().await, shares([("A", 4), ("B", 4)]));
    assert!(a.close().await.is_clean());
    sleep(millis(3_010)).await;
    assert_eq!(harness.shares().await, shares([("B", 8)]));
    drop(b);
}

// E3, E5: the time to live, counted from the read that saw the last sign of life.
#[tokio::test(start_paused = true)]
async fn the_shards_of_a_dead_instance_are_taken_a_ttl_after_its_last_observed_write() {
    let harness = Harness::new(&EIGHT);
    let a = harness.instance("A");
    let dying = a.subscribe(latest()).await;
    let b = harness.instance("B").subscribe(latest()).await;
    sleep(seconds(61)).await;
    a.die(dying);
    sleep(millis(8_900)).await;
    assert_eq!(harness.shares().await, shares([("A", 4), ("B", 4)]));
    sleep(millis(4_200)).await;
    assert_eq!(harness.shares().await, shares([("B", 8)]));
    drop(b);
}

// E3: an instance that cannot renew stops before another one can hold the shard.
#[tokio::test(start_paused = true)]
async fn an_instance_that_cannot_renew_delivers_nothing_once_another_one_may_hold_the_shard() {
    let harness = Harness::new(&["a"]);
    let a = harness.instance("A");
    let mut cut_off = a.subscribe(horizon().read_limit(1)).await;
    harness.kinesis.put("a", 1_000);
    let b = harness.instance("B");
    let mut other = b.subscribe(horizon()).await;
    next(&mut cut_off).await.ack();
    sleep(seconds(6)).await;
    a.table.fail(Rule::everything());
    let renewed = a.table.script.times(TableOp::Renew, "a").pop().unwrap().as_millis();
    let mut last = 0;
    let first_of_other = loop {
        if let Ok(Some(Ok(record))) = timeout(millis(50), cut_off.next()).await {
            last = harness.millis();
            record.ack();
        }
        if let Some(Some(Ok(record))) = other.next().now_or_never() {
            break record;
        }
    };
    assert!((renewed + 9_000..renewed + 10_000).contains(&last), "{renewed}, {last}");
    assert!(harness.millis() >= renewed + 10_000, "{renewed}, {}", harness.millis());
    assert_eq!(first_of_other.epoch(), 2);
}

// R6: a replay is for the shards with which a subscription opens.
#[tokio::test(start_paused = true)]
async fn a_forced_start_skips_handed_over_shards_but_covers_those_of_a_dead_owner() {
    for dies in [false, true] {
        let harness = Harness::new(&["a", "b"]);
        harness.kinesis.put("a", 3);
        let a = harness.instance("A");
        let mut old = a.subscribe(horizon()).await;
        take(&mut old, 2).await.into_iter().for_each(Delivery::ack);
        sleep(seconds(2)).await;
        let replay: KinesisStream = latest().start_at(KinesisPosition::horizon());
        if dies {
            a.die(old);
        } else {
            tokio::spawn(async move { while old.next().await.is_some() {} });
        }
        let mut b = harness.instance("B").subscribe(replay).await;
        let came = within(&mut b, seconds(40)).await;
        let expected: &[&str] = if dies { &["a0", "a1", "a2"] } else { &["a2"] };
        assert_eq!(names(&came), expected, "dies: {dies}");
    }
}

// E2
#[tokio::test(start_paused = true)]
async fn a_manually_deleted_lease_row_is_reported_and_the_shard_is_read_again() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let first = next(&mut subscription).await;
    let row = harness.row("a").await.unwrap();
    harness.table().delete(&row.key, row.seen()).await.unwrap();
    let mut lost = None;
    let mut again = Vec::new();
    while again.len() < 2 {
        match crate::simulation::harness::item(&mut subscription).await.unwrap() {
            Ok(record) if lost.is_some() => again.push(record),
            Ok(record) => assert_eq!(name(&record), "a1"),
            Err(error) => lost = Some(error),
        }
    }
    let lost = lost.unwrap();
    assert!(matches!(&lost, crate::KinesisError::LeaseLost { owner: None, epoch: 1, .. }), "{lost}");
    assert_eq!(names(&again), ["a0", "a1"]);
    assert_eq!(first.commit().await.unwrap(), Commit::Superseded);
    for record in again {
        assert_eq!(record.commit().await.unwrap(), Commit::Stored);
    }
    assert_eq!(harness.checkpoint("a").await, "after a1");
}

// E5
#[tokio::test(start_paused = true)]
async fn a_lease_that_expires_during_another_take_is_taken_right_after_it() {
    let harness = Harness::new(&["a", "x", "y"]);
    for shard in ["a", "x", "y"] {
        harness.steal(shard, "ghost").await;
    }
    let me = harness.instance("me");
    let subscription = me.subscribe(latest().list_interval(seconds(60))).await;
    // The instance reads the leases at 9 s and at 10 s, when the lease of "a" has expired.
    harness.until(8_500).await;
    harness.steal("x", "ghost").await;
    harness.until(9_500).await;
    harness.steal("y", "ghost").await;
    me.table.script.plan(Rule::on(TableOp::Take).of("x"), Fault::Delay(millis(1_500)));
    sleep(seconds(20)).await;
    let took = |shard| me.table.script.times(TableOp::Take, shard);
    assert_eq!((took("a"), took("x"), took("y")), (vec![seconds(10)], vec![seconds(19)], vec![millis(20_500)]));
    drop(subscription);
}
