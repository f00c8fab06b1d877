//! Hand-overs of requested shards (E5, A3, A7).

use futures::{FutureExt, StreamExt};
use tokio::time::sleep;

use super::super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};

use crate::{
    delivery::Delivery,
    error::service::FailureKind,
    simulation::harness::{Harness, horizon, latest, millis, name, names, next, range, seconds, take, within},
    state::stats::ShardState,
    types::commit::Commit,
};

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

// A5, E5
#[tokio::test(start_paused = true)]
async fn a_page_that_was_set_aside_is_dropped_as_soon_as_its_shard_is_handed_over() {
    let harness = Harness::new(&["a", "b"]);
    (0..5).for_each(|_| harness.kinesis.put_bytes("a", 1_000));
    let mut a = harness.instance("A").subscribe(horizon().max_in_flight(2)).await;
    let held = within(&mut a, seconds(1)).await;
    assert_eq!((held.len(), a.stats().shards[0].bytes_held > 3_000), (2, true));
    let b = harness.instance("B").subscribe(horizon()).await;
    sleep(seconds(4)).await;
    let shard = &a.stats().shards[0];
    assert_eq!((shard.state, shard.in_flight, shard.bytes_held), (ShardState::Draining, 2, 0));
    drop((held, b));
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

// E5, L9
#[tokio::test(start_paused = true)]
async fn an_instance_that_closes_takes_its_requests_back() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 1);
    let mut a = harness.instance("A").subscribe(horizon()).await;
    let open = next(&mut a).await;
    let b = harness.instance("B").subscribe(horizon()).await;
    // A drains "a", because B asked for it.
    harness.until(5_000).await;
    assert_eq!(harness.row("a").await.unwrap().wanted_by.as_deref(), Some("B"));
    assert!(b.close().await.is_clean());
    assert_eq!(harness.row("a").await.unwrap().wanted_by, None);
    open.nack();
    harness.until(10_000).await;
    let again = next(&mut a).await;
    assert_eq!((name(&again), again.epoch(), harness.owner("a").await.as_str()), ("a0", 2, "A"));
    assert!(harness.millis() <= 10_000, "{}", harness.millis());
}
