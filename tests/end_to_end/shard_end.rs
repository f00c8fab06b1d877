//! The end of a shard, and its children.

use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use kinesis_stream::{
    Checkpoint, Commit, Held, KinesisPosition, LeaseKey, LeaseStore, MemoryLeaseStore, ShardState, Subscription, Take,
    Write, commit_all,
};
use kinesis_stream_support::Harness;
use tokio::time::Duration;

use crate::{
    NEVER, after, fill, numbered, stream,
    wire::{eventually, quick, reading, record, records, rows, seal, text, up_to_seals},
};

/// The state of a shard in the stats of the subscription.
fn state(subscription: &Subscription, shard: &str) -> Option<ShardState> {
    let stats = subscription.stats();
    stats.shards.iter().find(|stats| stats.shard.as_str() == shard).map(|stats| stats.state)
}

// H1, H5
#[tokio::test]
async fn records_of_a_closed_parent_arrive_before_those_of_its_children() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "split", 1).await;
    let parent = &harness.shards(stream).await[0].id;
    fill(&harness, stream, parent, "parent", 10).await;
    let [low, high] = harness.split(stream, parent).await;
    fill(&harness, stream, &low, "low", 5).await;
    fill(&harness, stream, &high, "high", 5).await;
    let seals = seal(&harness, stream).await;

    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&harness, &store, quick(stream)).await;
    let said = up_to_seals(&mut subscription, seals).await;
    assert_eq!(said[..10], numbered("parent", 10));
    let of = |prefix: &str| said[10..].iter().filter(|text| text.starts_with(prefix)).cloned().collect::<Vec<_>>();
    assert_eq!((of("low"), of("high")), (numbered("low", 5), numbered("high", 5)));
    assert_eq!(rows(&store, stream).await[parent].checkpoint, Some(Checkpoint::ShardEnd));
}

// H1
#[tokio::test]
async fn the_child_of_a_merge_starts_after_the_last_record_of_both_parents() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "merge", 2).await;
    let shards = harness.shards(stream).await;
    let (one, other) = (&shards[0].id, &shards[1].id);
    fill(&harness, stream, one, "one", 100).await;
    fill(&harness, stream, other, "other", 3).await;
    let child = &harness.merge(stream, one, other).await;
    fill(&harness, stream, child, "child", 10).await;
    let seals = seal(&harness, stream).await;

    let mut subscription = reading(&harness, &MemoryLeaseStore::new(), quick(stream).read_limit(10)).await;
    let said = up_to_seals(&mut subscription, seals).await;
    let of = |prefix: &str| said[..103].iter().filter(|text| text.starts_with(prefix)).cloned().collect::<Vec<_>>();
    assert_eq!((of("one"), of("other")), (numbered("one", 100), numbered("other", 3)));
    assert_eq!(said[103..], numbered("child", 10));
}

// H3
#[tokio::test]
async fn the_end_of_a_shard_is_stored_exactly_when_its_last_delivery_is_settled() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "end", 1).await;
    let parent = &harness.shards(stream).await[0].id;
    fill(&harness, stream, parent, "record", 3).await;
    let [low, high] = &harness.split(stream, parent).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&harness, &store, quick(stream).checkpoint_interval(NEVER)).await;
    let mut taken = records(&mut subscription, 3).await;
    let held = taken.remove(1);
    let covered = Some(after(&taken[0]));
    assert_eq!(taken.remove(0).commit().await.unwrap(), Commit::Stored);
    assert_eq!(taken.remove(0).commit().await.unwrap(), Commit::Deferred);

    // The reader reaches the end and renews the lease, but the checkpoint stays.
    eventually("the reader reaches the end", async || state(&subscription, parent) == Some(ShardState::Ending)).await;
    let counter = rows(&store, stream).await[parent].counter;
    eventually("the lease is renewed three times", async || rows(&store, stream).await[parent].counter >= counter + 3)
        .await;
    let before = rows(&store, stream).await;
    assert_eq!((before.len(), &before[parent].checkpoint), (1, &covered), "{before:?}");

    held.ack();
    eventually("the end is stored and the children are read", async || {
        let rows = rows(&store, stream).await;
        rows[parent].checkpoint == Some(Checkpoint::ShardEnd) && rows.contains_key(low) && rows.contains_key(high)
    })
    .await;
    let seals = seal(&harness, stream).await;
    assert_eq!(up_to_seals(&mut subscription, seals).await, Vec::<String>::new());
    let row = &rows(&store, stream).await[parent];
    assert_eq!((&row.owner, row.epoch), (&None, 1));
    assert_eq!(state(&subscription, parent), Some(ShardState::Ended));
}

// H3
#[tokio::test]
async fn a_pending_redelivery_delays_the_end_of_its_shard() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "end-again", 1).await;
    let parent = &harness.shards(stream).await[0].id;
    fill(&harness, stream, parent, "record", 1).await;
    harness.split(stream, parent).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&harness, &store, quick(stream)).await;
    record(&mut subscription).await.nack();
    eventually("the reader reaches the end", async || state(&subscription, parent) == Some(ShardState::Ending)).await;
    let again = record(&mut subscription).await;
    assert_eq!((text(&again).as_str(), again.attempt()), ("record 0", 2));
    assert!(matches!(rows(&store, stream).await[parent].checkpoint, Some(Checkpoint::At(_))));
    again.ack();
    let ended = async || rows(&store, stream).await[parent].checkpoint == Some(Checkpoint::ShardEnd);
    eventually("the end is stored", ended).await;
}

// H2, H3, H4
#[tokio::test]
async fn a_restart_finds_the_end_of_a_settled_shard_without_a_new_record() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "end-found", 1).await;
    let parent = &harness.shards(stream).await[0].id;
    fill(&harness, stream, parent, "record", 5).await;
    let store = MemoryLeaseStore::new();
    let mut first = reading(&harness, &store, quick(stream)).await;
    assert_eq!(commit_all(records(&mut first, 5).await).await.unwrap(), Commit::Stored);
    assert!(first.close().await.is_clean());

    let [low, high] = &harness.split(stream, parent).await;
    let mut second = reading(&harness, &store, quick(stream)).await;
    eventually("the end is stored and the children are read", async || {
        let rows = rows(&store, stream).await;
        rows[parent].checkpoint == Some(Checkpoint::ShardEnd) && rows.contains_key(low) && rows.contains_key(high)
    })
    .await;
    let seals = seal(&harness, stream).await;
    assert_eq!(up_to_seals(&mut second, seals).await, Vec::<String>::new());
}

// H4, R6
#[tokio::test]
async fn children_are_read_from_their_first_record_if_the_process_died_right_after_their_parent_ended() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "children", 1).await;
    let parent = &harness.shards(stream).await[0].id;
    fill(&harness, stream, parent, "parent", 3).await;
    let [low, high] = harness.split(stream, parent).await;
    fill(&harness, stream, &low, "low", 3).await;
    fill(&harness, stream, &high, "high", 3).await;
    let store = MemoryLeaseStore::new();
    store_end(&store, stream, parent).await;

    let seals = seal(&harness, stream).await;
    let at_tip = quick(stream).initial_position(KinesisPosition::latest());
    let mut subscription = reading(&harness, &store, at_tip).await;
    let mut said = up_to_seals(&mut subscription, seals).await;
    said.sort();
    assert_eq!(said, [numbered("high", 3), numbered("low", 3)].concat());
}

/// Writes the row of an owner that died right after it stored the end of a shard and released the lease.
async fn store_end(store: &MemoryLeaseStore, stream: &str, shard: &str) {
    let key = LeaseKey::new("default", stream, shard);
    let owner: Arc<str> = "dead".into();
    store.take(&Take::new(key.clone(), Arc::clone(&owner))).await.unwrap();
    let held = Held::new(key, owner, 1);
    assert_eq!(store.checkpoint(&held, &Checkpoint::ShardEnd).await.unwrap(), Write::Applied(()));
    assert_eq!(store.release(&held).await.unwrap(), Write::Applied(()));
}

// H3, H5
#[tokio::test]
async fn a_finished_parent_is_not_read_again_and_does_not_block_its_children() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "finished", 1).await;
    let parent = &harness.shards(stream).await[0].id;
    fill(&harness, stream, parent, "parent", 3).await;
    harness.split(stream, parent).await;
    let store = MemoryLeaseStore::new();
    let seals = seal(&harness, stream).await;
    let mut first = reading(&harness, &store, quick(stream)).await;
    assert_eq!(up_to_seals(&mut first, seals).await, numbered("parent", 3));
    assert!(first.close().await.is_clean());
    let seals = seal(&harness, stream).await;
    let mut second = reading(&harness, &store, quick(stream)).await;
    assert_eq!(up_to_seals(&mut second, seals).await, Vec::<String>::new());
    assert_eq!(rows(&store, stream).await[parent].epoch, 1);
}

// H1
#[tokio::test]
async fn children_wait_for_open_deliveries_of_their_parent_on_another_instance() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "elsewhere", 1).await;
    let parent = &harness.shards(stream).await[0].id;
    fill(&harness, stream, parent, "parent", 2).await;
    let store = MemoryLeaseStore::new();
    let mut one = reading(&harness, &store, quick(stream)).await;
    let mut held = records(&mut one, 2).await;
    let mut other = reading(&harness, &store, quick(stream).list_interval(Duration::from_millis(50))).await;
    harness.split(stream, parent).await;
    let seals = seal(&harness, stream).await;
    held.pop().unwrap().ack();

    eventually("the reader reaches the end", async || state(&one, parent) == Some(ShardState::Ending)).await;
    let counter = rows(&store, stream).await[parent].counter;
    eventually("the lease is renewed three times", async || rows(&store, stream).await[parent].counter >= counter + 3)
        .await;
    assert!(one.next().now_or_never().is_none() && other.next().now_or_never().is_none());
    assert_eq!(rows(&store, stream).await.len(), 1);

    assert_eq!(held.pop().unwrap().commit().await.unwrap(), Commit::Stored);
    let mut both = futures::stream::select(one, other);
    for _ in 0..seals {
        let delivery = both.next().await.unwrap().unwrap();
        assert_eq!(text(&delivery), "seal");
        delivery.ack();
    }
}

// H5
#[tokio::test]
async fn a_closed_shard_next_to_two_open_ones_is_opened_at_most_once_without_an_error() {
    let harness = Harness::from_env();
    for (position, old, opened) in [(KinesisPosition::latest(), 0, 2), (KinesisPosition::horizon(), 3, 3)] {
        let stream = &stream(&harness, "closed", 1).await;
        let parent = &harness.shards(stream).await[0].id;
        fill(&harness, stream, parent, "old", 3).await;
        let [low, _] = &harness.split(stream, parent).await;
        let store = MemoryLeaseStore::new();
        let descriptor = quick(stream).initial_position(position).list_interval(Duration::from_millis(20));
        let mut subscription = reading(&harness, &store, descriptor).await;
        let seals = seal(&harness, stream).await;
        assert_eq!(up_to_seals(&mut subscription, seals).await, numbered("old", old));

        let reads = || {
            let stats = subscription.stats();
            stats.shards.iter().find(|stats| stats.shard.as_str() == low).map_or(0, |stats| stats.reads)
        };
        let before = reads();
        eventually("many listings happen", async || reads() > before + 20).await;
        let rows = rows(&store, stream).await;
        assert!(rows.len() == opened && rows.values().all(|row| row.epoch == 1), "{rows:?}");
        assert_eq!(rows.contains_key(parent), old > 0);
        assert!(subscription.stats().shards.iter().all(|stats| stats.last_error.is_none()));
        // There were no further items, not even an error.
        assert!(subscription.next().now_or_never().is_none());
    }
}
