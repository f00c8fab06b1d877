//! Reading up to the tip and no further (`stop_at_tip`).

use futures::{StreamExt, TryStreamExt};
use tokio::time::sleep;

use super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
};
use crate::{
    config::position::KinesisPosition,
    delivery::Delivery,
    error::service::FailureKind,
    simulation::harness::{Harness, horizon, latest, name, next, range, seconds, take},
    state::stats::ShardState,
    subscription::Subscription,
};

/// The names of all records to the end of the stream, each settled on arrival.
async fn drain(subscription: &mut Subscription) -> Vec<String> {
    let mut names = Vec::new();
    while let Some(delivery) = subscription.try_next().await.unwrap() {
        names.push(name(&delivery).to_owned());
        delivery.ack();
    }
    names
}

#[tokio::test(start_paused = true)]
async fn the_stream_ends_once_every_shard_is_read_to_its_tip() {
    let harness = Harness::new(&["a", "b", "c"]);
    harness.kinesis.put("a", 25);
    harness.kinesis.put("b", 3);
    let mut subscription = harness.instance("me").subscribe(horizon().stop_at_tip().read_limit(10)).await;
    let mut came = drain(&mut subscription).await;
    came.sort_by_key(|name| (name[..1].to_owned(), name[1..].parse::<usize>().unwrap()));
    assert_eq!(came, [range("a", 0..25), range("b", 0..3)].concat());
    assert!(harness.millis() < 3_000, "{}", harness.millis());
    assert!(subscription.close().await.is_clean());
    assert_eq!(harness.checkpoint("a").await, "after a24");
    assert_eq!((harness.owner("a").await, harness.owner("c").await), (String::new(), String::new()));
    // The next run reads the records that arrived since.
    harness.kinesis.put("c", 1);
    let mut subscription = harness.instance("me").subscribe(horizon().stop_at_tip()).await;
    assert_eq!(drain(&mut subscription).await, ["c0"]);
}

#[tokio::test(start_paused = true)]
async fn the_stream_ends_at_once_if_all_shards_are_empty() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 5);
    let mut subscription = harness.instance("me").subscribe(latest().stop_at_tip()).await;
    assert!(drain(&mut subscription).await.is_empty());
    assert!(harness.millis() < 2_000, "{}", harness.millis());
}

// A7
#[tokio::test(start_paused = true)]
async fn returned_records_are_redelivered_before_the_end() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let mut subscription = harness.instance("me").subscribe(horizon().stop_at_tip()).await;
    let (first, second) = (next(&mut subscription).await, next(&mut subscription).await);
    first.nack();
    second.ack();
    assert_eq!(drain(&mut subscription).await, ["a0"]);
    subscription.close().await;
    assert_eq!(harness.checkpoint("a").await, "after a1");
}

// L9
#[tokio::test(start_paused = true)]
async fn open_deliveries_can_still_be_settled_after_the_end() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let mut subscription = harness.instance("me").subscribe(horizon().stop_at_tip()).await;
    let all: Vec<Delivery> = subscription.by_ref().try_collect().await.unwrap();
    assert_eq!(all.len(), 3);
    sleep(seconds(10)).await;
    all.into_iter().for_each(Delivery::ack);
    assert!(subscription.close().await.is_clean());
    assert_eq!(harness.checkpoint("a").await, "after a2");
}

// H1, H4
#[tokio::test(start_paused = true)]
async fn children_are_read_to_their_tips_too() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    harness.kinesis.put("c", 1);
    let mut subscription = harness.instance("me").subscribe(horizon().stop_at_tip()).await;
    assert_eq!(drain(&mut subscription).await, ["a0", "a1", "b0", "c0"]);
    subscription.close().await;
    assert_eq!(
        (harness.checkpoint("a").await.as_str(), harness.checkpoint("b").await.as_str()),
        ("SHARD_END", "after b0")
    );
}

// H2
#[tokio::test(start_paused = true)]
async fn the_tip_of_a_closed_shard_is_not_its_end() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.end_with_an_empty_page();
    harness.kinesis.put("b", 1);
    let mut subscription = harness.instance("me").subscribe(horizon().stop_at_tip()).await;
    assert_eq!(drain(&mut subscription).await, ["a0", "a1", "b0"]);
}

#[tokio::test(start_paused = true)]
async fn a_shard_split_after_it_reached_its_tip_does_not_delay_the_end() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 1);
    harness.kinesis.put("b", 1);
    let mut subscription = harness.instance("me").subscribe(horizon().stop_at_tip()).await;
    let all = take(&mut subscription, 1).await;
    sleep(seconds(5)).await;
    harness.kinesis.split("a", ["c", "d"]);
    harness.kinesis.put("c", 1);
    sleep(seconds(20)).await;
    all.into_iter().for_each(Delivery::ack);
    assert_eq!(drain(&mut subscription).await, ["b0"]);
}

// R10
#[tokio::test(start_paused = true)]
async fn the_end_waits_for_a_shard_with_failing_reads() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 1);
    harness.kinesis.put("b", 1);
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::GetRecords).of("b").times(11), Fault::Fail(FailureKind::Other));
    let subscription = me.subscribe(horizon().stop_at_tip()).await;
    let mut came = Vec::new();
    let mut tolerant = subscription.tolerant();
    while let Some(delivery) = tolerant.try_next().await.unwrap() {
        came.push(name(&delivery).to_owned());
        delivery.ack();
    }
    assert_eq!(came, ["a0", "b0"]);
}

// A6
#[tokio::test(start_paused = true)]
async fn after_a_seek_reading_continues_to_the_tip() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 3);
    harness.kinesis.put("b", 1);
    let mut subscription = harness.instance("me").subscribe(horizon().stop_at_tip()).await;
    take(&mut subscription, 3).await.into_iter().for_each(Delivery::ack);
    let last = next(&mut subscription).await;
    sleep(seconds(5)).await;
    assert!(subscription.stats().shards.iter().all(|shard| shard.state == ShardState::AtTip));
    last.ack();
    subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    assert_eq!(drain(&mut subscription).await, ["a0", "a1", "a2", "b0"]);
}

// E5
#[tokio::test(start_paused = true)]
async fn the_end_waits_for_requested_shards_but_not_for_shards_of_other_instances() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 1);
    harness.kinesis.put("b", 1);
    let mut one = harness.instance("A").subscribe(horizon()).await;
    let other = async {
        let mut came = Vec::new();
        while let Some(delivery) = one.try_next().await.unwrap() {
            came.push(name(&delivery).to_owned());
            if came.len() == 1 {
                sleep(seconds(10)).await;
            }
            delivery.ack();
        }
    };
    let instance = harness.instance("B");
    let me = async {
        let mut two = instance.subscribe(horizon().stop_at_tip()).await;
        drain(&mut two).await
    };
    let came = tokio::select! {
        () = other => unreachable!("the subscription never ends"),
        came = me => came,
    };
    assert!(came.is_empty(), "{came:?}");
    assert!((10_000..20_000).contains(&harness.millis()), "{}", harness.millis());
}

// E5
#[tokio::test(start_paused = true)]
async fn shards_at_their_tip_make_room_for_others() {
    let harness = Harness::new(&["a", "b", "c"]);
    for shard in ["a", "b", "c"] {
        harness.kinesis.put(shard, 1);
    }
    let mut subscription = harness.instance("me").subscribe(horizon().stop_at_tip().max_leases(1)).await;
    assert_eq!(drain(&mut subscription).await, ["a0", "b0", "c0"]);
}

// R7
#[tokio::test(start_paused = true)]
async fn empty_pages_of_a_lagging_shard_are_read_at_the_allowed_rate() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.gap("a", (1..=30).rev().map(|minutes| minutes * 60_000));
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(horizon().stop_at_tip()).await;
    assert_eq!(drain(&mut subscription).await, ["a0"]);
    assert_eq!(harness.millis(), 6_000);
}
