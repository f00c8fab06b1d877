//! Records, headers and payloads, from publishing to reading.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
};

use bytes::Bytes;
use futures::StreamExt;
use kinesis_stream::{
    Checkpoint, Commit, ErrorClass, KinesisBroker, KinesisError, KinesisPosition, LeaseStore, MemoryLeaseStore,
    Outgoing,
};
use kinesis_stream_support::{ENDPOINT_VARIABLE, Harness, unique};

use crate::{
    fill, numbered, stream,
    wire::{instance, quick, reading, record, seal, text, up_to_seals},
};

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
