//! Seeking, and reading up to the tip, end to end (A3, A6, L7).

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use futures::{FutureExt, TryStreamExt};
use kinesis_stream::{
    Checkpoint, Commit, Delivery, KinesisError, KinesisPosition, MemoryLeaseStore, SequenceNumber, Subscription,
};
use kinesis_stream_support::{Emulator, Harness, unique};
use tokio::time::Duration;

#[expect(dead_code, reason = "these tests need only a part of it")]
mod wire;

use self::wire::{eventually, instance, quick, reading, record, records, rows, text, texts};

async fn fill(harness: &Harness, stream: &str, shard: &str, range: std::ops::Range<usize>) {
    for i in range {
        harness.put_to_shard(stream, shard, "key", format!("{shard} {i}")).await;
    }
}

fn said(shard: &str, range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|i| format!("{shard} {i}")).collect()
}

/// Acknowledges every record until the stream ends. Returns their texts.
async fn drain(subscription: &mut Subscription) -> Vec<String> {
    let mut said = Vec::new();
    while let Some(delivery) = subscription.try_next().await.unwrap() {
        said.push(text(&delivery));
        delivery.ack();
    }
    said
}

async fn stored(store: &MemoryLeaseStore, stream: &str, shard: &str, number: &SequenceNumber) {
    eventually("the checkpoint is stored", async || {
        rows(store, stream).await[shard].checkpoint == Some(Checkpoint::After(number.clone()))
    })
    .await;
}

// A3, A6
#[tokio::test]
async fn a_seek_from_the_consuming_task_replays_and_moves_the_checkpoint_back() {
    let harness = Harness::from_env();
    let stream = &unique("seek");
    harness.create_stream(stream, 1).await;
    let shard = &harness.shards(stream).await[0].id;
    fill(&harness, stream, shard, 0..5).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&harness, &store, quick(stream)).await;
    let seeker = subscription.seeker();

    let mut first = records(&mut subscription, 5).await;
    let (third, last) = (first[2].position(), first[4].sequence_number().clone());
    let held = first.pop().unwrap();
    let numbers: Vec<SequenceNumber> = first.iter().map(|delivery| delivery.sequence_number().clone()).collect();
    first.into_iter().for_each(Delivery::ack);
    stored(&store, stream, shard, &numbers[3]).await;

    seeker.seek(third).await.unwrap();
    assert_eq!(held.commit().await.unwrap(), Commit::Superseded);
    let again = records(&mut subscription, 3).await;
    assert_eq!(texts(&again), said(shard, 2..5));
    let mut again = again.into_iter();
    assert_eq!(again.next().unwrap().commit().await.unwrap(), Commit::Stored);
    stored(&store, stream, shard, &numbers[2]).await;
    again.for_each(Delivery::ack);
    stored(&store, stream, shard, &last).await;

    seeker.seek(KinesisPosition::horizon()).await.unwrap();
    let all = records(&mut subscription, 5).await;
    assert_eq!(texts(&all), said(shard, 0..5));
    all.into_iter().for_each(Delivery::ack);
    seeker.seek(KinesisPosition::latest()).await.unwrap();
    fill(&harness, stream, shard, 5..6).await;
    assert_eq!(text(&record(&mut subscription).await), format!("{shard} 5"));
}

// A6, H1
#[tokio::test]
async fn a_seek_to_the_horizon_rereads_ended_parents_before_their_children() {
    let harness = Harness::from_env();
    let stream = &unique("seek-parents");
    harness.create_stream(stream, 1).await;
    let parent = &harness.shards(stream).await[0].id;
    fill(&harness, stream, parent, 0..3).await;
    let children = harness.split(stream, parent).await;
    for child in &children {
        fill(&harness, stream, child, 0..2).await;
    }
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&harness, &store, quick(stream)).await;
    let expected = |all: &[String]| {
        assert_eq!(all[..3], said(parent, 0..3));
        for child in &children {
            let of_child = all[3..].iter().filter(|said| said.starts_with(child.as_str()));
            assert_eq!(of_child.cloned().collect::<Vec<_>>(), said(child, 0..2));
        }
    };
    for round in 0..3 {
        if round > 0 {
            subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
        }
        let mut all = Vec::new();
        for _ in 0..7 {
            let delivery = record(&mut subscription).await;
            all.push(text(&delivery));
            delivery.ack();
        }
        expected(&all);
    }
}

// L7
#[tokio::test]
async fn a_seek_after_shutdown_returns_not_connected() {
    let kinesis = Emulator::start();
    kinesis.create_stream("stream", 1).await;
    let broker = instance(&kinesis, &MemoryLeaseStore::new()).await;
    let subscription = broker.subscribe(quick("stream")).await.unwrap();
    let seeker = subscription.seeker();
    seeker.seek(KinesisPosition::horizon()).await.unwrap();
    broker.shutdown().await;
    let refused = seeker.seek(KinesisPosition::horizon()).await.unwrap_err();
    assert!(matches!(refused, KinesisError::NotConnected), "{refused}");
}

#[tokio::test]
async fn a_stream_that_stops_at_the_tip_ends_and_the_next_run_reads_only_newer_records() {
    let harness = Harness::from_env();
    let stream = &unique("tip");
    harness.create_stream(stream, 3).await;
    let shards: Vec<String> = harness.shards(stream).await.into_iter().map(|shard| shard.id).collect();
    fill(&harness, stream, &shards[0], 0..25).await;
    fill(&harness, stream, &shards[1], 0..3).await;
    let [left, right] = harness.split(stream, &shards[1]).await;
    fill(&harness, stream, &left, 0..2).await;
    let store = MemoryLeaseStore::new();
    let bounded = || quick(stream).stop_at_tip().read_limit(10);

    let mut subscription = reading(&harness, &store, bounded()).await;
    let mut came = drain(&mut subscription).await;
    assert!(subscription.is_at_end());
    assert!(subscription.close().await.is_clean());
    came.sort_by_key(|said| said.split_once(' ').map(|(shard, i)| (shard.to_owned(), i.parse::<usize>().unwrap())));
    let mut expected = [said(&shards[0], 0..25), said(&shards[1], 0..3), said(&left, 0..2)].concat();
    expected.sort_by_key(|said| said.split_once(' ').map(|(shard, i)| (shard.to_owned(), i.parse::<usize>().unwrap())));
    assert_eq!(came, expected);
    assert!(rows(&store, stream).await.values().all(|row| row.owner.is_none()));

    fill(&harness, stream, &right, 0..1).await;
    let mut subscription = reading(&harness, &store, bounded()).await;
    assert_eq!(drain(&mut subscription).await, said(&right, 0..1));
}

/// Whether a stream has ended.
trait AtEnd {
    fn is_at_end(&mut self) -> bool;
}

impl AtEnd for Subscription {
    fn is_at_end(&mut self) -> bool {
        matches!(self.try_next().now_or_never(), Some(Ok(None)))
    }
}

// A6
#[tokio::test]
async fn a_bounded_replay_reads_exactly_the_records_after_a_given_time() {
    let kinesis = Emulator::start();
    kinesis.create_stream("stream", 2).await;
    let shards: Vec<String> = kinesis.shards("stream").await.into_iter().map(|shard| shard.id).collect();
    for shard in &shards {
        fill(&kinesis, "stream", shard, 0..4).await;
    }
    // The arrival times, in milliseconds, separate the phases.
    tokio::time::sleep(Duration::from_millis(20)).await;
    for shard in &shards {
        fill(&kinesis, "stream", shard, 4..7).await;
    }
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), quick("stream").stop_at_tip()).await;
    let mut since = None;
    let mut count = 0;
    while let Some(delivery) = subscription.try_next().await.unwrap() {
        if text(&delivery).ends_with(" 4") {
            let arrived = delivery.arrived_at().unwrap().duration_since(std::time::UNIX_EPOCH).unwrap();
            let millis = i64::try_from(arrived.as_millis()).unwrap();
            since = Some(since.map_or(millis, |since: i64| since.min(millis)));
        }
        count += 1;
        if count == 14 {
            subscription.seeker().seek(KinesisPosition::timestamp(since.unwrap())).await.unwrap();
        }
        delivery.ack();
    }
    // The 14 records of the first phase, and the three records of each shard after that time.
    assert_eq!(count, 14 + 6);
}
