//! Listings run concurrently with everything else. A listing that hangs blocks neither leases nor known shards (L6,
//! H4).

use super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};
use crate::{
    delivery::Delivery,
    error::{KinesisError, service::FailureKind},
    simulation::harness::{Harness, Instance, error, horizon, latest, name, next, seconds, take},
};

const THREE: [&str; 3] = ["a", "b", "c"];

/// From here on, listings of the instance hang for as long as a call may take.
fn hang(instance: &Instance) {
    let fault = Fault::FailAfter(seconds(30), FailureKind::Unreachable);
    instance.service.script.plan(Rule::on(ServiceOp::ListShards).always(), fault);
}

// L6, E5
#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_in_the_next_round_while_a_listing_hangs() {
    let harness = Harness::new(&THREE);
    let (a, b) = (harness.instance("A"), harness.instance("B"));
    let first = a.subscribe(latest()).await;
    let second = b.subscribe(latest()).await;
    hang(&b);
    harness.until(13_500).await;
    assert!(first.close().await.is_clean());
    harness.until(15_000 + 10).await;
    assert_eq!(harness.shares().await, [("B".to_owned(), 3)].into());
    drop(second);
}

// E3, E5
#[tokio::test(start_paused = true)]
async fn the_leases_of_a_dead_instance_are_taken_in_time_while_a_listing_hangs() {
    let harness = Harness::new(&THREE);
    let (a, b) = (harness.instance("A"), harness.instance("B"));
    let dying = a.subscribe(latest()).await;
    let second = b.subscribe(latest()).await;
    hang(&b);
    harness.until(9_500).await;
    a.die(dying);
    // Other instances saw the lease change for the last time at 12 s.
    harness.until(22_010).await;
    assert_eq!(harness.shares().await, [("B".to_owned(), 3)].into());
    drop(second);
}

// E5
#[tokio::test(start_paused = true)]
async fn shards_are_handed_over_while_the_listings_of_both_instances_hang() {
    let harness = Harness::new(&["a", "b", "c", "d"]);
    let (a, b) = (harness.instance("A"), harness.instance("B"));
    let first = a.subscribe(latest()).await;
    hang(&a);
    harness.until(11_000).await;
    let second = b.subscribe(latest()).await;
    hang(&b);
    harness.until(18_010).await;
    assert_eq!(harness.shares().await, [("A".to_owned(), 2), ("B".to_owned(), 2)].into());
    assert_eq!(a.service.script.times_of(ServiceOp::ListShards), [seconds(0), seconds(10)]);
    drop((first, second));
}

// H4
#[tokio::test(start_paused = true)]
async fn children_named_by_the_last_page_start_at_once_while_a_listing_hangs() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.name_children();
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let parent = next(&mut subscription).await;
    hang(&me);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    harness.kinesis.put("c", 1);
    harness.until(11_500).await;
    parent.ack();
    let children = take(&mut subscription, 2).await;
    assert_eq!((name(&children[0]), name(&children[1])), ("b0", "c0"));
    assert!(harness.millis() <= 12_600, "{}", harness.millis());
    children.into_iter().for_each(Delivery::ack);
}

// H4: the listing under way was sent before the end, so it says nothing about the children.
#[tokio::test(start_paused = true)]
async fn a_shard_end_during_a_listing_triggers_another_listing_at_once() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let parent = next(&mut subscription).await;
    me.service.script.plan(Rule::on(ServiceOp::ListShards), Fault::FailAfter(seconds(4), FailureKind::Unreachable));
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    harness.until(11_000).await;
    assert!(parent.commit().await.is_ok());
    assert!(matches!(error(&mut subscription).await, KinesisError::List { .. }));
    let child = next(&mut subscription).await;
    assert_eq!((name(&child), harness.millis()), ("b0", 14_000));
    assert_eq!(me.service.script.times_of(ServiceOp::ListShards)[1..], [seconds(10), seconds(14)]);
}

// L9
#[tokio::test(start_paused = true)]
async fn closing_does_not_wait_for_a_listing() {
    let harness = Harness::new(&THREE);
    let me = harness.instance("me");
    let subscription = me.subscribe(latest()).await;
    hang(&me);
    harness.until(11_000).await;
    assert!(subscription.close().await.is_clean());
    assert!(harness.millis() < 11_010, "{}", harness.millis());
    assert!(harness.shares().await.is_empty());
}

// E1: a listing without news is no reason to read the leases.
#[tokio::test(start_paused = true)]
async fn a_listing_is_followed_by_a_read_of_the_leases_only_if_it_has_news() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.hide("b");
    let me = harness.instance("me");
    let subscription = me.subscribe(latest()).await;
    harness.until(16_500).await;
    harness.kinesis.show("b");
    harness.until(23_500).await;
    assert_eq!(me.service.script.times_of(ServiceOp::ListShards), [0, 10, 20].map(seconds));
    assert_eq!(me.table.script.times_of(TableOp::Leases), [0, 3, 6, 9, 12, 15, 18, 20, 23].map(seconds));
    assert_eq!(me.table.script.times(TableOp::Take, "b"), [seconds(20)]);
    drop(subscription);
}
