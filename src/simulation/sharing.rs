//! Instances share the shards: they ask each other until the shares are even, and a hand-over repeats no settled record
//! (E5, A7).

use std::collections::BTreeMap;

use futures::{FutureExt, StreamExt, future::join_all};
use tokio::{
    select,
    time::{sleep, timeout},
};

use super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};
use crate::{
    config::position::KinesisPosition,
    delivery::Delivery,
    error::service::{FailureKind, StoreError},
    lease::Held,
    simulation::harness::{Harness, horizon, latest, millis, name, names, next, range, seconds, take, within},
    state::{stats::ShardState, tracker::Commit},
    subscription::descriptor::KinesisStream,
};

const EIGHT: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

fn shares<'a>(shares: impl IntoIterator<Item = (&'a str, usize)>) -> BTreeMap<String, usize> {
    shares.into_iter().map(|(owner, share)| (owner.to_owned(), share)).collect()
}

// E5
#[tokio::test(start_paused = true)]
async fn a_second_instance_gets_half_of_eight_shards_in_four_moves_and_then_nothing_moves() {
    let harness = Harness::new(&EIGHT);
    let a = harness.instance("A").subscribe(latest()).await;
    let b = harness.instance("B").subscribe(latest()).await;
    assert_eq!(harness.shares().await, shares([("A", 8)]));
    sleep(millis(6_500)).await;
    assert_eq!(harness.shares().await, shares([("A", 4), ("B", 4)]));
    sleep(seconds(600)).await;
    assert_eq!((harness.shares().await, harness.takes().await), (shares([("A", 4), ("B", 4)]), 8 + 4));
    drop((a, b));
}

// E5
#[tokio::test(start_paused = true)]
async fn a_sixth_instance_gets_its_share_of_forty_shards_within_a_few_passes() {
    let shards: Vec<String> = (0..40).map(|n| format!("s{n:02}.")).collect();
    let harness = Harness::new(&shards.iter().map(String::as_str).collect::<Vec<_>>());
    let mut fleet = Vec::new();
    for n in 0..5 {
        fleet.push(harness.instance(&format!("i{n}")).subscribe(latest()).await);
        sleep(seconds(20)).await;
    }
    assert_eq!(harness.shares().await.into_values().collect::<Vec<_>>(), [8; 5]);
    let before = harness.takes().await;
    fleet.push(harness.instance("i5").subscribe(latest()).await);
    sleep(millis(6_500)).await;
    let mut counts: Vec<usize> = harness.shares().await.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [6, 6, 7, 7, 7, 7]);
    sleep(seconds(60)).await;
    assert_eq!(harness.takes().await, before + 6);
}

// E5
#[tokio::test(start_paused = true)]
async fn instances_that_start_together_reach_an_even_share() {
    let harness = Harness::new(&EIGHT);
    let instances: Vec<_> = (0..3).map(|n| harness.instance(&format!("i{n}"))).collect();
    let fleet = join_all(instances.iter().map(|instance| instance.subscribe(latest()))).await;
    sleep(seconds(20)).await;
    let mut counts: Vec<usize> = harness.shares().await.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 3, 3]);
    let before = harness.takes().await;
    sleep(seconds(300)).await;
    assert_eq!(harness.takes().await, before);
    drop(fleet);
}

// E5, A3
#[tokio::test(start_paused = true)]
async fn records_settled_before_the_hand_over_deadline_are_not_redelivered() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 10);
    let mut a = harness.instance("A").subscribe(horizon().read_limit(5)).await;
    let in_flight = take(&mut a, 5).await;
    let mut b = harness.instance("B").subscribe(horizon()).await;
    // The consumer does not get the page that was read ahead.
    sleep(seconds(20)).await;
    assert!(a.next().now_or_never().is_none());
    assert_eq!((harness.owner("a").await.as_str(), a.stats().shards[0].state), ("A", ShardState::Draining));
    in_flight.into_iter().for_each(Delivery::ack);
    let rest = take(&mut b, 5).await;
    assert_eq!((names(&rest), rest[0].epoch()), (range("a", 5..10).iter().map(String::as_str).collect(), 2));
    assert_eq!(harness.checkpoint("a").await, "after a4");
    assert!(within(&mut a, seconds(60)).await.is_empty());
}

// E5
#[tokio::test(start_paused = true)]
async fn a_requested_shard_is_released_after_the_drain_timeout_and_open_records_are_redelivered() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 2);
    let mut a = harness.instance("A").subscribe(horizon().drain_timeout(seconds(8))).await;
    let (first, second) = (next(&mut a).await, next(&mut a).await);
    let mut b = harness.instance("B").subscribe(horizon()).await;
    first.ack();
    second.nack();
    assert_eq!(names(&within(&mut a, seconds(2)).await), ["a1"]);
    let again = next(&mut b).await;
    assert_eq!((name(&again), again.epoch(), again.attempt()), ("a1", 2, 1));
}

// A7
#[tokio::test(start_paused = true)]
async fn returned_records_do_not_delay_a_hand_over() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 2);
    let mut a = harness.instance("A").subscribe(horizon()).await;
    let b = harness.instance("B");
    let (first, second) = (next(&mut a).await, next(&mut a).await);
    sleep(millis(2_500)).await;
    let mut b = b.subscribe(horizon()).await;
    first.nack();
    second.ack();
    let again = take(&mut b, 2).await;
    assert_eq!(names(&again), ["a0", "a1"]);
    assert!(harness.millis() <= 6_100, "{}", harness.millis());
}

// A3, E2
#[tokio::test(start_paused = true)]
async fn settlements_of_a_former_owner_are_superseded_and_change_nothing() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 10);
    let a = harness.instance("A");
    let mut subscription = a.subscribe(horizon()).await;
    let mut held = take(&mut subscription, 6).await;
    let fifth = held.pop().unwrap();
    held.into_iter().for_each(Delivery::ack);
    sleep(seconds(2)).await;
    // The instance pauses for longer than a lease lives, and no call reaches the table meanwhile.
    a.table.fail(Rule::everything());
    let mut b = harness.instance("B").subscribe(horizon()).await;
    let rest = take(&mut b, 5).await;
    assert_eq!((names(&rest)[0], names(&rest)[4]), ("a5", "a9"));
    for delivery in rest {
        assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);
    }
    a.table.script.heal();
    let row = harness.row("a").await.unwrap();
    let commit = fifth.commit();
    sleep(seconds(3)).await;
    assert_eq!(commit.await.unwrap(), Commit::Superseded);
    let now = harness.row("a").await.unwrap();
    assert_eq!((now.owner, now.epoch, now.checkpoint), (row.owner, row.epoch, row.checkpoint));
    assert_eq!(harness.checkpoint("a").await, "after a9");
}

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

// E5, H3
#[tokio::test(start_paused = true)]
async fn a_requested_shard_that_ends_is_done_and_the_request_is_removed() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 1);
    let mut a = harness.instance("A").subscribe(horizon()).await;
    let last = next(&mut a).await;
    harness.kinesis.split("a", ["c", "d"]);
    sleep(millis(1_500)).await;
    let b = harness.instance("B").subscribe(horizon()).await;
    assert_eq!(harness.row("a").await.unwrap().wanted_by.as_deref(), Some("B"));
    assert_eq!(last.commit().await.unwrap(), Commit::Stored);
    sleep(seconds(30)).await;
    let row = harness.row("a").await.unwrap();
    assert_eq!((row.owner, row.wanted_by, harness.checkpoint("a").await.as_str()), (None, None, "SHARD_END"));
    let mut counts: Vec<usize> = harness.shares().await.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, 2]);
    drop((a, b));
}

// A3, H3: no record of it was ever delivered, so its position is still to be stored.
#[tokio::test(start_paused = true)]
async fn an_empty_shard_requested_during_its_shard_end_write_stays_at_its_end() {
    let harness = Harness::new(&["a", "b"]);
    let instance = harness.instance("A");
    let a = instance.subscribe(horizon()).await;
    sleep(seconds(4)).await;
    instance.table.script.plan(Rule::on(TableOp::Checkpoint).of("a"), Fault::Delay(millis(2_500)));
    harness.kinesis.split("a", ["c", "d"]);
    let b = harness.instance("B").subscribe(horizon()).await;
    assert_eq!(harness.row("a").await.unwrap().wanted_by.as_deref(), Some("B"));
    sleep(seconds(20)).await;
    assert_eq!(instance.table.log("a"), ["Take A", "Checkpoint SHARD_END", "Release"]);
    assert_eq!(harness.checkpoint("a").await, "SHARD_END");
    drop((a, b));
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

// E5
#[tokio::test(start_paused = true)]
async fn an_ignored_request_expires_and_another_shard_is_requested() {
    let harness = Harness::new(&["a", "b", "c", "d"]);
    for shard in ["a", "b", "c", "d"] {
        harness.steal(shard, "foreign").await;
    }
    let foreign = async {
        loop {
            for shard in ["a", "b", "c", "d"] {
                let row = harness.row(shard).await.unwrap();
                let held = Held { key: row.key, owner: "foreign".into(), epoch: row.epoch };
                harness.table().renew(&held).await.unwrap();
                if shard == "d" && row.wanted_by.is_some() {
                    harness.table().release(&held).await.unwrap();
                }
            }
            sleep(seconds(1)).await;
        }
    };
    let instance = harness.instance("me");
    let me = async {
        let _subscription = instance.subscribe(latest()).await;
        sleep(seconds(600)).await;
    };
    select! {
        () = foreign => {}
        () = me => {}
    }
    assert_eq!(instance.table.log("a"), ["Want me"]);
    assert_eq!(instance.table.log("b"), ["Want me"]);
    assert_eq!(instance.table.script.times(TableOp::Want, "c"), [seconds(45)]);
    assert_eq!(instance.table.script.times(TableOp::Want, "d"), [seconds(45)]);
    assert_eq!(harness.shares().await, shares([("foreign", 3), ("me", 1)]));
}

// E5: something else happens between its read of the rows and its request.
#[tokio::test(start_paused = true)]
async fn a_shard_handed_over_during_another_take_counts_once() {
    let harness = Harness::new(&["a", "b", "c", "d", "e"]);
    let instances = ["A", "B", "C"].map(|owner| harness.instance(owner));
    for instance in &instances {
        let late = Fault::FailAfter(seconds(1), StoreError::new("scripted"));
        instance.table.script.plan(Rule::on(TableOp::Take).of("e").always(), late);
    }
    let a = instances[0].subscribe(latest()).await;
    let b = instances[1].subscribe(latest().max_leases(2)).await;
    sleep(seconds(20)).await;
    assert_eq!(harness.shares().await, shares([("A", 2), ("B", 2)]));
    let c = instances[2].subscribe(latest().max_leases(1)).await;
    sleep(seconds(20)).await;
    assert_eq!(harness.shares().await, shares([("A", 1), ("B", 2), ("C", 1)]));
    assert!(instances[0].table.script.calls(TableOp::Want).is_empty());
    drop((a, b, c));
}

// E5
#[tokio::test(start_paused = true)]
async fn an_instance_that_cannot_list_the_shards_requests_none() {
    let harness = Harness::new(&EIGHT);
    let a = harness.instance("A").subscribe(latest()).await;
    let blind = harness.instance("B");
    blind.service.fail(Rule::on(ServiceOp::ListShards).always(), FailureKind::Denied);
    let b = blind.subscribe(latest()).await;
    sleep(seconds(60)).await;
    assert_eq!((harness.shares().await, harness.takes().await), (shares([("A", 8)]), 8));
    assert!(blind.table.script.calls(TableOp::Want).is_empty());
    blind.service.script.heal();
    sleep(seconds(8)).await;
    assert_eq!((harness.shares().await, harness.takes().await), (shares([("A", 4), ("B", 4)]), 8 + 4));
    drop((a, b));
}

// E5, R10
#[tokio::test(start_paused = true)]
async fn a_shard_given_up_before_the_last_listing_is_taken_at_the_hand_over() {
    let harness = Harness::new(&["a", "b", "c"]);
    harness.kinesis.put("a", 1);
    let instance = harness.instance("A");
    instance.service.script.plan(Rule::on(ServiceOp::GetRecords).times(3 * 11), Fault::Fail(FailureKind::Other));
    let a = instance.subscribe(horizon()).await;
    harness.until(10_500).await;
    let mut b = harness.instance("B").subscribe(horizon()).await;
    assert_eq!(harness.shares().await, shares([("B", 3)]));
    let record = next(&mut b).await;
    harness.until(21_000).await;
    record.ack();
    harness.until(24_000).await;
    assert_eq!(harness.shares().await, shares([("A", 1), ("B", 2)]));
    drop((a, b));
}

// E5, L9
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

// E5
#[tokio::test(start_paused = true)]
async fn shards_without_room_are_counted_and_logged_and_read_once_there_is_room() {
    let logged = crate::simulation::harness::CapturedLogs::new();
    let harness = Harness::new(&["a", "b", "c"]);
    let one = harness.instance("one").subscribe(latest().max_leases(1)).await;
    let two = harness.instance("two").subscribe(latest().max_leases(1)).await;
    assert_eq!((one.stats().unowned, two.stats().unowned), (2, 1));
    sleep(seconds(60)).await;
    assert_eq!((one.stats().unowned, two.stats().unowned), (1, 1));
    assert_eq!(harness.shares().await, shares([("one", 1), ("two", 1)]));
    assert_eq!(logged.with("shards are read by nobody").len(), 2);
    let states: Vec<(ShardState, Option<String>)> =
        one.stats().shards.into_iter().map(|shard| (shard.state, shard.owner.map(|owner| owner.to_string()))).collect();
    let expected = [
        (ShardState::Reading, Some("one".to_owned())),
        (ShardState::Elsewhere, Some("two".to_owned())),
        (ShardState::Released, None),
    ];
    assert_eq!(states, expected);
    let three = harness.instance("three").subscribe(latest()).await;
    assert_eq!(harness.shares().await, shares([("one", 1), ("three", 1), ("two", 1)]));
    sleep(seconds(4)).await;
    assert_eq!((one.stats().unowned, two.stats().unowned, three.stats().unowned), (0, 0, 0));
}

// H4
#[tokio::test(start_paused = true)]
async fn the_children_of_an_ended_shard_use_the_room_that_it_frees() {
    let harness = Harness::new(&["a"]);
    let mut subscription = harness.instance("me").subscribe(horizon().max_leases(1)).await;
    harness.kinesis.put("a", 1);
    let last = next(&mut subscription).await;
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("c", 1);
    harness.kinesis.put("b", 1);
    sleep(seconds(2)).await;
    let begun = harness.millis();
    last.ack();
    assert_eq!((name(&next(&mut subscription).await), subscription.stats().unowned), ("b0", 1));
    assert!(harness.millis() - begun < 1_500, "{}", harness.millis() - begun);
}

// R13: LATEST differs for each instance, so the position travels with the shard.
#[tokio::test(start_paused = true)]
async fn a_shard_handed_over_before_any_record_continues_where_it_was_opened() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 1);
    sleep(seconds(10)).await;
    let a = harness.instance("A");
    let first = a.subscribe(latest()).await;
    // The instance cannot read for a while, and a record arrives meanwhile. Only then does the other one start.
    a.service.script.plan(Rule::on(ServiceOp::GetRecords).of("a").always(), Fault::Fail(FailureKind::Throttled));
    sleep(seconds(5)).await;
    harness.kinesis.put("a", 1);
    sleep(seconds(60)).await;
    let mut b = harness.instance("B").subscribe(latest()).await;
    let record = next(&mut b).await;
    assert_eq!(name(&record), "a1");
    assert_eq!(a.table.log("a")[1..], ["Checkpoint since 1700000009000 ms", "Release"]);
    drop(first);
}

// R13: the new owner starts with the records that were read and not delivered.
#[tokio::test(start_paused = true)]
async fn a_shard_handed_over_before_any_delivery_continues_at_the_first_record_read() {
    let harness = Harness::new(&["a", "b"]);
    let a = harness.instance("A");
    let first = a.subscribe(latest()).await;
    harness.kinesis.put("a", 1);
    sleep(seconds(60)).await;
    let mut b = harness.instance("B").subscribe(latest()).await;
    assert_eq!(name(&next(&mut b).await), "a0");
    drop(first);
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
