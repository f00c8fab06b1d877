//! Back pressure: the limits of records in flight and of bytes.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use futures::{FutureExt, StreamExt, TryStreamExt};
use kinesis_stream::{Delivery, MemoryLeaseStore, commit_all};
use kinesis_stream_support::Op;
use tokio::time::{Duration, sleep};

use crate::{
    OTHER, SHARD, STREAM, kinesis,
    wire::{eventually, quick, reading, record, records, seal, text, up_to_seals},
};

// A5
#[tokio::test]
async fn a_record_that_is_never_settled_blocks_only_its_own_shard_at_the_bound() {
    let kinesis = kinesis(2).await;
    for i in 0..30 {
        kinesis.put_to_shard(STREAM, SHARD, "key", format!("held {i}")).await;
        kinesis.put_to_shard(STREAM, OTHER, "key", format!("free {i}")).await;
    }
    let bounded = quick(STREAM).max_in_flight(10).read_limit(7);
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), bounded).await;
    let (mut held, mut free) = (Vec::new(), 0);
    while held.len() < 10 || free < 30 {
        let delivery = record(&mut subscription).await;
        if delivery.shard().as_str() == SHARD {
            held.push(delivery);
        } else {
            assert_eq!(text(&delivery), format!("free {free}"));
            free += 1;
            delivery.ack();
        }
    }
    // The other shard continues, and this shard delivers no further record.
    for i in 30..60 {
        kinesis.put_to_shard(STREAM, OTHER, "key", format!("free {i}")).await;
        let delivery = record(&mut subscription).await;
        assert_eq!(text(&delivery), format!("free {i}"));
        delivery.ack();
    }
    assert!(subscription.next().now_or_never().is_none());
    let stats = subscription.stats();
    let stands = stats.shards.iter().find(|stats| stats.shard.as_str() == SHARD).unwrap();
    assert_eq!((stands.in_flight, &stands.oldest.as_ref().unwrap().0), (10, held[0].sequence_number()));

    // Settling one record makes room for one more.
    held.pop().unwrap().ack();
    assert_eq!(text(&record(&mut subscription).await), "held 10");
    held.into_iter().for_each(Delivery::ack);
    for i in 11..30 {
        let delivery = record(&mut subscription).await;
        assert_eq!(text(&delivery), format!("held {i}"));
        delivery.ack();
    }
}

// A5
#[tokio::test]
async fn while_the_user_pauses_reading_ahead_stops_at_the_byte_budget() {
    let kinesis = kinesis(2).await;
    let half = vec![0; 512 << 10];
    for shard in [SHARD, OTHER] {
        for _ in 0..3 {
            kinesis.put_to_shard(STREAM, shard, "key", half.clone()).await;
        }
    }
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&kinesis, &store, quick(STREAM).read_limit(1).max_buffered_bytes(600 << 10)).await;
    let held = || subscription.stats().bytes_held;
    eventually("one page is buffered", async || held() > 512 << 10).await;
    // There is room for one page, and none for the page of the other shard.
    sleep(Duration::from_millis(500)).await;
    assert!(held() < 600 << 10);
    assert_eq!(kinesis.faults().count(Op::GetRecords), 1);
    for delivery in records(&mut subscription, 6).await {
        assert_eq!(delivery.payload().len(), 512 << 10);
        delivery.ack();
    }
}

// A5
#[tokio::test]
async fn the_pages_of_a_shard_at_its_bound_do_not_keep_other_shards_from_reading() {
    let kinesis = kinesis(2).await;
    let tight = quick(STREAM).read_limit(3).max_in_flight(2).max_buffered_bytes(250 << 10);
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), tight).await;
    let stats = subscription.stats_handle();
    let idle = async || stats.snapshot().shards.iter().all(|stats| stats.reads > 0);
    eventually("both shards are idle, so that the library expects empty pages", idle).await;
    let reads = kinesis.faults().on(Op::GetRecords).shard(SHARD).hold();
    for i in 0..6 {
        let payload = format!("{i}{}", " ".repeat(if i < 3 { 0 } else { 100 << 10 }));
        kinesis.put_to_shard(STREAM, SHARD, "key", payload).await;
    }
    reads.lift();
    let mut held = vec![record(&mut subscription).await];
    eventually("a second page is buffered", async || stats.snapshot().bytes_held > 300 << 10).await;
    held.push(record(&mut subscription).await);

    // The third record waits for room, and so does the second page.
    kinesis.put_to_shard(STREAM, OTHER, "key", "free").await;
    let free = record(&mut subscription).await;
    assert_eq!(text(&free), "free");
    free.ack();
    held.into_iter().for_each(Delivery::ack);
    for i in 2..6 {
        let delivery = record(&mut subscription).await;
        assert!(text(&delivery).starts_with(&i.to_string()));
        delivery.ack();
    }
}

/// Settles a record in one of all possible ways, by its number, including from other tasks.
async fn work(delivery: Delivery) {
    let number: usize = text(&delivery).parse().unwrap();
    match (delivery.attempt(), number % 20) {
        (1, 0) => delivery.nack(),
        (1, 1) => drop(delivery),
        (_, 2..8) => drop(delivery.commit().await.unwrap()),
        (_, 8..12) => drop(tokio::spawn(delivery.commit()).await.unwrap()),
        (_, 12) => drop(commit_all([delivery]).await.unwrap()),
        (_, 13) => {
            // A commit settles the record at its first poll.
            drop(delivery.commit().now_or_never());
        }
        _ => delivery.ack(),
    }
}

// S1, A1, A3, A7, H1
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn settling_from_many_threads_in_every_way_while_shards_split_loses_no_record() {
    let kinesis = kinesis(4).await;
    let store = MemoryLeaseStore::new();
    let descriptor = quick(STREAM).max_in_flight(100).read_limit(60).poll_interval(Duration::from_millis(5));
    let subscription = reading(&kinesis, &store, descriptor).await;
    let closer = subscription.closer();
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let worked = Arc::clone(&seen);
    let pipeline = subscription.tolerant().try_for_each_concurrent(64, move |delivery| {
        let worked = Arc::clone(&worked);
        async move {
            let number: usize = text(&delivery).parse().unwrap();
            let settles = delivery.attempt() > 1 || number % 20 > 1;
            tokio::spawn(work(delivery)).await.unwrap();
            if settles {
                worked.lock().unwrap().insert(number);
            }
            Ok(())
        }
    });
    let pipeline = tokio::spawn(pipeline);
    for (round, shard) in ["shardId-000000000000", "shardId-000000000002", "shardId-000000000004"].iter().enumerate() {
        let records = (round * 500..(round + 1) * 500).map(|i| (format!("key {i}"), i.to_string()));
        kinesis.put_all(STREAM, records).await;
        kinesis.split(STREAM, shard).await;
    }
    eventually("all records are settled", async || seen.lock().unwrap().len() == 1_500).await;
    assert!(closer.close().await.is_clean());
    pipeline.await.unwrap().unwrap();
    assert!(seen.lock().unwrap().iter().copied().eq(0..1_500));

    let seals = seal(&kinesis, STREAM).await;
    let mut second = reading(&kinesis, &store, quick(STREAM)).await;
    assert_eq!(up_to_seals(&mut second, seals).await, Vec::<String>::new());
}
