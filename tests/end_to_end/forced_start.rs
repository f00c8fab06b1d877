//! `start_at`, the forced start position.

use std::time::UNIX_EPOCH;

use kinesis_stream::{Commit, KinesisPosition, MemoryLeaseStore, commit_all};
use kinesis_stream_support::Harness;
use tokio::time::{Duration, sleep};

use crate::{
    fill, numbered,
    restarts::then_dies,
    stream,
    wire::{quick, reading, record, records, seal, text, up_to_seals},
};

// R6
#[tokio::test]
async fn a_forced_start_at_the_horizon_reads_ended_shards_again_parents_first() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "forced", 1).await;
    let parent = &harness.shards(stream).await[0].id;
    fill(&harness, stream, parent, "parent", 3).await;
    let [low, _] = harness.split(stream, parent).await;
    fill(&harness, stream, &low, "low", 3).await;
    let seals = seal(&harness, stream).await;
    let store = MemoryLeaseStore::new();
    let everything = [numbered("parent", 3), numbered("low", 3)].concat();
    for _ in 0..2 {
        let forced = quick(stream).start_at(KinesisPosition::horizon());
        let mut subscription = reading(&harness, &store, forced).await;
        assert_eq!(up_to_seals(&mut subscription, seals).await, everything);
        assert!(subscription.close().await.is_clean());
    }
}

// H5, R6
#[tokio::test]
async fn a_start_at_a_time_after_a_split_reads_no_older_record() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "timestamp", 1).await;
    let parent = &harness.shards(stream).await[0].id;
    fill(&harness, stream, parent, "old parent", 3).await;
    let [low, high] = &harness.split(stream, parent).await;
    fill(&harness, stream, low, "old", 2).await;
    // Records of the same millisecond have the same arrival time.
    sleep(Duration::from_millis(20)).await;
    fill(&harness, stream, high, "mark", 1).await;
    sleep(Duration::from_millis(20)).await;
    fill(&harness, stream, low, "new", 2).await;
    let seals = seal(&harness, stream).await;

    let mut all = reading(&harness, &MemoryLeaseStore::new(), quick(stream).ack_on_drop()).await;
    let mark = loop {
        let delivery = record(&mut all).await;
        if text(&delivery) == "mark 0" {
            break delivery.arrived_at().unwrap().duration_since(UNIX_EPOCH).unwrap();
        }
    };
    let since = KinesisPosition::timestamp(i64::try_from(mark.as_millis()).unwrap());
    for descriptor in [quick(stream).initial_position(since.clone()), quick(stream).start_at(since)] {
        let mut subscription = reading(&harness, &MemoryLeaseStore::new(), descriptor).await;
        let mut said = up_to_seals(&mut subscription, seals).await;
        said.sort();
        assert_eq!(said, ["mark 0", "new 0", "new 1"]);
    }
}

// E5, R6
#[tokio::test]
async fn a_forced_start_applies_to_the_shards_of_an_instance_that_turns_out_to_be_dead() {
    let harness = Harness::from_env();
    let stream = stream(&harness, "dead", 1).await;
    let shard = harness.shards(&stream).await[0].id.clone();
    fill(&harness, &stream, &shard, "record", 3).await;
    let store = MemoryLeaseStore::new();
    let (there, same_store, descriptor) = (harness.clone(), store.clone(), quick(&stream));
    then_dies(async move {
        let mut subscription = reading(&there, &same_store, descriptor).await;
        let commit = commit_all(records(&mut subscription, 3).await).await;
        (assert_eq!(commit.unwrap(), Commit::Stored), subscription)
    })
    .await;
    let forced = quick(&stream).start_at(KinesisPosition::horizon());
    let mut subscription = reading(&harness, &store, forced).await;
    assert_eq!(subscription.stats().awaited, 1);
    let seals = seal(&harness, &stream).await;
    assert_eq!(up_to_seals(&mut subscription, seals).await, numbered("record", 3));
}
