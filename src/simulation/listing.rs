//! Listings run concurrently with everything else. A listing that hangs blocks neither leases nor known shards (L6,
//! H4).

use super::{
    script::{Fault, Rule},
    table::Ask,
    wire::Op,
};
use crate::{
    delivery::Delivery,
    error::{KinesisError, service::FailureKind},
    simulation::harness::{Ground, Instance, error, horizon, latest, name, next, seconds, take},
};

const THREE: [&str; 3] = ["a", "b", "c"];

/// From here on, listings of the instance hang for as long as a call may take.
fn hang(instance: &Instance) {
    let fault = Fault::FailAfter(seconds(30), FailureKind::Unreachable);
    instance.wire.script.plan(Rule::on(Op::ListShards).always(), fault);
}

// L6, E5
#[tokio::test(start_paused = true)]
async fn a_released_lease_is_taken_in_the_next_round_while_a_listing_hangs() {
    let ground = Ground::new(&THREE);
    let (a, b) = (ground.instance("A"), ground.instance("B"));
    let first = a.subscribe(latest()).await;
    let second = b.subscribe(latest()).await;
    hang(&b);
    ground.until(13_500).await;
    assert!(first.close().await.is_clean());
    ground.until(15_000 + 10).await;
    assert_eq!(ground.shares().await, [("B".to_owned(), 3)].into());
    drop(second);
}

// E3, E5
#[tokio::test(start_paused = true)]
async fn the_leases_of_a_dead_instance_are_taken_in_time_while_a_listing_hangs() {
    let ground = Ground::new(&THREE);
    let (a, b) = (ground.instance("A"), ground.instance("B"));
    let dying = a.subscribe(latest()).await;
    let second = b.subscribe(latest()).await;
    hang(&b);
    ground.until(9_500).await;
    a.die(dying);
    // Other instances saw the lease change for the last time at 12 s.
    ground.until(22_010).await;
    assert_eq!(ground.shares().await, [("B".to_owned(), 3)].into());
    drop(second);
}

// E5
#[tokio::test(start_paused = true)]
async fn shards_are_handed_over_while_the_listings_of_both_instances_hang() {
    let ground = Ground::new(&["a", "b", "c", "d"]);
    let (a, b) = (ground.instance("A"), ground.instance("B"));
    let first = a.subscribe(latest()).await;
    hang(&a);
    ground.until(11_000).await;
    let second = b.subscribe(latest()).await;
    hang(&b);
    ground.until(18_010).await;
    assert_eq!(ground.shares().await, [("A".to_owned(), 2), ("B".to_owned(), 2)].into());
    assert_eq!(a.wire.script.times_of(Op::ListShards), [seconds(0), seconds(10)]);
    drop((first, second));
}

// H4
#[tokio::test(start_paused = true)]
async fn children_named_by_the_last_page_start_at_once_while_a_listing_hangs() {
    let ground = Ground::new(&["a"]);
    ground.kinesis.name_children();
    ground.kinesis.put("a", 1);
    let me = ground.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let parent = next(&mut subscription).await;
    hang(&me);
    ground.kinesis.split("a", ["b", "c"]);
    ground.kinesis.put("b", 1);
    ground.kinesis.put("c", 1);
    ground.until(11_500).await;
    parent.ack();
    let children = take(&mut subscription, 2).await;
    assert_eq!((name(&children[0]), name(&children[1])), ("b0", "c0"));
    assert!(ground.millis() <= 12_600, "{}", ground.millis());
    children.into_iter().for_each(Delivery::ack);
}

// H4: the listing under way was sent before the end, so it says nothing about the children.
#[tokio::test(start_paused = true)]
async fn a_shard_end_during_a_listing_triggers_another_listing_at_once() {
    let ground = Ground::new(&["a"]);
    ground.kinesis.put("a", 1);
    let me = ground.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let parent = next(&mut subscription).await;
    me.wire.script.plan(Rule::on(Op::ListShards), Fault::FailAfter(seconds(4), FailureKind::Unreachable));
    ground.kinesis.split("a", ["b", "c"]);
    ground.kinesis.put("b", 1);
    ground.until(11_000).await;
    assert!(parent.commit().await.is_ok());
    assert!(matches!(error(&mut subscription).await, KinesisError::List { .. }));
    let child = next(&mut subscription).await;
    assert_eq!((name(&child), ground.millis()), ("b0", 14_000));
    assert_eq!(me.wire.script.times_of(Op::ListShards)[1..], [seconds(10), seconds(14)]);
}

// L9
#[tokio::test(start_paused = true)]
async fn closing_does_not_wait_for_a_listing() {
    let ground = Ground::new(&THREE);
    let me = ground.instance("me");
    let subscription = me.subscribe(latest()).await;
    hang(&me);
    ground.until(11_000).await;
    assert!(subscription.close().await.is_clean());
    assert!(ground.millis() < 11_010, "{}", ground.millis());
    assert!(ground.shares().await.is_empty());
}

// E1: a listing without news is no reason to read the leases.
#[tokio::test(start_paused = true)]
async fn a_listing_is_followed_by_a_read_of_the_leases_only_if_it_has_news() {
    let ground = Ground::new(&["a", "b"]);
    ground.kinesis.hide("b");
    let me = ground.instance("me");
    let subscription = me.subscribe(latest()).await;
    ground.until(16_500).await;
    ground.kinesis.show("b");
    ground.until(23_500).await;
    assert_eq!(me.wire.script.times_of(Op::ListShards), [0, 10, 20].map(seconds));
    assert_eq!(me.table.script.times_of(Ask::Leases), [0, 3, 6, 9, 12, 15, 18, 20, 23].map(seconds));
    assert_eq!(me.table.script.times(Ask::Take, "b"), [seconds(20)]);
    drop(subscription);
}
