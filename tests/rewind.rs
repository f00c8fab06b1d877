//! Rewinding and reading up to the tip, on a whole Kinesis (A3, A6, L7).

#![expect(clippy::unwrap_used, reason = "what fails in a helper of a test fails the test")]

use futures::{FutureExt, TryStreamExt};
use kinesis_stream::{
    Checkpoint, Commit, Delivery, KinesisError, KinesisPosition, MemoryLeaseStore, SequenceNumber, Subscription,
};
use kinesis_stream_support::{Emulator, Ground, unique};
use tokio::time::Duration;

#[expect(dead_code, reason = "these tests need less of it than others")]
mod wire;

use self::wire::{eventually, instance, quick, reading, record, records, rows, text, texts};

async fn fill(ground: &Ground, stream: &str, shard: &str, range: std::ops::Range<usize>) {
    for i in range {
        ground.put_to_shard(stream, shard, "key", format!("{shard} {i}")).await;
    }
}

fn said(shard: &str, range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|i| format!("{shard} {i}")).collect()
}

/// What all records to the end say, each settled as it comes.
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
async fn a_seek_from_the_consuming_task_replays_from_there_and_the_checkpoint_follows_it_back() {
    let ground = Ground::from_env();
    let stream = &unique("seek");
    ground.create_stream(stream, 1).await;
    let shard = &ground.shards(stream).await[0].id;
    fill(&ground, stream, shard, 0..5).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&ground, &store, quick(stream)).await;
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
    fill(&ground, stream, shard, 5..6).await;
    assert_eq!(text(&record(&mut subscription).await), format!("{shard} 5"));
}

// A6, H1
#[tokio::test]
async fn a_seek_to_the_horizon_reads_the_ended_parents_again_before_their_children() {
    let ground = Ground::from_env();
    let stream = &unique("seek-parents");
    ground.create_stream(stream, 1).await;
    let parent = &ground.shards(stream).await[0].id;
    fill(&ground, stream, parent, 0..3).await;
    let children = ground.split(stream, parent).await;
    for child in &children {
        fill(&ground, stream, child, 0..2).await;
    }
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&ground, &store, quick(stream)).await;
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
async fn a_seek_after_the_shutdown_is_not_connected() {
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
async fn at_the_tip_of_all_shards_the_stream_ends_and_the_next_run_reads_what_came_since() {
    let ground = Ground::from_env();
    let stream = &unique("tip");
    ground.create_stream(stream, 3).await;
    let shards: Vec<String> = ground.shards(stream).await.into_iter().map(|shard| shard.id).collect();
    fill(&ground, stream, &shards[0], 0..25).await;
    fill(&ground, stream, &shards[1], 0..3).await;
    let [left, right] = ground.split(stream, &shards[1]).await;
    fill(&ground, stream, &left, 0..2).await;
    let store = MemoryLeaseStore::new();
    let bounded = || quick(stream).stop_at_tip().read_limit(10);

    let mut subscription = reading(&ground, &store, bounded()).await;
    let mut came = drain(&mut subscription).await;
    assert!(subscription.next_is_over());
    assert!(subscription.close().await.is_clean());
    came.sort_by_key(|said| said.split_once(' ').map(|(shard, i)| (shard.to_owned(), i.parse::<usize>().unwrap())));
    let mut expected = [said(&shards[0], 0..25), said(&shards[1], 0..3), said(&left, 0..2)].concat();
    expected.sort_by_key(|said| said.split_once(' ').map(|(shard, i)| (shard.to_owned(), i.parse::<usize>().unwrap())));
    assert_eq!(came, expected);
    assert!(rows(&store, stream).await.values().all(|row| row.owner.is_none()));

    fill(&ground, stream, &right, 0..1).await;
    let mut subscription = reading(&ground, &store, bounded()).await;
    assert_eq!(drain(&mut subscription).await, said(&right, 0..1));
}

/// Whether a stream stays at its end.
trait Over {
    fn next_is_over(&mut self) -> bool;
}

impl Over for Subscription {
    fn next_is_over(&mut self) -> bool {
        matches!(self.try_next().now_or_never(), Some(Ok(None)))
    }
}

// A6
#[tokio::test]
async fn a_bounded_replay_reads_exactly_what_came_after_a_moment() {
    let kinesis = Emulator::start();
    kinesis.create_stream("stream", 2).await;
    let shards: Vec<String> = kinesis.shards("stream").await.into_iter().map(|shard| shard.id).collect();
    for shard in &shards {
        fill(&kinesis, "stream", shard, 0..4).await;
    }
    // The arrival times of the service tell the phases apart, by the millisecond.
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
    // The 14 of the first time, and the three of either shard that came after that moment.
    assert_eq!(count, 14 + 6);
}
