//! Restarts and crashes: which records a new consumer reads.

use std::collections::BTreeSet;

use kinesis_stream::{Commit, KinesisPosition, MemoryLeaseStore, Subscription, commit_all};
use kinesis_stream_support::Harness;
use tokio::runtime::Builder;

use crate::{
    after, fill, numbered, stream,
    wire::{quick, reading, record, records, rows, seal, text, texts, up_to_seals},
};

/// Runs a consumer as if in a separate process, and kills it: it releases no lease, and drops no delivery.
pub(crate) async fn then_dies<T: Send + 'static>(life: impl Future<Output = (T, Subscription)> + Send + 'static) -> T {
    let process = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let (legacy, subscription) = process.spawn(life).await.expect("the consumer runs until it is killed");
    std::mem::forget(subscription);
    process.shutdown_background();
    legacy
}

// A1, A3, R4
#[tokio::test]
async fn a_restart_redelivers_exactly_the_uncommitted_records() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "restart", 2).await;
    harness.put_all(stream, (0..200).map(|i| (format!("key {i}"), i.to_string()))).await;
    let store = MemoryLeaseStore::new();

    let mut first = reading(&harness, &store, quick(stream)).await;
    let half = records(&mut first, 100).await;
    let mut said = texts(&half);
    assert_eq!(commit_all(half).await.unwrap(), Commit::Stored);
    assert!(first.close().await.is_clean());

    let seals = seal(&harness, stream).await;
    let mut second = reading(&harness, &store, quick(stream)).await;
    let rest = up_to_seals(&mut second, seals).await;
    assert_eq!((said.len(), rest.len()), (100, 100));
    said.extend(rest);
    let numbers: BTreeSet<usize> = said.iter().map(|text| text.parse().unwrap()).collect();
    assert_eq!(numbers, (0..200).collect());
}

// R13
#[tokio::test]
async fn unsettled_records_read_at_the_tip_are_redelivered_after_a_crash() {
    let harness = Harness::from_env();
    let stream = stream(&harness, "crash", 1).await;
    let store = MemoryLeaseStore::new();
    let at_tip = || quick(&stream).initial_position(KinesisPosition::latest());
    harness.put(&stream, "key", "too old").await;

    let (there, shared, descriptor, name) = (harness.clone(), store.clone(), at_tip(), stream.clone());
    then_dies(async move {
        let mut subscription = reading(&there, &shared, descriptor).await;
        there.put_all(&name, numbered("new", 10).into_iter().map(|text| ("key", text))).await;
        let held = records(&mut subscription, 5).await;
        assert_eq!(texts(&held), numbered("new", 5));
        (held, subscription)
    })
    .await;
    let seals = seal(&harness, &stream).await;
    let mut second = reading(&harness, &store, at_tip()).await;
    assert_eq!(up_to_seals(&mut second, seals).await, numbered("new", 10));
}

// A2, A3
#[tokio::test]
async fn a_restart_redelivers_a_dropped_delivery_and_every_later_record() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "dropped", 1).await;
    let shard = &harness.shards(stream).await[0].id;
    fill(&harness, stream, shard, "record", 10).await;
    let store = MemoryLeaseStore::new();

    let mut first = reading(&harness, &store, quick(stream)).await;
    let mut covered = None;
    for (i, delivery) in records(&mut first, 10).await.into_iter().enumerate() {
        match i {
            0..3 => {
                covered = Some(after(&delivery));
                assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);
            }
            3 => drop(delivery),
            _ => assert_eq!(delivery.commit().await.unwrap(), Commit::Deferred),
        }
    }
    // It waits in the redelivery queue, so the user holds no open delivery.
    first.close().await;
    assert_eq!(rows(&store, stream).await[shard].checkpoint, covered);

    let seals = seal(&harness, stream).await;
    let mut second = reading(&harness, &store, quick(stream)).await;
    assert_eq!(up_to_seals(&mut second, seals).await, numbered("record", 10)[3..]);
}

// R6
#[tokio::test]
async fn a_replay_that_died_half_way_resumes_at_its_checkpoint_without_start_at() {
    let harness = Harness::from_env();
    let stream = stream(&harness, "replay", 1).await;
    let shard = harness.shards(&stream).await[0].id.clone();
    fill(&harness, &stream, &shard, "record", 10).await;
    let store = MemoryLeaseStore::new();
    let mut first = reading(&harness, &store, quick(&stream)).await;
    assert_eq!(commit_all(records(&mut first, 10).await).await.unwrap(), Commit::Stored);
    first.close().await;

    let (there, same_store) = (harness.clone(), store.clone());
    let descriptor = quick(&stream).start_at(KinesisPosition::horizon());
    then_dies(async move {
        let mut replay = reading(&there, &same_store, descriptor).await;
        let mut again = records(&mut replay, 10).await;
        assert_eq!(texts(&again), numbered("record", 10));
        let unsettled = again.split_off(4);
        assert_eq!(commit_all(again).await.unwrap(), Commit::Stored);
        (unsettled, replay)
    })
    .await;

    let seals = seal(&harness, &stream).await;
    let mut third = reading(&harness, &store, quick(&stream)).await;
    assert_eq!(up_to_seals(&mut third, seals).await, numbered("record", 10)[4..]);
}

// L6, L9
#[tokio::test]
async fn records_that_arrive_during_a_takeover_are_delivered_once() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "hand-over", 2).await;
    let store = MemoryLeaseStore::new();
    let mut one = reading(&harness, &store, quick(stream)).await;
    let mut other = reading(&harness, &store, quick(stream)).await;
    let put = async {
        for i in 0..150 {
            harness.put(stream, &format!("key {i}"), i.to_string()).await;
        }
        seal(&harness, stream).await
    };
    let read = async {
        let mut said = Vec::new();
        while said.len() < 60 {
            let delivery = record(&mut one).await;
            said.push(text(&delivery));
            delivery.ack();
        }
        assert!(one.close().await.is_clean());
        said.extend(up_to_seals(&mut other, 2).await);
        said
    };
    let (_, said) = tokio::join!(put, read);
    let mut numbers: Vec<usize> = said.iter().map(|text| text.parse().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..150).collect::<Vec<_>>());
}
