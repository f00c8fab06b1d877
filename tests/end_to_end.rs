//! Whole consumers on a whole Kinesis: an emulator in this process, or the server that `KINESIS_STREAM_ENDPOINT` names.

#![expect(clippy::unwrap_used, reason = "what fails in a helper of a test fails the test")]

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
use kinesis_stream_support::{ENDPOINT_VARIABLE, Ground, unique};
use md5::{Digest, Md5};
use tokio::{
    runtime::Builder,
    time::{Duration, Instant, sleep, sleep_until},
};

mod wire;

use self::wire::{eventually, instance, item, quick, reading, record, records, rows, seal, text, texts, up_to_seals};

/// Longer than any test: what would come by it does not come.
const NEVER: Duration = Duration::from_hours(1);

async fn stream(ground: &Ground, name: &str, shards: u32) -> String {
    let stream = unique(name);
    ground.create_stream(&stream, shards).await;
    stream
}

/// Records of one shard: `prefix 0`, `prefix 1`, and so on.
async fn fill(ground: &Ground, stream: &str, shard: &str, prefix: &str, n: usize) {
    for text in numbered(prefix, n) {
        ground.put_to_shard(stream, shard, prefix, text).await;
    }
}

fn numbered(prefix: &str, n: usize) -> Vec<String> {
    (0..n).map(|i| format!("{prefix} {i}")).collect()
}

fn after(delivery: &Delivery) -> Checkpoint {
    Checkpoint::After(delivery.sequence_number().clone())
}

/// The state of a shard that the subscription knows.
fn state(subscription: &Subscription, shard: &str) -> Option<ShardState> {
    let stats = subscription.stats();
    stats.shards.iter().find(|stats| stats.shard.as_str() == shard).map(|stats| stats.state)
}

/// Lives a consumer's life in a process of its own, as far as Kinesis and the store can tell, and kills that process:
/// nothing is released, and nothing that is held is dropped.
async fn then_dies<T: Send + 'static>(life: impl Future<Output = (T, Subscription)> + Send + 'static) -> T {
    let process = Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let (legacy, subscription) = process.spawn(life).await.expect("it lives until it is killed");
    std::mem::forget(subscription);
    process.shutdown_background();
    legacy
}

// S1, S3
#[tokio::test]
async fn every_record_of_four_shards_comes_once_and_in_the_order_of_its_key() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "order", 4).await;
    let key = |i: usize| format!("key {}", i % 16);
    ground.put_all(stream, (0..320).map(|i| (key(i), i.to_string()))).await;
    let seals = seal(&ground, stream).await;

    let mut subscription = reading(&ground, &MemoryLeaseStore::new(), quick(stream)).await;
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
    assert_eq!(shards.len(), 4, "sixteen keys fall into all four shards");
    let expected = (0..16).map(|k| (key(k), (0..320).skip(k).step_by(16).collect())).collect();
    assert_eq!(by_key, expected);
}

// S5, P1, P2
#[tokio::test]
async fn headers_come_back_with_the_record_that_was_published_with_them() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "headers", 1).await;
    let broker = instance(&ground, &MemoryLeaseStore::new()).await;
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
async fn a_payload_without_headers_lies_in_the_shard_as_it_is_unless_it_looks_like_an_envelope() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "envelope", 1).await;
    let broker = instance(&ground, &MemoryLeaseStore::new()).await;
    let publisher = broker.publisher();
    let (plain, garbage, lookalike) = (&b"plain"[..], &b"RSK2\0\0\0\x09oops"[..], &b"RSK2\0\0\0\0inner"[..]);
    for payload in [plain, garbage, lookalike] {
        publisher.publish(stream, Outgoing::new("key", payload)).await.unwrap();
    }
    let shard = &ground.shards(stream).await[0].id;
    let stored: Vec<_> = ground.records(stream, shard).await.into_iter().map(|stored| stored.data).collect();
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
async fn a_missing_stream_is_created_if_that_is_asked_for_and_an_existing_one_is_taken_as_it_is() {
    let ground = Ground::from_env();
    let stream = &unique("create");
    let broker = instance(&ground, &MemoryLeaseStore::new()).await;
    for shards in [2, 5] {
        let mut subscription = broker.subscribe(quick(stream).create_if_missing(shards)).await.unwrap();
        assert_eq!(ground.shards(stream).await.len(), 2);
        let published = broker.publisher().publish(stream, Outgoing::new("key", "payload")).await.unwrap();
        let delivery = record(&mut subscription).await;
        assert_eq!(delivery.sequence_number(), published.sequence_number());
        assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);
        assert!(subscription.close().await.is_clean());
    }
}

// E7, L5
#[tokio::test]
async fn a_record_that_is_put_after_subscribing_at_the_tip_always_comes() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "tip", 1).await;
    let rounds = if env::var(ENDPOINT_VARIABLE).is_ok() { 20 } else { 200 };
    for round in 0..rounds {
        let at_tip = quick(stream).initial_position(KinesisPosition::latest());
        let mut subscription = reading(&ground, &MemoryLeaseStore::new(), at_tip).await;
        let (_, number) = ground.put(stream, "key", round.to_string()).await;
        let delivery = record(&mut subscription).await;
        assert_eq!((text(&delivery), delivery.sequence_number().as_str()), (round.to_string(), number.as_str()));
        delivery.ack();
    }
}

// A1, A3, R4
#[tokio::test]
async fn what_was_committed_does_not_come_again_after_a_restart_and_nothing_else_is_lost() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "restart", 2).await;
    ground.put_all(stream, (0..200).map(|i| (format!("key {i}"), i.to_string()))).await;
    let store = MemoryLeaseStore::new();

    let mut first = reading(&ground, &store, quick(stream)).await;
    let half = records(&mut first, 100).await;
    let mut said = texts(&half);
    assert_eq!(commit_all(half).await.unwrap(), Commit::Stored);
    assert!(first.close().await.is_clean());

    let seals = seal(&ground, stream).await;
    let mut second = reading(&ground, &store, quick(stream)).await;
    let rest = up_to_seals(&mut second, seals).await;
    assert_eq!((said.len(), rest.len()), (100, 100));
    said.extend(rest);
    let numbers: BTreeSet<usize> = said.iter().map(|text| text.parse().unwrap()).collect();
    assert_eq!(numbers, (0..200).collect());
}

// R13, A11
#[tokio::test]
async fn records_that_came_at_the_tip_and_were_never_settled_come_again_after_a_crash() {
    let ground = Ground::from_env();
    let stream = stream(&ground, "crash", 1).await;
    let store = MemoryLeaseStore::new();
    let at_tip = || quick(&stream).initial_position(KinesisPosition::latest());
    ground.put(&stream, "key", "too old").await;

    let (there, shared, descriptor, name) = (ground.clone(), store.clone(), at_tip(), stream.clone());
    then_dies(async move {
        let mut subscription = reading(&there, &shared, descriptor).await;
        there.put_all(&name, numbered("new", 10).into_iter().map(|text| ("key", text))).await;
        let held = records(&mut subscription, 5).await;
        assert_eq!(texts(&held), numbered("new", 5));
        (held, subscription)
    })
    .await;
    let seals = seal(&ground, &stream).await;
    let mut second = reading(&ground, &store, at_tip()).await;
    assert_eq!(up_to_seals(&mut second, seals).await, numbered("new", 10));
}

// A2, H1, H5
#[tokio::test]
async fn the_records_of_a_closed_parent_come_before_those_of_its_children() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "split", 1).await;
    let parent = &ground.shards(stream).await[0].id;
    fill(&ground, stream, parent, "parent", 10).await;
    let [low, high] = ground.split(stream, parent).await;
    fill(&ground, stream, &low, "low", 5).await;
    fill(&ground, stream, &high, "high", 5).await;
    let seals = seal(&ground, stream).await;

    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&ground, &store, quick(stream)).await;
    let said = up_to_seals(&mut subscription, seals).await;
    assert_eq!(said[..10], numbered("parent", 10));
    let of = |prefix: &str| said[10..].iter().filter(|text| text.starts_with(prefix)).cloned().collect::<Vec<_>>();
    assert_eq!((of("low"), of("high")), (numbered("low", 5), numbered("high", 5)));
    assert_eq!(rows(&store, stream).await[parent].checkpoint, Some(Checkpoint::ShardEnd));
}

// C1, H1
#[tokio::test]
async fn the_child_of_a_merge_begins_after_the_last_record_of_both_parents() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "merge", 2).await;
    let shards = ground.shards(stream).await;
    let (one, other) = (&shards[0].id, &shards[1].id);
    fill(&ground, stream, one, "one", 100).await;
    fill(&ground, stream, other, "other", 3).await;
    let child = &ground.merge(stream, one, other).await;
    fill(&ground, stream, child, "child", 10).await;
    let seals = seal(&ground, stream).await;

    let mut subscription = reading(&ground, &MemoryLeaseStore::new(), quick(stream).read_limit(10)).await;
    let said = up_to_seals(&mut subscription, seals).await;
    let of = |prefix: &str| said[..103].iter().filter(|text| text.starts_with(prefix)).cloned().collect::<Vec<_>>();
    assert_eq!((of("one"), of("other")), (numbered("one", 100), numbered("other", 3)));
    assert_eq!(said[103..], numbered("child", 10));
}

// A8
#[tokio::test]
async fn a_delivery_that_was_dropped_comes_again_after_a_restart_with_all_that_follow() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "dropped", 1).await;
    let shard = &ground.shards(stream).await[0].id;
    fill(&ground, stream, shard, "record", 10).await;
    let store = MemoryLeaseStore::new();

    let mut first = reading(&ground, &store, quick(stream)).await;
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
    // It waits in the queue to come again, so nothing is in flight, and nothing is left open in the user's hands.
    first.close().await;
    assert_eq!(rows(&store, stream).await[shard].checkpoint, covered);

    let seals = seal(&ground, stream).await;
    let mut second = reading(&ground, &store, quick(stream)).await;
    assert_eq!(up_to_seals(&mut second, seals).await, numbered("record", 10)[3..]);
}

// A13, A3
#[tokio::test]
async fn each_lease_row_moves_by_the_records_of_its_own_shard() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "rows", 2).await;
    let shards = ground.shards(stream).await;
    let (a, b) = (shards[0].id.as_str(), shards[1].id.as_str());
    fill(&ground, stream, a, "a", 5).await;
    fill(&ground, stream, b, "b", 5).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&ground, &store, quick(stream).checkpoint_interval(NEVER)).await;
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

// B9, R6
#[tokio::test]
async fn a_replay_that_dies_half_way_goes_on_where_it_was_when_started_without_start_at() {
    let ground = Ground::from_env();
    let stream = stream(&ground, "replay", 1).await;
    let shard = ground.shards(&stream).await[0].id.clone();
    fill(&ground, &stream, &shard, "record", 10).await;
    let store = MemoryLeaseStore::new();
    let mut first = reading(&ground, &store, quick(&stream)).await;
    assert_eq!(commit_all(records(&mut first, 10).await).await.unwrap(), Commit::Stored);
    first.close().await;

    let (there, same_store) = (ground.clone(), store.clone());
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

    let seals = seal(&ground, &stream).await;
    let mut third = reading(&ground, &store, quick(&stream)).await;
    assert_eq!(up_to_seals(&mut third, seals).await, numbered("record", 10)[4..]);
}

// S4
#[tokio::test]
async fn two_consumers_on_one_store_both_see_every_record() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "consumers", 1).await;
    let shard = &ground.shards(stream).await[0].id;
    fill(&ground, stream, shard, "record", 10).await;
    let seals = seal(&ground, stream).await;
    let store = MemoryLeaseStore::new();
    for consumer in ["one", "other"] {
        let broker = KinesisBroker::new().endpoint(ground.endpoint()).test_credentials();
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
async fn a_record_that_is_given_back_or_dropped_comes_again_as_its_second_attempt() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "again", 1).await;
    let shard = &ground.shards(stream).await[0].id;
    fill(&ground, stream, shard, "record", 4).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&ground, &store, quick(stream)).await;
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

    let seals = seal(&ground, stream).await;
    assert_eq!(up_to_seals(&mut subscription, seals).await, Vec::<String>::new());
}

// A2
#[tokio::test]
async fn dropping_acknowledges_where_the_descriptor_says_so() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "ack-on-drop", 1).await;
    let shard = &ground.shards(stream).await[0].id;
    fill(&ground, stream, shard, "record", 5).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&ground, &store, quick(stream).ack_on_drop()).await;
    let mut taken = records(&mut subscription, 5).await;
    let covered = Some(after(&taken[3]));
    let last = taken.pop().unwrap();
    drop(taken);
    eventually("the dropped ones are covered", async || rows(&store, stream).await[shard].checkpoint == covered).await;
    drop(subscription);
    eventually("the lease is released", async || rows(&store, stream).await[shard].owner.is_none()).await;
    // The subscription is gone: what is dropped now comes again.
    drop(last);
    let mut second = reading(&ground, &store, quick(stream)).await;
    assert_eq!(text(&record(&mut second).await), "record 4");
}

// A2
#[tokio::test]
async fn a_panic_does_not_acknowledge_what_it_drops() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "panic", 1).await;
    ground.put(stream, "key", "record").await;
    let mut subscription = reading(&ground, &MemoryLeaseStore::new(), quick(stream).ack_on_drop()).await;
    let delivery = record(&mut subscription).await;
    let worker = tokio::spawn(async move {
        let held = delivery;
        assert_eq!(held.attempt(), 2, "this panic is part of the test");
    });
    assert!(worker.await.unwrap_err().is_panic());
    assert_eq!(record(&mut subscription).await.attempt(), 2);
}

// I2, L9
#[tokio::test]
async fn closing_stores_what_is_settled_then_releases_and_the_next_one_goes_on_there() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "close", 1).await;
    let shard = &ground.shards(stream).await[0].id;
    fill(&ground, stream, shard, "record", 10).await;
    let store = MemoryLeaseStore::new();
    let broker = instance(&ground, &store).await;
    let mut first = broker.subscribe(quick(stream).checkpoint_interval(NEVER)).await.unwrap();
    let mut taken = records(&mut first, 6).await;
    let at = Some(Checkpoint::At(taken[0].sequence_number().clone()));
    let covered = Some(after(&taken[4]));
    let held = taken.pop().unwrap();
    taken.into_iter().for_each(Delivery::ack);
    assert_eq!(rows(&store, stream).await[shard].checkpoint, at, "it is not written yet");

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
    assert!(item(&mut first).await.is_none(), "the end stays");

    // The same broker, as soon as the first subscription is over.
    let mut second = broker.subscribe(quick(stream)).await.unwrap();
    let rest = records(&mut second, 4).await;
    assert_eq!(texts(&rest), numbered("record", 10)[6..]);
    assert!(rest.iter().all(|delivery| delivery.epoch() == 2));
}

// L9
#[tokio::test]
async fn closing_names_what_stayed_open_and_what_is_settled_later_is_superseded() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "open", 1).await;
    let shard = &ground.shards(stream).await[0].id;
    fill(&ground, stream, shard, "record", 3).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&ground, &store, quick(stream).drain_timeout(Duration::from_millis(100))).await;
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
async fn a_lease_is_kept_for_as_long_as_closing_waits_for_a_delivery() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "drain", 1).await;
    let shard = &ground.shards(stream).await[0].id;
    fill(&ground, stream, shard, "record", 2).await;
    let store = MemoryLeaseStore::new();
    let mut closing = reading(&ground, &store, quick(stream)).await;
    let held = record(&mut closing).await;
    let mut waiting = reading(&ground, &store, quick(stream)).await;
    let closer = closing.closer();
    let mut finishing = pin!(closer.close());
    assert!(finishing.as_mut().now_or_never().is_none(), "a delivery is in flight");
    assert!(item(&mut closing).await.is_none());

    // Past the time to live of the lease, had it not been renewed.
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
    let ground = Ground::from_env();
    let streams = [stream(&ground, "shut", 1).await, stream(&ground, "shut", 1).await];
    let store = MemoryLeaseStore::new();
    let broker = instance(&ground, &store).await;
    let mut subscriptions = Vec::new();
    for stream in &streams {
        ground.put(stream, "key", "payload").await;
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

// A7 of the cases, H3
#[tokio::test]
async fn the_end_of_a_shard_is_stored_as_soon_as_its_last_delivery_is_settled_and_not_before() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "end", 1).await;
    let parent = &ground.shards(stream).await[0].id;
    fill(&ground, stream, parent, "record", 3).await;
    let [low, high] = &ground.split(stream, parent).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&ground, &store, quick(stream).checkpoint_interval(NEVER)).await;
    let mut taken = records(&mut subscription, 3).await;
    let held = taken.remove(1);
    let covered = Some(after(&taken[0]));
    assert_eq!(taken.remove(0).commit().await.unwrap(), Commit::Stored);
    assert_eq!(taken.remove(0).commit().await.unwrap(), Commit::Deferred);

    // The end is seen, and renewals go by; the row stays where it is.
    eventually("the end is seen", async || state(&subscription, parent) == Some(ShardState::Ending)).await;
    let counter = rows(&store, stream).await[parent].counter;
    eventually("renewals go by", async || rows(&store, stream).await[parent].counter >= counter + 3).await;
    let before = rows(&store, stream).await;
    assert_eq!((before.len(), &before[parent].checkpoint), (1, &covered), "{before:?}");

    held.ack();
    eventually("the end is stored and the children are read", async || {
        let rows = rows(&store, stream).await;
        rows[parent].checkpoint == Some(Checkpoint::ShardEnd) && rows.contains_key(low) && rows.contains_key(high)
    })
    .await;
    let seals = seal(&ground, stream).await;
    assert_eq!(up_to_seals(&mut subscription, seals).await, Vec::<String>::new());
    let row = &rows(&store, stream).await[parent];
    assert_eq!((&row.owner, row.epoch), (&None, 1));
    assert_eq!(state(&subscription, parent), Some(ShardState::Ended));
}

// H3
#[tokio::test]
async fn a_record_that_waits_to_come_again_holds_the_end_of_its_shard_back() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "end-again", 1).await;
    let parent = &ground.shards(stream).await[0].id;
    fill(&ground, stream, parent, "record", 1).await;
    ground.split(stream, parent).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&ground, &store, quick(stream)).await;
    record(&mut subscription).await.nack();
    eventually("the end is seen", async || state(&subscription, parent) == Some(ShardState::Ending)).await;
    let again = record(&mut subscription).await;
    assert_eq!((text(&again).as_str(), again.attempt()), ("record 0", 2));
    assert!(matches!(rows(&store, stream).await[parent].checkpoint, Some(Checkpoint::At(_))));
    again.ack();
    let ended = async || rows(&store, stream).await[parent].checkpoint == Some(Checkpoint::ShardEnd);
    eventually("the end is stored", ended).await;
}

// A3, A4 of the cases, H2, H3, H4
#[tokio::test]
async fn the_end_of_a_shard_that_was_read_and_settled_before_is_found_without_a_new_record() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "end-found", 1).await;
    let parent = &ground.shards(stream).await[0].id;
    fill(&ground, stream, parent, "record", 5).await;
    let store = MemoryLeaseStore::new();
    let mut first = reading(&ground, &store, quick(stream)).await;
    assert_eq!(commit_all(records(&mut first, 5).await).await.unwrap(), Commit::Stored);
    assert!(first.close().await.is_clean());

    let [low, high] = &ground.split(stream, parent).await;
    let mut second = reading(&ground, &store, quick(stream)).await;
    eventually("the end is stored and the children are read", async || {
        let rows = rows(&store, stream).await;
        rows[parent].checkpoint == Some(Checkpoint::ShardEnd) && rows.contains_key(low) && rows.contains_key(high)
    })
    .await;
    let seals = seal(&ground, stream).await;
    assert_eq!(up_to_seals(&mut second, seals).await, Vec::<String>::new());
}

// A1 of the cases, H4, R6
#[tokio::test]
async fn children_are_read_from_their_first_record_when_the_process_died_right_after_their_parent_ended() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "children", 1).await;
    let parent = &ground.shards(stream).await[0].id;
    fill(&ground, stream, parent, "parent", 3).await;
    let [low, high] = ground.split(stream, parent).await;
    fill(&ground, stream, &low, "low", 3).await;
    fill(&ground, stream, &high, "high", 3).await;
    let store = MemoryLeaseStore::new();
    store_end(&store, stream, parent).await;

    let seals = seal(&ground, stream).await;
    let at_tip = quick(stream).initial_position(KinesisPosition::latest());
    let mut subscription = reading(&ground, &store, at_tip).await;
    let mut said = up_to_seals(&mut subscription, seals).await;
    said.sort();
    assert_eq!(said, [numbered("high", 3), numbered("low", 3)].concat());
}

/// The row that an owner leaves behind that died right after it stored the end of a shard and released it.
async fn store_end(store: &MemoryLeaseStore, stream: &str, shard: &str) {
    let key = LeaseKey::new("default", stream, shard);
    let owner: Arc<str> = "dead".into();
    store.take(&Take::new(key.clone(), Arc::clone(&owner))).await.unwrap();
    let held = Held::new(key, owner, 1);
    assert_eq!(store.checkpoint(&held, &Checkpoint::ShardEnd).await.unwrap(), Write::Applied(()));
    assert_eq!(store.release(&held).await.unwrap(), Write::Applied(()));
}

// C3 of the cases, H5
#[tokio::test]
async fn a_finished_parent_is_not_read_again_and_does_not_hold_its_children_back() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "finished", 1).await;
    let parent = &ground.shards(stream).await[0].id;
    fill(&ground, stream, parent, "parent", 3).await;
    ground.split(stream, parent).await;
    let store = MemoryLeaseStore::new();
    let seals = seal(&ground, stream).await;
    let mut first = reading(&ground, &store, quick(stream)).await;
    assert_eq!(up_to_seals(&mut first, seals).await, numbered("parent", 3));
    assert!(first.close().await.is_clean());
    let seals = seal(&ground, stream).await;
    let mut second = reading(&ground, &store, quick(stream)).await;
    assert_eq!(up_to_seals(&mut second, seals).await, Vec::<String>::new());
    assert_eq!(rows(&store, stream).await[parent].epoch, 1);
}

// R6
#[tokio::test]
async fn a_forced_start_at_the_horizon_reads_ended_shards_again_parents_first() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "forced", 1).await;
    let parent = &ground.shards(stream).await[0].id;
    fill(&ground, stream, parent, "parent", 3).await;
    let [low, _] = ground.split(stream, parent).await;
    fill(&ground, stream, &low, "low", 3).await;
    let seals = seal(&ground, stream).await;
    let store = MemoryLeaseStore::new();
    let everything = [numbered("parent", 3), numbered("low", 3)].concat();
    for _ in 0..2 {
        let forced = quick(stream).start_at(KinesisPosition::horizon());
        let mut subscription = reading(&ground, &store, forced).await;
        assert_eq!(up_to_seals(&mut subscription, seals).await, everything);
        assert!(subscription.close().await.is_clean());
    }
}

// A18, H5, R6
#[tokio::test]
async fn nothing_older_comes_from_a_start_at_a_time_after_a_split() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "timestamp", 1).await;
    let parent = &ground.shards(stream).await[0].id;
    fill(&ground, stream, parent, "old parent", 3).await;
    let [low, high] = &ground.split(stream, parent).await;
    fill(&ground, stream, low, "old", 2).await;
    // Records of one millisecond have one time.
    sleep(Duration::from_millis(20)).await;
    fill(&ground, stream, high, "mark", 1).await;
    sleep(Duration::from_millis(20)).await;
    fill(&ground, stream, low, "new", 2).await;
    let seals = seal(&ground, stream).await;

    let mut all = reading(&ground, &MemoryLeaseStore::new(), quick(stream).ack_on_drop()).await;
    let mark = loop {
        let delivery = record(&mut all).await;
        if text(&delivery) == "mark 0" {
            break delivery.arrived_at().unwrap().duration_since(UNIX_EPOCH).unwrap();
        }
    };
    let since = KinesisPosition::timestamp(i64::try_from(mark.as_millis()).unwrap());
    for descriptor in [quick(stream).initial_position(since.clone()), quick(stream).start_at(since)] {
        let mut subscription = reading(&ground, &MemoryLeaseStore::new(), descriptor).await;
        let mut said = up_to_seals(&mut subscription, seals).await;
        said.sort();
        assert_eq!(said, ["mark 0", "new 0", "new 1"]);
    }
}

// E5, R6
#[tokio::test]
async fn a_forced_start_applies_to_the_shards_of_an_instance_that_proves_dead() {
    let ground = Ground::from_env();
    let stream = stream(&ground, "dead", 1).await;
    let shard = ground.shards(&stream).await[0].id.clone();
    fill(&ground, &stream, &shard, "record", 3).await;
    let store = MemoryLeaseStore::new();
    let (there, same_store, descriptor) = (ground.clone(), store.clone(), quick(&stream));
    then_dies(async move {
        let mut subscription = reading(&there, &same_store, descriptor).await;
        let commit = commit_all(records(&mut subscription, 3).await).await;
        (assert_eq!(commit.unwrap(), Commit::Stored), subscription)
    })
    .await;
    let forced = quick(&stream).start_at(KinesisPosition::horizon());
    let mut subscription = reading(&ground, &store, forced).await;
    assert_eq!(subscription.stats().awaited, 1);
    let seals = seal(&ground, &stream).await;
    assert_eq!(up_to_seals(&mut subscription, seals).await, numbered("record", 3));
}

// H1
#[tokio::test]
async fn children_wait_for_what_another_instance_holds_of_their_parent() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "elsewhere", 1).await;
    let parent = &ground.shards(stream).await[0].id;
    fill(&ground, stream, parent, "parent", 2).await;
    let store = MemoryLeaseStore::new();
    let mut one = reading(&ground, &store, quick(stream)).await;
    let mut held = records(&mut one, 2).await;
    let mut other = reading(&ground, &store, quick(stream).list_interval(Duration::from_millis(50))).await;
    ground.split(stream, parent).await;
    let seals = seal(&ground, stream).await;
    held.pop().unwrap().ack();

    eventually("the end is seen", async || state(&one, parent) == Some(ShardState::Ending)).await;
    let counter = rows(&store, stream).await[parent].counter;
    eventually("renewals go by", async || rows(&store, stream).await[parent].counter >= counter + 3).await;
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

// A14, D4
#[tokio::test]
async fn records_that_arrive_while_one_instance_takes_over_from_another_come_once() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "hand-over", 2).await;
    let store = MemoryLeaseStore::new();
    let mut one = reading(&ground, &store, quick(stream)).await;
    let mut other = reading(&ground, &store, quick(stream)).await;
    let put = async {
        for i in 0..150 {
            ground.put(stream, &format!("key {i}"), i.to_string()).await;
        }
        seal(&ground, stream).await
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

/// A record in which the Kinesis Producer Library put these user records together.
fn aggregated(user_records: &[&str]) -> Vec<u8> {
    let mut message = b"\x0a\x03key".to_vec();
    for data in user_records {
        let length = u8::try_from(data.len()).unwrap();
        message.extend([0x1a, length + 4, 0x08, 0x00, 0x1a, length]);
        message.extend(data.bytes());
    }
    [b"\xf3\x89\x9a\xc2", message.as_slice(), Md5::digest(&message).as_slice()].concat()
}

// A17, R12
#[tokio::test]
async fn an_aggregated_record_is_an_error_that_names_it_and_takes_its_place() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "aggregated", 1).await;
    let blob = aggregated(&["one", "two"]);
    ground.put(stream, "key", "before").await;
    let (shard, number) = ground.put(stream, "a", blob.clone()).await;
    ground.put(stream, "key", "behind").await;
    let store = MemoryLeaseStore::new();
    let mut first = reading(&ground, &store, quick(stream)).await;

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

    let seals = seal(&ground, stream).await;
    let mut second = reading(&ground, &store, quick(stream)).await;
    assert_eq!(up_to_seals(&mut second, seals).await, Vec::<String>::new());
}

// A17, R12
#[tokio::test]
async fn an_aggregated_record_behind_an_open_one_is_reported_again_after_a_restart() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "aggregated-again", 1).await;
    ground.put(stream, "key", "before").await;
    let (_, number) = ground.put(stream, "a", aggregated(&["one"])).await;
    let store = MemoryLeaseStore::new();
    for _ in 0..2 {
        let once = quick(stream).drain_timeout(Duration::ZERO);
        let mut subscription = reading(&ground, &store, once).await;
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

// K2
#[tokio::test]
async fn the_magic_of_an_aggregate_before_garbage_makes_a_plain_record() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "magic", 1).await;
    let garbage = [&b"\xf3\x89\x9a\xc2"[..], b"garbage that is longer than a trailer"].concat();
    let payloads = [b"good".to_vec(), garbage, b"good".to_vec()];
    ground.put_all(stream, payloads.iter().map(|payload| ("key", payload.clone()))).await;
    let mut subscription = reading(&ground, &MemoryLeaseStore::new(), quick(stream)).await;
    let taken = records(&mut subscription, 3).await;
    assert!(taken.iter().map(|delivery| delivery.payload().as_ref()).eq(payloads.iter()));
}

// D11, H5
#[tokio::test]
async fn a_closed_shard_beside_two_open_ones_is_opened_once_at_most_and_makes_no_error() {
    let ground = Ground::from_env();
    for (position, old, opened) in [(KinesisPosition::latest(), 0, 2), (KinesisPosition::horizon(), 3, 3)] {
        let stream = &stream(&ground, "closed", 1).await;
        let parent = &ground.shards(stream).await[0].id;
        fill(&ground, stream, parent, "old", 3).await;
        let [low, _] = &ground.split(stream, parent).await;
        let store = MemoryLeaseStore::new();
        let descriptor = quick(stream).initial_position(position).list_interval(Duration::from_millis(20));
        let mut subscription = reading(&ground, &store, descriptor).await;
        let seals = seal(&ground, stream).await;
        assert_eq!(up_to_seals(&mut subscription, seals).await, numbered("old", old));

        let reads = || {
            let stats = subscription.stats();
            stats.shards.iter().find(|stats| stats.shard.as_str() == low).map_or(0, |stats| stats.reads)
        };
        let before = reads();
        eventually("many listings go by", async || reads() > before + 20).await;
        let rows = rows(&store, stream).await;
        assert!(rows.len() == opened && rows.values().all(|row| row.epoch == 1), "{rows:?}");
        assert_eq!(rows.contains_key(parent), old > 0);
        assert!(subscription.stats().shards.iter().all(|stats| stats.last_error.is_none()));
        // Nothing came with it, no error either.
        assert!(subscription.next().now_or_never().is_none());
    }
}

// G4, X1
#[tokio::test]
async fn a_stream_that_is_deleted_ends_its_subscription_after_one_error_that_says_so() {
    let ground = Ground::from_env();
    let stream = &stream(&ground, "deleted", 1).await;
    ground.put(stream, "key", "record").await;
    let mut subscription = reading(&ground, &MemoryLeaseStore::new(), quick(stream)).await.tolerant();
    subscription.next().await.unwrap().unwrap().ack();
    ground.delete_stream(stream).await;
    let error = subscription.next().await.unwrap().unwrap_err();
    assert!(matches!(&error, KinesisError::StreamGone { stream: of, .. } if **of == **stream), "{error}");
    assert_eq!(error.class(), ErrorClass::Fatal);
    assert!(subscription.next().await.is_none());
}
