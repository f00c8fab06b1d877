//! Shards that left the stream, the removal of their rows, and listings that only seem to lack shards (H4, H6).

use tokio::time::{Duration, sleep};

use super::{script::Rule, scripted_service::ServiceOp};

use crate::{
    delivery::Delivery,
    error::{ErrorClass, KinesisError, service::FailureKind},
    simulation::harness::{Harness, horizon, item, millis, name, names, next, seconds, take},
    subscription::Subscription,
    types::commit::Commit,
};

mod listings;

/// Everything that arrives in this time: the names of the records, each acknowledged, and the shards reported as gone.
async fn settle(subscription: &mut Subscription, time: Duration) -> (Vec<String>, Vec<String>) {
    let until = tokio::time::Instant::now() + time;
    let (mut said, mut gone) = (Vec::new(), Vec::new());
    while let Ok(item) = tokio::time::timeout_at(until, item(subscription)).await {
        match item.unwrap() {
            Ok(delivery) => {
                said.push(name(&delivery).to_owned());
                delivery.ack();
            }
            Err(KinesisError::ShardGone { shard, .. }) => gone.push(shard.to_string()),
            Err(error) => assert!(matches!(error.class(), ErrorClass::Transient | ErrorClass::Loss), "{error}"),
        }
    }
    (said, gone)
}

fn vec_of<const N: usize>(texts: [&str; N]) -> Vec<String> {
    texts.map(ToOwned::to_owned).into()
}

/// A shard that was split, with records in its children.
fn split(harness: &Harness) {
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    harness.kinesis.put("c", 1);
}

// H6
#[tokio::test(start_paused = true)]
async fn a_leased_shard_that_is_gone_is_reported_once_and_its_children_start() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    next(&mut subscription).await.ack();
    sleep(millis(1_500)).await;
    split(&harness);
    harness.kinesis.forget("a");
    let (said, gone) = settle(&mut subscription, seconds(3)).await;
    assert_eq!((said, gone), (vec!["b0".to_owned(), "c0".to_owned()], vec!["a".to_owned()]));
    assert_eq!(settle(&mut subscription, seconds(600)).await, (Vec::new(), Vec::new()));
    assert_eq!((harness.owner("a").await, harness.checkpoint("a").await), (String::new(), "after a0".into()));
}

// H6
#[tokio::test(start_paused = true)]
async fn open_deliveries_of_a_gone_shard_can_still_be_settled() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let mut held = take(&mut subscription, 2).await;
    split(&harness);
    harness.kinesis.forget("a");
    let gone = loop {
        match item(&mut subscription).await.unwrap() {
            Err(KinesisError::ShardGone { shard, .. }) => break shard,
            other => drop(other.unwrap_err()),
        }
    };
    assert_eq!(gone.as_str(), "a");
    assert_eq!(names(&take(&mut subscription, 2).await), ["b0", "c0"]);
    sleep(seconds(20)).await;
    assert_eq!(held.remove(0).commit().await.unwrap(), Commit::Stored);
    sleep(seconds(20)).await;
    assert_eq!(held.remove(0).commit().await.unwrap(), Commit::Superseded);
    assert_eq!(harness.owner("a").await, "");
}

// H3, H6
#[tokio::test(start_paused = true)]
async fn a_shard_read_to_its_end_before_it_is_gone_is_not_reported_and_its_end_is_stored() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    split(&harness);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let held = next(&mut subscription).await;
    harness.kinesis.forget("a");
    let (said, gone) = settle(&mut subscription, seconds(100)).await;
    assert_eq!((said, gone), (vec!["b0".to_owned(), "c0".to_owned()], Vec::new()));
    assert_eq!(held.commit().await.unwrap(), Commit::Stored);
    assert_eq!(me.table.checkpoints("a"), ["at a0", "SHARD_END"]);
}

// H6
#[tokio::test(start_paused = true)]
async fn an_unread_shard_that_is_gone_is_reported_once_and_blocks_its_children_for_two_listings_at_most() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    next(&mut subscription).await.ack();
    subscription.close().await;
    split(&harness);
    harness.kinesis.forget("a");
    for (begins, expected) in [(10_000, vec!["a".to_owned()]), (0, vec![])] {
        let begun = harness.millis();
        let mut subscription = harness.instance("me").subscribe(horizon()).await;
        let (said, gone) = settle(&mut subscription, seconds(25)).await;
        assert_eq!((said.len(), gone), (2, expected));
        subscription.close().await;
        harness.kinesis.put("b", 1);
        harness.kinesis.put("c", 1);
        let taken = harness.instance("spy");
        assert!(taken.service.script.calls(ServiceOp::GetRecords).is_empty() && harness.millis() >= begun + begins);
    }
}

// H6
#[tokio::test(start_paused = true)]
async fn a_row_is_deleted_once_its_shard_is_gone_and_every_child_has_a_checkpoint() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    split(&harness);
    let (me, other) = (harness.instance("me"), harness.instance("other"));
    let mut mine = me.subscribe(horizon()).await;
    let others = other.subscribe(horizon()).await;
    other.service.fail(Rule::on(ServiceOp::ListShards).always(), FailureKind::Other);
    take(&mut mine, 3).await.into_iter().for_each(Delivery::ack);
    let mut children = take(&mut mine, 2).await;
    assert_eq!(names(&children), ["b0", "c0"]);
    harness.kinesis.forget("a");
    sleep(seconds(9)).await;
    assert_eq!(harness.checkpoint("a").await, "SHARD_END");
    sleep(seconds(21)).await;
    assert!(harness.row("a").await.is_none());
    children.remove(0).ack();
    sleep(seconds(60)).await;
    assert_eq!((other.table.log("a"), other.service.places("a")), (Vec::new(), Vec::new()));
    drop(others);
}

// H6
#[tokio::test(start_paused = true)]
async fn a_row_stays_as_long_as_a_child_has_no_checkpoint() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    assert_eq!(settle(&mut subscription, seconds(3)).await.0, ["a0", "b0"]);
    harness.kinesis.forget("a");
    assert!(settle(&mut subscription, seconds(100)).await.0.is_empty());
    assert_eq!(harness.checkpoint("a").await, "SHARD_END");
    harness.kinesis.put("c", 1);
    assert_eq!(settle(&mut subscription, seconds(30)).await.0, ["c0"]);
    assert!(harness.row("a").await.is_none());
}

// H6, L8
#[tokio::test(start_paused = true)]
async fn shards_that_left_the_stream_are_forgotten_with_their_rows() {
    let harness = Harness::new(&["0"]);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    for n in 1..=20 {
        let (parent, left, right) = ((n - 1).to_string(), format!("{n}l"), format!("{n}r"));
        harness.kinesis.split(&parent, [&left, &right]);
        harness.kinesis.merge([&left, &right], &n.to_string());
        harness.kinesis.put(&n.to_string(), 1);
        assert_eq!(settle(&mut subscription, seconds(10)).await, (vec![format!("{n}0")], Vec::new()));
        for gone in [parent, left, right] {
            harness.kinesis.forget(&gone);
        }
    }
    let rest = settle(&mut subscription, seconds(60)).await;
    assert_eq!((rest, harness.rows().await), ((Vec::new(), Vec::new()), 1));
    let known: Vec<_> = subscription.stats().shards.into_iter().map(|shard| shard.shard).collect();
    assert_eq!(known, ["20".into()]);
    // The one that is left is read on.
    harness.kinesis.put("20", 1);
    assert_eq!(settle(&mut subscription, seconds(5)).await.0, ["201"]);
}

// H6
#[tokio::test(start_paused = true)]
async fn a_shard_that_left_the_stream_is_known_until_its_deliveries_are_settled() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let held = next(&mut subscription).await;
    split(&harness);
    sleep(seconds(5)).await;
    harness.kinesis.forget("a");
    sleep(seconds(25)).await;
    assert_eq!(held.commit().await.unwrap(), Commit::Stored);
    let (mut said, gone) = settle(&mut subscription, seconds(60)).await;
    said.sort();
    assert_eq!((said, gone), (vec_of(["b0", "c0"]), Vec::new()));
    let known: Vec<_> = subscription.stats().shards.into_iter().map(|shard| shard.shard).collect();
    assert_eq!(known, ["b".into(), "c".into()]);
}
