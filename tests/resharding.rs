//! Streams that are split, merged, deleted and recreated while they are read, end to end.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use std::collections::BTreeMap;

use kinesis_stream::{Checkpoint, ErrorClass, KinesisError, KinesisPosition, MemoryLeaseStore, Subscription};
use kinesis_stream_support::{AwsError, Emulator, Harness, Op, unique};
use tokio::time::{Duration, Instant, sleep};

mod wire;

use self::wire::{eventually, item, quick, reading, record, records, rows, seal, text, texts, up_to_seals};

/// An interval longer than any test, for timers that must not fire.
const NEVER: Duration = Duration::from_hours(1);

const STREAM: &str = "stream";

async fn fill(harness: &Harness, stream: &str, shard: &str, prefix: &str, n: usize) {
    for i in 0..n {
        harness.put_to_shard(stream, shard, prefix, format!("{prefix} {i}")).await;
    }
}

/// The next item, which must be an error.
async fn error(subscription: &mut Subscription) -> KinesisError {
    item(subscription).await.unwrap().unwrap_err()
}

/// Settles `n` records. Returns their texts, and the errors in between.
async fn settle(subscription: &mut Subscription, n: usize) -> (Vec<String>, Vec<KinesisError>) {
    let (mut said, mut errors) = (Vec::new(), Vec::new());
    while said.len() < n {
        match item(subscription).await.unwrap() {
            Ok(delivery) => {
                said.push(text(&delivery));
                delivery.ack();
            }
            Err(error) => {
                assert!(matches!(error.class(), ErrorClass::Transient | ErrorClass::Loss), "{error}");
                errors.push(error);
            }
        }
    }
    (said, errors)
}

// H1, S3
#[tokio::test]
async fn keys_keep_their_order_through_repeated_splits_and_merges_under_load() {
    let harness = Harness::from_env();
    let stream = &unique("load");
    harness.create_stream(stream, 2).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&harness, &store, quick(stream)).await;
    let load = async {
        for i in 0..300 {
            harness.put(stream, &format!("key {}", i % 8), i.to_string()).await;
        }
    };
    let changes = async {
        let first = harness.shards(stream).await[0].id.clone();
        let [low, high] = harness.split(stream, &first).await;
        let [_, right] = harness.split(stream, &low).await;
        let merged = harness.merge(stream, &right, &high).await;
        harness.split(stream, &merged).await;
    };
    let mut by_key = BTreeMap::<String, Vec<usize>>::new();
    let consumer = async {
        for _ in 0..300 {
            let delivery = record(&mut subscription).await;
            assert_eq!(delivery.attempt(), 1);
            let key = delivery.partition_key().unwrap().to_owned();
            by_key.entry(key).or_default().push(text(&delivery).parse().unwrap());
            delivery.ack();
        }
    };
    tokio::join!(load, changes, consumer);
    let expected = (0..8).map(|k| (format!("key {k}"), (0..300).skip(k).step_by(8).collect()));
    assert_eq!(by_key, expected.collect());
    let closed: Vec<String> =
        harness.shards(stream).await.into_iter().filter(|shard| shard.closed).map(|shard| shard.id).collect();
    assert_eq!(closed.len(), 5);
    eventually("every closed shard has its end stored", async || {
        let rows = rows(&store, stream).await;
        closed.iter().all(|shard| rows.get(shard).is_some_and(|row| row.checkpoint == Some(Checkpoint::ShardEnd)))
    })
    .await;
}

// H4
#[tokio::test]
async fn children_are_read_at_once_after_the_last_settlement_of_their_parent_without_a_listing() {
    let mut times = Vec::new();
    for _ in 0..10 {
        let kinesis = Emulator::start();
        kinesis.create_stream(STREAM, 1).await;
        let parent = &kinesis.shards(STREAM).await[0].id;
        fill(&kinesis, STREAM, parent, "parent", 3).await;
        let descriptor = quick(STREAM).list_interval(NEVER).renew_interval(NEVER / 4).lease_ttl(NEVER);
        let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), descriptor).await;
        let mut parents = records(&mut subscription, 3).await;
        let children = kinesis.split(STREAM, parent).await;
        fill(&kinesis, STREAM, &children[0], "child", 1).await;
        sleep(Duration::from_millis(200)).await;
        let last = parents.pop().unwrap();
        parents.into_iter().for_each(kinesis_stream::Delivery::ack);
        let read = |shard: &String| {
            let calls = kinesis.faults().calls(Op::GetRecords);
            calls.into_iter().find(|call| call.shard() == Some(shard)).map(|call| call.at())
        };
        assert!(children.iter().all(|child| read(child).is_none()), "a child is read before its parent is settled");
        let settled = Instant::now();
        last.ack();
        assert_eq!(text(&record(&mut subscription).await), "child 0");
        eventually("both children are read", async || children.iter().all(|child| read(child).is_some())).await;
        times.push(children.iter().filter_map(read).max().unwrap().saturating_duration_since(settled));
    }
    times.sort();
    println!("from the last settlement to the first read of the later child: {times:?}");
    assert!(times[0] < Duration::from_millis(100), "{times:?}");
}

// H7
#[tokio::test]
async fn a_checkpoint_that_the_service_rejects_is_reported_once_and_its_shard_is_read_from_the_oldest_record() {
    let kinesis = Emulator::start();
    kinesis.create_stream(STREAM, 1).await;
    let shard = &kinesis.shards(STREAM).await[0].id;
    fill(&kinesis, STREAM, shard, "record", 3).await;
    let store = MemoryLeaseStore::new();
    let mut first = reading(&kinesis, &store, quick(STREAM)).await;
    let last = records(&mut first, 3).await;
    let number = last[2].sequence_number().clone();
    kinesis_stream::commit_all(last).await.unwrap();
    assert!(first.close().await.is_clean());
    kinesis.faults().on(Op::GetShardIterator).first(2).fail(AwsError::INVALID_ARGUMENT);
    let mut second = reading(&kinesis, &store, quick(STREAM)).await;
    match error(&mut second).await {
        KinesisError::CheckpointLost { shard: of, checkpoint, source: Some(_), .. } => {
            assert_eq!((of.as_str(), &checkpoint), (shard.as_str(), &number));
        }
        other => panic!("{other}"),
    }
    let seals = seal(&kinesis, STREAM).await;
    assert_eq!(up_to_seals(&mut second, seals).await, ["record 0", "record 1", "record 2"]);
}

/// Deletes the stream and recreates it in another second: the service reports creation times in seconds.
async fn recreate(harness: &Harness, stream: &str, shards: u32) {
    harness.delete_stream(stream).await;
    sleep(Duration::from_millis(1_100)).await;
    harness.create_stream(stream, shards).await;
}

// H7
#[tokio::test]
async fn a_recreated_stream_is_read_from_its_start_and_reported_once() {
    let harness = Harness::from_env();
    let stream = &unique("again");
    harness.create_stream(stream, 2).await;
    let store = MemoryLeaseStore::new();
    harness.put_all(stream, (0..20).map(|i| (format!("key {i}"), "old"))).await;
    let mut first = reading(&harness, &store, quick(stream)).await;
    settle(&mut first, 20).await;
    assert!(first.close().await.is_clean());
    recreate(&harness, stream, 1).await;
    harness.put_all(stream, ["a", "b", "c"].map(|text| ("key", text))).await;
    let at_tip = || quick(stream).initial_position(KinesisPosition::latest());
    let mut second = reading(&harness, &store, at_tip()).await;
    let (said, errors) = settle(&mut second, 3).await;
    assert_eq!(said, ["a", "b", "c"]);
    assert!(matches!(&errors[..], [KinesisError::StreamRecreated { .. }]), "{errors:?}");
    eventually("the row of the removed shard is deleted", async || rows(&store, stream).await.len() == 1).await;
    assert!(second.close().await.is_clean());
    let seals = seal(&harness, stream).await;
    let mut third = reading(&harness, &store, at_tip()).await;
    assert_eq!(up_to_seals(&mut third, seals).await, Vec::<String>::new());
}

// H7
#[tokio::test]
async fn a_stream_that_is_recreated_under_a_running_consumer_is_read_from_its_start() {
    let kinesis = Emulator::start();
    kinesis.create_stream(STREAM, 1).await;
    kinesis.put_all(STREAM, ["a", "b"].map(|text| ("key", text))).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&kinesis, &store, quick(STREAM).list_interval(NEVER)).await;
    assert_eq!(settle(&mut subscription, 2).await.0, ["a", "b"]);
    let held = kinesis.faults().on(Op::GetRecords).hold();
    sleep(Duration::from_millis(100)).await;
    recreate(&kinesis, STREAM, 1).await;
    // The service rejects iterators of the old stream. The emulator does not tell the two streams apart.
    let refused = kinesis.faults().on(Op::GetRecords).first(1).fail(AwsError::INVALID_ARGUMENT);
    held.lift();
    eventually("an iterator of the old stream is rejected", async || refused.hits() == 1).await;
    kinesis.put_all(STREAM, ["c", "d"].map(|text| ("key", text))).await;
    let (said, errors) = settle(&mut subscription, 2).await;
    assert_eq!(said, ["c", "d"]);
    let recreated = errors.iter().filter(|error| matches!(error, KinesisError::StreamRecreated { .. })).count();
    assert_eq!(recreated, 1, "{errors:?}");
}

// H6
#[tokio::test]
async fn a_shard_that_the_service_no_longer_knows_is_reported_once_and_its_children_are_read() {
    let kinesis = Emulator::start();
    kinesis.create_stream(STREAM, 1).await;
    let parent = kinesis.shards(STREAM).await[0].id.clone();
    fill(&kinesis, STREAM, &parent, "parent", 2).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&kinesis, &store, quick(STREAM)).await;
    assert_eq!(settle(&mut subscription, 2).await.0, ["parent 0", "parent 1"]);
    kinesis.faults().on(Op::GetRecords).shard(&parent).fail(AwsError::NOT_FOUND);
    let gone = parent.clone();
    kinesis.faults().on(Op::ListShards).edit(move |answer| {
        answer["Shards"].as_array_mut().unwrap().retain(|shard| shard["ShardId"] != gone.as_str());
    });
    let low_and_high = kinesis.client().split_shard().stream_name(STREAM).shard_to_split(&parent);
    low_and_high.new_starting_hash_key((1_u128 << 127).to_string()).send().await.unwrap();
    eventually("the children are listed", async || kinesis.shards(STREAM).await.len() == 2).await;
    let seals = seal(&kinesis, STREAM).await;
    let (said, errors) = settle(&mut subscription, seals).await;
    assert_eq!(said, ["seal", "seal"]);
    let gone: Vec<_> = errors
        .iter()
        .filter(|error| matches!(error, KinesisError::ShardGone { shard, .. } if shard.as_str() == parent))
        .collect();
    assert_eq!(gone.len(), 1, "{errors:?}");
}

// H4
#[tokio::test]
async fn a_stream_with_many_shards_is_listed_page_by_page_and_a_token_is_sent_without_the_stream_name() {
    let kinesis = Emulator::builder().shards_per_page(2).start();
    kinesis.create_stream(STREAM, 5).await;
    kinesis.faults().clear();
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), quick(STREAM).list_interval(NEVER)).await;
    let listings: Vec<_> =
        kinesis.faults().calls(Op::ListShards).iter().map(kinesis_stream_support::Call::body).collect();
    let named: Vec<(bool, bool)> = listings
        .iter()
        .map(|body| (body.get("StreamName").is_some_and(|name| !name.is_null()), body.get("NextToken").is_some()))
        .collect();
    assert_eq!(named, [(true, false), (false, true), (false, true)]);
    let seals = seal(&kinesis, STREAM).await;
    assert_eq!(texts(&records(&mut subscription, seals).await), ["seal"; 5]);
}
