//! Consumers end to end, on an emulator in this process or on the server that `KINESIS_STREAM_ENDPOINT` names.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    pin::pin,
    sync::Arc,
    time::UNIX_EPOCH,
};

use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use kinesis_stream::{
    Checkpoint, Commit, Delivery, ErrorClass, Held, KinesisBroker, KinesisError, KinesisPosition, LeaseKey, LeaseStore,
    MemoryLeaseStore, Outgoing, SequenceNumber, ShardState, Subscription, Take, Write, commit_all,
};
use kinesis_stream_support::{ENDPOINT_VARIABLE, Harness, unique};
use md5::{Digest, Md5};
use tokio::{
    runtime::Builder,
    time::{Duration, Instant, sleep, sleep_until},
};

mod wire;

use self::wire::{eventually, instance, item, quick, reading, record, records, rows, seal, text, texts, up_to_seals};

/// An interval longer than any test, for timers that must not fire.
const NEVER: Duration = Duration::from_hours(1);

async fn stream(harness: &Harness, name: &str, shards: u32) -> String {
    let stream = unique(name);
    harness.create_stream(&stream, shards).await;
    stream
}

/// Puts `prefix 0`, `prefix 1`, and so on into one shard.
async fn fill(harness: &Harness, stream: &str, shard: &str, prefix: &str, n: usize) {
    for text in numbered(prefix, n) {
        harness.put_to_shard(stream, shard, prefix, text).await;
    }
}

fn numbered(prefix: &str, n: usize) -> Vec<String> {
    (0..n).map(|i| format!("{prefix} {i}")).collect()
}

fn after(delivery: &Delivery) -> Checkpoint {
    Checkpoint::After(delivery.sequence_number().clone())
}

/// The state of a shard in the stats of the subscription.
fn state(subscription: &Subscription, shard: &str) -> Option<ShardState> {
    let stats = subscription.stats();
    stats.shards.iter().find(|stats| stats.shard.as_str() == shard).map(|stats| stats.state)
}

/// Runs a consumer as if in a separate process, and kills it: it releases no lease, and drops no delivery.
async fn then_dies<T: Send + 'static>(life: impl Future<Output = (T, Subscription)> + Send + 'static) -> T {
    let process = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let (legacy, subscription) = process.spawn(life).await.expect("the consumer runs until it is killed");
    std::mem::forget(subscription);
    process.shutdown_background();
    legacy
}

// S1, S3
#[tokio::test]
async fn every_record_of_four_shards_arrives_once_and_in_the_order_of_its_key() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "order", 4).await;
    let key = |i: usize| format!("key {}", i % 16);
    harness.put_all(stream, (0..320).map(|i| (key(i), i.to_string()))).await;
    let seals = seal(&harness, stream).await;

    let mut subscription = reading(&harness, &MemoryLeaseStore::new(), quick(stream)).await;
    let (mut by_key, mut shards) = (BTreeMap::<String, Vec<usize>>::new(), BTreeSet::new());
    let mut left = seals;
    while left > 0 {
        let delivery = record(&mut subscription).await;
        let (text, key) = (text(&delivery), delivery.partition_key().unwrap().to_owned());
        assert_eq!((delivery.stream(), delivery.attempt(), delivery.epoch()), (stream.as_str(), 1, 1));
        match text.parse() {
            Ok(number) => {
                shards.insert(delivery.shard().clone());
                by_key.entry(key).or_default().push(number);
            }
            Err(_) => left -= 1,
        }
        delivery.ack();
    }
    assert_eq!(shards.len(), 4, "sixteen keys cover all four shards");
    let expected = (0..16).map(|k| (key(k), (0..320).skip(k).step_by(16).collect())).collect();
    assert_eq!(by_key, expected);
}

// S5, P1, P2
#[tokio::test]
async fn a_published_record_is_read_with_its_headers() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "headers", 1).await;
    let broker = instance(&harness, &MemoryLeaseStore::new()).await;
    let sent = Outgoing::new("key", "payload").header("id", "1").header("trace", Bytes::from_static(b"\0\xff"));
    let published = broker.publisher().publish(stream, sent.header("id", "2")).await.unwrap();

    let mut subscription = broker.subscribe(quick(stream)).await.unwrap();
    let delivery = record(&mut subscription).await;
    assert_eq!((text(&delivery).as_str(), delivery.partition_key()), ("payload", Some("key")));
    let headers: Vec<_> = delivery.headers().iter().map(|(name, value)| (name, value.as_ref())).collect();
    assert_eq!(headers, [("id", &b"1"[..]), ("trace", b"\0\xff"), ("id", b"2")]);
    assert_eq!((delivery.shard(), delivery.sequence_number()), (published.shard(), published.sequence_number()));
    delivery.ack();
}

// S5
#[tokio::test]
async fn a_payload_without_headers_is_stored_unchanged_unless_it_looks_like_an_envelope() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "envelope", 1).await;
    let broker = instance(&harness, &MemoryLeaseStore::new()).await;
    let publisher = broker.publisher();
    let (plain, garbage, lookalike) = (&b"plain"[..], &b"RSK2\0\0\0\x09oops"[..], &b"RSK2\0\0\0\0inner"[..]);
    for payload in [plain, garbage, lookalike] {
        publisher.publish(stream, Outgoing::new("key", payload)).await.unwrap();
    }
    let shard = &harness.shards(stream).await[0].id;
    let stored: Vec<_> = harness.records(stream, shard).await.into_iter().map(|stored| stored.data).collect();
    assert_eq!(stored, [plain, garbage, &[b"RSK2\0\0\0\0", lookalike].concat()]);

    let mut subscription = broker.subscribe(quick(stream)).await.unwrap();
    for payload in [plain, garbage, lookalike] {
        let delivery = record(&mut subscription).await;
        assert_eq!((delivery.payload().as_ref(), delivery.headers().len()), (payload, 0));
        delivery.ack();
    }
}

// L4
#[tokio::test]
async fn create_if_missing_creates_a_missing_stream_and_leaves_an_existing_one_unchanged() {
    let harness = Harness::from_env();
    let stream = &unique("create");
    let broker = instance(&harness, &MemoryLeaseStore::new()).await;
    for shards in [2, 5] {
        let mut subscription = broker.subscribe(quick(stream).create_if_missing(shards)).await.unwrap();
        assert_eq!(harness.shards(stream).await.len(), 2);
        let published = broker.publisher().publish(stream, Outgoing::new("key", "payload")).await.unwrap();
        let delivery = record(&mut subscription).await;
        assert_eq!(delivery.sequence_number(), published.sequence_number());
        assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);
        assert!(subscription.close().await.is_clean());
    }
}

// L5
#[tokio::test]
async fn a_record_put_after_subscribing_at_the_tip_always_arrives() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "tip", 1).await;
    let rounds = if env::var(ENDPOINT_VARIABLE).is_ok() { 20 } else { 200 };
    for round in 0..rounds {
        let at_tip = quick(stream).initial_position(KinesisPosition::latest());
        let mut subscription = reading(&harness, &MemoryLeaseStore::new(), at_tip).await;
        let (_, number) = harness.put(stream, "key", round.to_string()).await;
        let delivery = record(&mut subscription).await;
        assert_eq!((text(&delivery), delivery.sequence_number().as_str()), (round.to_string(), number.as_str()));
        delivery.ack();
    }
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

// A3
#[tokio::test]
async fn each_lease_row_moves_only_with_the_records_of_its_own_shard() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "rows", 2).await;
    let shards = harness.shards(stream).await;
    let (a, b) = (shards[0].id.as_str(), shards[1].id.as_str());
    fill(&harness, stream, a, "a", 5).await;
    fill(&harness, stream, b, "b", 5).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&harness, &store, quick(stream).checkpoint_interval(NEVER)).await;
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for delivery in records(&mut subscription, 10).await {
        if delivery.shard().as_str() == a { of_a.push(Some(delivery)) } else { of_b.push(Some(delivery)) }
    }
    let checkpoints = async || {
        let rows = rows(&store, stream).await;
        (rows[a].checkpoint.clone(), rows[b].checkpoint.clone())
    };
    let number = |delivery: &Option<Delivery>| delivery.as_ref().unwrap().sequence_number().clone();
    let (numbers_a, numbers_b): (Vec<_>, Vec<_>) =
        (of_a.iter().map(number).collect(), of_b.iter().map(number).collect());
    let at = |number: &SequenceNumber| Some(Checkpoint::At(number.clone()));
    let after = |number: &SequenceNumber| Some(Checkpoint::After(number.clone()));

    assert_eq!(checkpoints().await, (at(&numbers_a[0]), at(&numbers_b[0])));
    assert_eq!(of_a[0].take().unwrap().commit().await.unwrap(), Commit::Stored);
    assert_eq!(checkpoints().await, (after(&numbers_a[0]), at(&numbers_b[0])));
    assert_eq!(of_b[1].take().unwrap().commit().await.unwrap(), Commit::Deferred);
    assert_eq!(of_a[2].take().unwrap().commit().await.unwrap(), Commit::Deferred);
    assert_eq!(checkpoints().await, (after(&numbers_a[0]), at(&numbers_b[0])));
    assert_eq!(of_b[0].take().unwrap().commit().await.unwrap(), Commit::Stored);
    assert_eq!(checkpoints().await, (after(&numbers_a[0]), after(&numbers_b[1])));
    assert_eq!(of_a[1].take().unwrap().commit().await.unwrap(), Commit::Stored);
    assert_eq!(checkpoints().await, (after(&numbers_a[2]), after(&numbers_b[1])));
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

// S4
#[tokio::test]
async fn two_consumers_on_one_store_both_see_every_record() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "consumers", 1).await;
    let shard = &harness.shards(stream).await[0].id;
    fill(&harness, stream, shard, "record", 10).await;
    let seals = seal(&harness, stream).await;
    let store = MemoryLeaseStore::new();
    for consumer in ["one", "other"] {
        let broker = KinesisBroker::new().endpoint(harness.endpoint()).test_credentials();
        let broker = broker.lease_store(store.clone()).consumer(consumer).connect().await.unwrap();
        let mut subscription = broker.subscribe(quick(stream)).await.unwrap();
        assert_eq!(up_to_seals(&mut subscription, seals).await, numbered("record", 10));
        broker.shutdown().await;
        let rows = store.leases(consumer, stream).await.unwrap();
        assert!(matches!(rows[0].checkpoint, Some(Checkpoint::After(_))), "{rows:?}");
        assert_eq!((rows.len(), rows[0].epoch, rows[0].owner.as_ref()), (1, 1, None));
    }
}

// A1, A2, A7
#[tokio::test]
async fn a_nacked_or_dropped_record_is_redelivered_as_its_second_attempt() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "again", 1).await;
    let shard = &harness.shards(stream).await[0].id;
    fill(&harness, stream, shard, "record", 4).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&harness, &store, quick(stream)).await;
    for delivery in records(&mut subscription, 4).await {
        assert_eq!(delivery.attempt(), 1);
        match text(&delivery).as_str() {
            "record 1" => delivery.nack(),
            "record 2" => drop(delivery),
            _ => delivery.ack(),
        }
    }
    let again = records(&mut subscription, 2).await;
    assert_eq!(texts(&again), ["record 1", "record 2"]);
    assert!(again.iter().all(|delivery| delivery.attempt() == 2));
    assert_eq!(subscription.stats().shards[0].redeliveries, 2);
    assert_eq!(commit_all(again).await.unwrap(), Commit::Stored);

    let seals = seal(&harness, stream).await;
    assert_eq!(up_to_seals(&mut subscription, seals).await, Vec::<String>::new());
}

// A2
#[tokio::test]
async fn dropping_acknowledges_if_the_descriptor_says_so() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "ack-on-drop", 1).await;
    let shard = &harness.shards(stream).await[0].id;
    fill(&harness, stream, shard, "record", 5).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&harness, &store, quick(stream).ack_on_drop()).await;
    let mut taken = records(&mut subscription, 5).await;
    let covered = Some(after(&taken[3]));
    let last = taken.pop().unwrap();
    drop(taken);
    eventually("the checkpoint covers the dropped records", async || {
        rows(&store, stream).await[shard].checkpoint == covered
    })
    .await;
    drop(subscription);
    eventually("the lease is released", async || rows(&store, stream).await[shard].owner.is_none()).await;
    // The subscription is gone: a record dropped now is redelivered.
    drop(last);
    let mut second = reading(&harness, &store, quick(stream)).await;
    assert_eq!(text(&record(&mut second).await), "record 4");
}

// A2
#[tokio::test]
async fn a_panic_does_not_acknowledge_the_deliveries_that_it_drops() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "panic", 1).await;
    harness.put(stream, "key", "record").await;
    let mut subscription = reading(&harness, &MemoryLeaseStore::new(), quick(stream).ack_on_drop()).await;
    let delivery = record(&mut subscription).await;
    let worker = tokio::spawn(async move {
        let held = delivery;
        assert_eq!(held.attempt(), 2, "this panic is part of the test");
    });
    assert!(worker.await.unwrap_err().is_panic());
    assert_eq!(record(&mut subscription).await.attempt(), 2);
}

// L9
#[tokio::test]
async fn closing_stores_the_checkpoint_then_releases_the_lease_and_the_next_subscription_resumes_there() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "close", 1).await;
    let shard = &harness.shards(stream).await[0].id;
    fill(&harness, stream, shard, "record", 10).await;
    let store = MemoryLeaseStore::new();
    let broker = instance(&harness, &store).await;
    let mut first = broker.subscribe(quick(stream).checkpoint_interval(NEVER)).await.unwrap();
    let mut taken = records(&mut first, 6).await;
    let at = Some(Checkpoint::At(taken[0].sequence_number().clone()));
    let covered = Some(after(&taken[4]));
    let held = taken.pop().unwrap();
    taken.into_iter().for_each(Delivery::ack);
    assert_eq!(rows(&store, stream).await[shard].checkpoint, at, "the checkpoint is not written yet");

    let closer = first.closer();
    let mut closing = pin!(closer.close());
    assert!(closing.as_mut().now_or_never().is_none(), "a delivery is in flight");
    assert!(item(&mut first).await.is_none(), "the stream ends");
    assert!(closing.as_mut().now_or_never().is_none(), "a delivery is in flight");
    let covered_by_held = Some(after(&held));
    assert_eq!(held.commit().await.unwrap(), Commit::Stored);
    assert!(closing.await.is_clean());
    let row = &rows(&store, stream).await[shard];
    assert_ne!(covered, covered_by_held);
    assert_eq!((&row.checkpoint, &row.owner, row.epoch), (&covered_by_held, &None, 1));
    assert!(item(&mut first).await.is_none(), "the stream stays ended");

    // The same broker can subscribe again as soon as the first subscription has ended.
    let mut second = broker.subscribe(quick(stream)).await.unwrap();
    let rest = records(&mut second, 4).await;
    assert_eq!(texts(&rest), numbered("record", 10)[6..]);
    assert!(rest.iter().all(|delivery| delivery.epoch() == 2));
}

// L9
#[tokio::test]
async fn closing_reports_open_deliveries_and_later_commits_are_superseded() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "open", 1).await;
    let shard = &harness.shards(stream).await[0].id;
    fill(&harness, stream, shard, "record", 3).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&harness, &store, quick(stream).drain_timeout(Duration::from_millis(100))).await;
    let mut taken = records(&mut subscription, 3).await;
    let first = taken.remove(0);
    let covered = Some(after(&first));
    first.ack();
    let report = subscription.close().await;
    assert!(!report.is_clean() && report.unsaved.is_empty(), "{report:?}");
    let [open] = &report.open[..] else { panic!("{report:?}") };
    assert_eq!((open.shard.as_str(), open.deliveries, &open.oldest), (shard.as_str(), 2, taken[0].sequence_number()));
    for delivery in taken {
        assert_eq!(delivery.commit().await.unwrap(), Commit::Superseded);
    }
    let row = &rows(&store, stream).await[shard];
    assert_eq!((&row.checkpoint, &row.owner), (&covered, &None));
}

// L9, L6
#[tokio::test]
async fn a_lease_is_kept_while_closing_waits_for_a_delivery() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "drain", 1).await;
    let shard = &harness.shards(stream).await[0].id;
    fill(&harness, stream, shard, "record", 2).await;
    let store = MemoryLeaseStore::new();
    let mut closing = reading(&harness, &store, quick(stream)).await;
    let held = record(&mut closing).await;
    let mut waiting = reading(&harness, &store, quick(stream)).await;
    let closer = closing.closer();
    let mut finishing = pin!(closer.close());
    assert!(finishing.as_mut().now_or_never().is_none(), "a delivery is in flight");
    assert!(item(&mut closing).await.is_none());

    // Later than the TTL of the lease without renewals.
    let end = Instant::now() + Duration::from_secs(3);
    tokio::select! {
        _ = waiting.next() => panic!("the other instance took a shard that is still being settled"),
        () = sleep_until(end) => {}
    }
    assert_eq!(held.commit().await.unwrap(), Commit::Stored);
    assert!(finishing.await.is_clean());
    assert_eq!(text(&record(&mut waiting).await), "record 1");
}

// L7
#[tokio::test]
async fn shutting_down_closes_every_subscription_of_the_broker() {
    let harness = Harness::from_env();
    let streams = [stream(&harness, "shut", 1).await, stream(&harness, "shut", 1).await];
    let store = MemoryLeaseStore::new();
    let broker = instance(&harness, &store).await;
    let mut subscriptions = Vec::new();
    for stream in &streams {
        harness.put(stream, "key", "payload").await;
        let mut subscription = broker.subscribe(quick(stream)).await.unwrap();
        record(&mut subscription).await.ack();
        subscriptions.push(subscription);
    }
    broker.shutdown().await;
    for (stream, subscription) in streams.iter().zip(&mut subscriptions) {
        assert!(item(subscription).await.is_none());
        let rows = rows(&store, stream).await;
        let row = rows.values().next().unwrap();
        assert!(row.owner.is_none() && matches!(row.checkpoint, Some(Checkpoint::After(_))), "{row:?}");
    }
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

/// A record in which the Kinesis Producer Library aggregated these user records.
fn aggregated(user_records: &[&str]) -> Vec<u8> {
    let mut message = b"\x0a\x03key".to_vec();
    for data in user_records {
        let length = u8::try_from(data.len()).unwrap();
        message.extend([0x1a, length + 4, 0x08, 0x00, 0x1a, length]);
        message.extend(data.bytes());
    }
    [b"\xf3\x89\x9a\xc2", message.as_slice(), Md5::digest(&message).as_slice()].concat()
}

// R12
#[tokio::test]
async fn an_aggregated_record_yields_an_error_that_names_it_at_its_place_in_the_order() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "aggregated", 1).await;
    let blob = aggregated(&["one", "two"]);
    harness.put(stream, "key", "before").await;
    let (shard, number) = harness.put(stream, "a", blob.clone()).await;
    harness.put(stream, "key", "behind").await;
    let store = MemoryLeaseStore::new();
    let mut first = reading(&harness, &store, quick(stream)).await;

    let before = record(&mut first).await;
    assert_eq!(text(&before), "before");
    before.ack();
    let error = item(&mut first).await.unwrap().unwrap_err();
    assert_eq!(error.class(), ErrorClass::Record);
    match error {
        KinesisError::AggregatedRecord { stream: of, shard: inside, sequence_number, partition_key, data, .. } => {
            assert_eq!((&*of, inside.as_str(), sequence_number.as_str()), (stream.as_str(), &*shard, &*number));
            assert_eq!((partition_key.as_deref(), &data[..]), (Some("a"), &blob[..]));
        }
        other => panic!("{other}"),
    }
    let behind = record(&mut first).await;
    assert_eq!(text(&behind), "behind");
    let covered = Some(after(&behind));
    assert_eq!(behind.commit().await.unwrap(), Commit::Stored);
    assert!(first.close().await.is_clean());
    assert_eq!(rows(&store, stream).await[&shard].checkpoint, covered);

    let seals = seal(&harness, stream).await;
    let mut second = reading(&harness, &store, quick(stream)).await;
    assert_eq!(up_to_seals(&mut second, seals).await, Vec::<String>::new());
}

// R12
#[tokio::test]
async fn an_aggregated_record_behind_an_open_delivery_is_reported_again_after_a_restart() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "aggregated-again", 1).await;
    harness.put(stream, "key", "before").await;
    let (_, number) = harness.put(stream, "a", aggregated(&["one"])).await;
    let store = MemoryLeaseStore::new();
    for _ in 0..2 {
        let once = quick(stream).drain_timeout(Duration::ZERO);
        let mut subscription = reading(&harness, &store, once).await;
        let open = record(&mut subscription).await;
        assert_eq!(text(&open), "before");
        match item(&mut subscription).await.unwrap().unwrap_err() {
            KinesisError::AggregatedRecord { sequence_number, .. } => assert_eq!(sequence_number.as_str(), number),
            other => panic!("{other}"),
        }
        subscription.close().await;
        drop(open);
    }
}

// R12
#[tokio::test]
async fn the_aggregate_magic_followed_by_garbage_is_a_plain_record() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "magic", 1).await;
    let garbage = [&b"\xf3\x89\x9a\xc2"[..], b"garbage that is longer than a trailer"].concat();
    let payloads = [b"good".to_vec(), garbage, b"good".to_vec()];
    harness.put_all(stream, payloads.iter().map(|payload| ("key", payload.clone()))).await;
    let mut subscription = reading(&harness, &MemoryLeaseStore::new(), quick(stream)).await;
    let taken = records(&mut subscription, 3).await;
    assert!(taken.iter().map(|delivery| delivery.payload().as_ref()).eq(payloads.iter()));
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

// X1
#[tokio::test]
async fn a_deleted_stream_ends_its_subscription_after_one_error_that_says_so() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "deleted", 1).await;
    harness.put(stream, "key", "record").await;
    let mut subscription = reading(&harness, &MemoryLeaseStore::new(), quick(stream)).await.tolerant();
    subscription.next().await.unwrap().unwrap().ack();
    harness.delete_stream(stream).await;
    let error = subscription.next().await.unwrap().unwrap_err();
    assert!(matches!(&error, KinesisError::StreamGone { stream: of, .. } if **of == **stream), "{error}");
    assert_eq!(error.class(), ErrorClass::Fatal);
    assert!(subscription.next().await.is_none());
}
