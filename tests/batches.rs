//! Batches end to end: the limits that reads ask for, and the records that a restart finds.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Mutex,
};

use futures::{Stream, StreamExt, TryStreamExt};
use kinesis_stream::{Batch, Checkpoint, Commit, DeadLetter, KinesisError, MemoryLeaseStore};
use kinesis_stream_support::{Emulator, Harness, Op, unique};
use tokio::time::{Duration, timeout};

mod wire;

use self::wire::{PATIENCE, eventually, item, quick, reading, records, rows, seal, text, texts, up_to_seals};

async fn stream(harness: &Harness, name: &str, shards: u32, records: usize) -> String {
    let stream = unique(name);
    harness.create_stream(&stream, shards).await;
    harness.put_all(&stream, (0..records).map(|i| (format!("key {i}"), i.to_string()))).await;
    stream
}

async fn next(batches: &mut (impl Stream<Item = Result<Batch, KinesisError>> + Unpin)) -> Batch {
    timeout(PATIENCE, batches.next())
        .await
        .expect("an item arrives in time")
        .expect("the stream has not ended")
        .unwrap()
}

/// Waits until every lease is free.
async fn freed(store: &MemoryLeaseStore, stream: &str) {
    eventually("leases are free", async || rows(store, stream).await.values().all(|row| row.owner.is_none())).await;
}

// A1, A3, R7
#[tokio::test]
async fn a_restart_reads_exactly_the_records_of_uncommitted_batches() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "batches", 2, 200).await;
    let store = MemoryLeaseStore::new();
    let mut batches = reading(&harness, &store, quick(stream)).await.tolerant().batches(16).unwrap();
    let mut said = Vec::new();
    while said.len() < 100 {
        let batch = next(&mut batches).await;
        assert!((1..=16).contains(&batch.len()));
        said.extend(texts(&batch));
        assert_eq!(batch.commit().await.unwrap(), Commit::Stored);
    }
    // Some of the remaining records are in a partly filled batch.
    let unseen = timeout(Duration::ZERO, batches.next()).await.ok();
    drop((batches, unseen));
    freed(&store, stream).await;

    let seals = seal(&harness, stream).await;
    let mut second = reading(&harness, &store, quick(stream)).await;
    let rest = up_to_seals(&mut second, seals).await;
    assert_eq!(said.len() + rest.len(), 200);
    let numbers: BTreeSet<usize> = said.iter().chain(&rest).map(|text| text.parse().unwrap()).collect();
    assert_eq!(numbers, (0..200).collect());
}

// A1, A3
#[tokio::test]
async fn a_restart_resumes_a_shard_at_its_first_failed_record() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "failed", 1, 20).await;
    let store = MemoryLeaseStore::new();
    let mut batches = reading(&harness, &store, quick(stream)).await.batches(10).unwrap();
    let first = next(&mut batches).await;
    assert_eq!(first.len(), 10);
    assert_eq!(first.commit_except(|_, delivery| text(delivery) == "4").await.unwrap(), Commit::Deferred);
    drop(batches);
    freed(&store, stream).await;

    let seals = seal(&harness, stream).await;
    let mut second = reading(&harness, &store, quick(stream)).await;
    let rest: Vec<String> = (4..20).map(|i| i.to_string()).collect();
    assert_eq!(up_to_seals(&mut second, seals).await, rest);
}

// R7, L9
#[tokio::test]
async fn a_pipeline_of_batches_by_shard_closes_cleanly_with_every_checkpoint_at_the_last_record() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "by-shard", 4, 400).await;
    let store = MemoryLeaseStore::new();
    let batches = reading(&harness, &store, quick(stream)).await.tolerant().batches_by_shard(25).unwrap();
    let closer = batches.get_ref().closer();
    let seen = Mutex::new((Vec::new(), BTreeMap::new()));
    let pipeline = batches.try_for_each_concurrent(4, async |batch| {
        let numbers: Vec<usize> = batch.iter().map(|delivery| text(delivery).parse().unwrap()).collect();
        let last = &batch.deliveries()[batch.len() - 1];
        assert!(batch.iter().all(|delivery| delivery.shard() == last.shard()));
        let total = {
            let (all, lasts) = &mut *seen.lock().unwrap();
            all.extend(numbers.iter().map(|number| (last.shard().to_string(), *number)));
            lasts.insert(last.shard().to_string(), last.sequence_number().clone());
            all.len()
        };
        batch.commit().await?;
        if total == 400 {
            let closer = closer.clone();
            tokio::spawn(async move { closer.close().await });
        }
        Ok(())
    });
    timeout(PATIENCE, pipeline).await.expect("the pipeline ends in time").unwrap();
    assert!(closer.close().await.is_clean());
    let checkpoints: BTreeMap<_, _> =
        rows(&store, stream).await.into_iter().map(|(id, row)| (id, row.checkpoint)).collect();
    let (mut all, last) = seen.into_inner().unwrap();
    let expected = last.into_iter().map(|(shard, last)| (shard, Some(Checkpoint::After(last)))).collect();
    assert_eq!((all.len(), checkpoints), (400, expected));
    // A stable sort keeps the order within each shard.
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    assert!(all.is_sorted(), "{all:?}");
}

// R7
#[tokio::test]
async fn reads_ask_for_the_batch_size_once_batches_is_called() {
    const STREAM: &str = "stream";
    let kinesis = Emulator::start();
    kinesis.create_stream(STREAM, 1).await;
    kinesis.put_all(STREAM, (0..50).map(|i| ("key", i.to_string()))).await;
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), quick(STREAM)).await;
    let first = records(&mut subscription, 5).await;
    let mut batches = subscription.batches(8).unwrap();
    let (mut said, mut sizes) = (texts(&first), Vec::new());
    while said.len() < 50 {
        let batch = next(&mut batches).await;
        sizes.push(batch.len());
        said.extend(texts(&batch));
        batch.ack();
    }
    assert_eq!(said, (0..50).map(|i| i.to_string()).collect::<Vec<_>>());
    assert_eq!(sizes, [8, 8, 8, 8, 8, 5]);
    let before = kinesis.faults().count(Op::GetRecords);
    kinesis.faults().called(Op::GetRecords, before + 2).await;
    let limits: Vec<u64> =
        kinesis.faults().calls(Op::GetRecords).iter().map(|call| call.body()["Limit"].as_u64().unwrap()).collect();
    let large = limits.iter().take_while(|limit| **limit == 1_000).count();
    assert!((1..limits.len()).contains(&large) && limits[large..].iter().all(|limit| *limit == 8), "{limits:?}");
}

// A8, A7
#[tokio::test]
async fn a_poison_record_of_a_batch_becomes_a_dead_letter_and_every_other_record_is_processed_once() {
    let kinesis = Emulator::start();
    kinesis.create_stream("stream", 2).await;
    kinesis.put_all("stream", (0..64).map(|i| (format!("key {i}"), i.to_string()))).await;
    let store = MemoryLeaseStore::new();
    let (first, longest) = (Duration::from_millis(10), Duration::from_millis(40));
    let deadly = quick("stream").retry_backoff(first..=longest).max_attempts(2).dead_letter("dead");
    let subscription = reading(&kinesis, &store, deadly.dead_letter_if_missing(1)).await;
    let (closer, stats) = (subscription.closer(), subscription.stats_handle());
    let done = Mutex::new(Vec::new());
    let work = subscription.tolerant().batches(16).unwrap().process(2, async |batch| {
        let numbers: Vec<u32> = batch.iter().map(|delivery| text(delivery).parse().unwrap()).collect();
        if numbers.contains(&13) {
            return Err("13 is poison");
        }
        done.lock().unwrap().extend(numbers);
        Ok(())
    });
    let close = async {
        eventually("all records are settled", async || {
            let shards = stats.snapshot().shards;
            let sum = |of: fn(&kinesis_stream::ShardStats) -> u64| shards.iter().map(of).sum::<u64>();
            (sum(|shard| shard.acked), sum(|shard| shard.dead_letters)) == (63, 1)
        })
        .await;
        closer.close().await
    };
    let (ended, report) = timeout(PATIENCE, async { tokio::join!(work, close) }).await.unwrap();
    assert!(ended.is_ok() && report.is_clean());
    let mut done = done.into_inner().unwrap();
    done.sort_unstable();
    assert_eq!(done, (0..64).filter(|number| *number != 13).collect::<Vec<_>>());
    assert!(stats.snapshot().shards.iter().map(|shard| shard.halvings).sum::<u64>() >= 1);
    let mut dead = reading(&kinesis, &store, quick("dead")).await;
    let letter = DeadLetter::try_from(&records(&mut dead, 1).await[0]).unwrap();
    assert_eq!((letter.record().payload().as_ref(), letter.attempts()), (&b"13"[..], 2));
    assert_eq!((letter.reason(), letter.is_rejected()), ("13 is poison", false));
    for (shard, row) in rows(&store, "stream").await {
        let last = kinesis.records("stream", &shard).await.pop().map(|record| record.sequence_number.into());
        assert_eq!(row.checkpoint, last.map(Checkpoint::After));
    }
}

// A8
#[tokio::test]
async fn records_that_are_too_old_are_passed_over_by_the_clock_of_the_server() {
    let kinesis = Emulator::start();
    kinesis.create_stream("stream", 1).await;
    kinesis.put_all("stream", (0..3).map(|i| ("key", i.to_string()))).await;
    // The server tells whole seconds: after two more than the limit, these are too old in any case.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let store = MemoryLeaseStore::new();
    let limited = quick("stream").max_age(Duration::from_secs(1)).stop_at_tip();
    let mut subscription = reading(&kinesis, &store, limited).await;
    assert!(item(&mut subscription).await.is_none());
    assert_eq!(subscription.stats().shards[0].too_old, 3);
    assert!(subscription.close().await.is_clean());
    let last = kinesis.records("stream", &kinesis.shards("stream").await[0].id).await.pop().unwrap();
    let row = rows(&store, "stream").await.into_values().next().unwrap();
    assert_eq!(row.checkpoint, Some(Checkpoint::After(last.sequence_number.into())));
}
