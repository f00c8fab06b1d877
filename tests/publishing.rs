//! Publishing many records, end to end: to an emulator behind a fault layer.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use std::{collections::BTreeMap, time::Duration};

use axum::{Router, extract::DefaultBodyLimit};
use bytes::Bytes;
use futures::{SinkExt, StreamExt, TryStreamExt, future::try_join, stream};
use kinesis_stream::{
    Acker, Action, ErrorClass, FailureKind, KinesisBroker, KinesisError, MemoryLeaseStore, Outgoing, PublishError,
    PublishOrder, PublishTo, Published, Publisher,
};
use kinesis_stream_support::{AwsError, Emulator, Harness, Op, Server, chain};
use tokio::time::Instant;

mod wire;

use self::wire::{eventually, instance, item, quick, reading, records, rows, seal, texts, up_to_seals};

const STREAM: &str = "stream";
const SHARD: &str = "shardId-000000000000";

async fn kinesis(shards: u32) -> Emulator {
    let kinesis = Emulator::start();
    kinesis.create_stream(STREAM, shards).await;
    kinesis
}

async fn publisher(harness: &Harness) -> Publisher {
    instance(harness, &MemoryLeaseStore::new()).await.publisher()
}

/// Records with a different key each.
fn numbered(count: usize) -> Vec<Outgoing> {
    (0..count).map(|number| Outgoing::new(format!("key {number}"), number.to_string())).collect()
}

/// The records in the stream, by shard.
async fn stored(harness: &Harness) -> BTreeMap<String, Vec<Bytes>> {
    let mut stored = BTreeMap::new();
    for shard in harness.shards(STREAM).await {
        let records = harness.records(STREAM, &shard.id).await.into_iter();
        stored.insert(shard.id, records.map(|record| record.data.into()).collect());
    }
    stored
}

async fn stored_count(harness: &Harness) -> usize {
    stored(harness).await.values().map(Vec::len).sum()
}

/// How many records each request held.
fn sent(kinesis: &Emulator) -> Vec<usize> {
    let calls = kinesis.faults().calls(Op::PutRecords).into_iter();
    calls.map(|call| call.body()["Records"].as_array().unwrap().len()).collect()
}

fn failures(results: &[Result<Published, PublishError>]) -> Vec<(usize, &PublishError)> {
    results.iter().enumerate().filter_map(|(place, result)| Some((place, result.as_ref().err()?))).collect()
}

// L1, P3
#[tokio::test]
async fn a_failed_entry_of_three_is_resent_alone_and_every_record_gets_a_result() {
    let kinesis = kinesis(1).await;
    kinesis.faults().on(Op::PutRecords).nth(1).fail_entries([1], AwsError::THROTTLED);
    let results = publisher(&kinesis).await.publish_all(STREAM, numbered(3)).await;
    assert_eq!(sent(&kinesis), [3, 1]);
    let again = kinesis.faults().calls(Op::PutRecords)[1].body()["Records"][0]["PartitionKey"].clone();
    assert_eq!(again, "key 1");
    let shard = kinesis.shards(STREAM).await[0].id.clone();
    let records = kinesis.records(STREAM, &shard).await;
    let numbers: Vec<_> = records.iter().map(|record| record.sequence_number.as_str()).collect();
    let places: Vec<_> = results.iter().map(|result| result.as_ref().unwrap()).collect();
    assert!(places.iter().all(|published| published.shard().as_str() == shard));
    assert_eq!([0, 2, 1].map(|place: usize| places[place].sequence_number().as_str()), numbers[..]);
}

// P3
#[tokio::test]
async fn a_stream_that_throttles_for_seconds_gets_every_record_in_the_end() {
    let kinesis = kinesis(2).await;
    let throttle = kinesis.faults().on(Op::PutRecords).fail_entries(1..100, AwsError::THROTTLED);
    let refusal = kinesis.faults().on(Op::PutRecords).nth(3).fail(AwsError::LIMIT_EXCEEDED);
    let publisher = publisher(&kinesis).await;
    let publishing = tokio::spawn(async move { publisher.publish_all(STREAM, numbered(100)).await });
    kinesis.faults().called(Op::PutRecords, 5).await;
    throttle.lift();
    let results = publishing.await.unwrap();
    assert!(failures(&results).is_empty());
    assert_eq!((refusal.hits(), stored_count(&kinesis).await), (1, 100));
    // The SDK does not retry, so the pauses are those of the library.
    let calls = kinesis.faults().calls(Op::PutRecords);
    assert_eq!(sent(&kinesis)[..5], [100, 99, 98, 98, 97]);
    assert!(calls[4].at() - calls[0].at() >= Duration::from_millis(100 + 200 + 100 + 800));
}

// P3
#[tokio::test]
async fn a_request_whose_answer_is_lost_is_resent_and_no_record_is_lost() {
    let kinesis = kinesis(1).await;
    kinesis.faults().on(Op::PutRecords).first(1).apply_then_fail(AwsError::INTERNAL_FAILURE);
    let results = publisher(&kinesis).await.publish_all(STREAM, numbered(2)).await;
    assert!(failures(&results).is_empty());
    assert_eq!(stored(&kinesis).await.into_values().next().unwrap(), ["0", "1", "0", "1"]);
}

// P3
#[tokio::test]
async fn a_hanging_call_times_out_and_is_resent() {
    let kinesis = kinesis(1).await;
    kinesis.faults().on(Op::PutRecords).first(1).hang();
    let broker = KinesisBroker::new().endpoint(kinesis.endpoint()).test_credentials();
    let broker = broker.call_timeout(Duration::from_millis(200)).connect().await.unwrap();
    let results = broker.publisher().publish_all(STREAM, numbered(1)).await;
    assert!(failures(&results).is_empty());
    assert_eq!(sent(&kinesis), [1, 1]);
}

// P3, S2
#[tokio::test]
async fn a_record_over_the_limit_of_its_stream_fails_alone() {
    // The emulator accepts records of 1 MiB, like a stream whose limit was not raised.
    let kinesis = kinesis(1).await;
    let mut given = numbered(20);
    given[7] = Outgoing::new("large", vec![b'.'; (1 << 20) + 1]);
    let results = publisher(&kinesis).await.publish_all(STREAM, given).await;
    let [(7, error)] = failures(&results)[..] else { panic!("{results:?}") };
    let KinesisError::Refused { stream, source, .. } = error.cause() else { panic!("{error}") };
    assert_eq!((&**stream, source.action(), source.kind()), (STREAM, Action::PutRecords, FailureKind::Rejected));
    assert_eq!((error.cause().class(), error.record().payload().len()), (ErrorClass::Record, (1 << 20) + 1));
    assert_eq!(stored_count(&kinesis).await, 19);
}

// P3
#[tokio::test]
async fn a_request_that_is_too_large_for_the_server_is_split_in_half() {
    // One request of 8 MiB; the emulator accepts 5 MiB.
    let kinesis = kinesis(1).await;
    let large = |number: usize| Outgoing::new(format!("key {number}"), vec![b'.'; 800 << 10]);
    let results = publisher(&kinesis).await.publish_all(STREAM, (0..10).map(large)).await;
    assert!(failures(&results).is_empty());
    assert_eq!(sent(&kinesis), [10, 5, 5]);
}

/// Accepts every put, and returns the size of the request as the sequence number.
async fn take_all(bytes: Bytes) -> ([(&'static str, &'static str); 1], String) {
    let entries = String::from_utf8_lossy(&bytes).matches(r#""PartitionKey":"#).count();
    let number = bytes.len();
    let results = vec![format!(r#"{{"ShardId":"shard","SequenceNumber":"{number}"}}"#); entries].join(",");
    ([("content-type", "application/x-amz-json-1.1")], format!(r#"{{"FailedRecordCount":0,"Records":[{results}]}}"#))
}

// P3, S2
#[tokio::test]
async fn a_record_of_ten_mebibytes_is_sent_in_its_own_request() {
    let router = Router::new().fallback(take_all).layer(DefaultBodyLimit::disable());
    let server = Server::start("takes-all", router).unwrap();
    let publisher = publisher(&Harness::at(server.endpoint())).await;
    let largest = Outgoing::new("k", vec![b'.'; (10 << 20) - 1]);
    let results = publisher.publish_all(STREAM, [largest, Outgoing::new("l", "x")]).await;
    let bytes: Vec<usize> =
        results.iter().map(|result| result.as_ref().unwrap().sequence_number().as_str().parse().unwrap()).collect();
    assert!(bytes[0] > (10 << 20) / 3 * 4 && bytes[1] < 200, "one request each: {bytes:?}");
}

// P3, L3
#[tokio::test]
async fn a_sink_without_permission_fails_each_record_and_names_the_permission() {
    let kinesis = kinesis(1).await;
    kinesis.faults().on(Op::PutRecords).fail(AwsError::ACCESS_DENIED);
    let mut sink = publisher(&kinesis).await.sink(STREAM).unwrap();
    let error = stream::iter(numbered(3)).map(Ok).forward(&mut sink).await.unwrap_err();
    assert!(matches!(error.cause(), KinesisError::Denied { action: Action::PutRecords, .. }), "{error}");
    assert!(chain(&error).contains(" bytes was not published: access denied: kinesis:PutRecords"));
    assert_eq!(sent(&kinesis), [3]);
    let error = publisher(&kinesis).await.publish_all("nowhere", numbered(1)).await.pop().unwrap().unwrap_err();
    assert!(matches!(error.cause(), KinesisError::Denied { .. }), "{error}");
}

// P3
#[tokio::test]
async fn a_missing_stream_and_an_unreachable_server_are_different_errors() {
    let kinesis = kinesis(1).await;
    let publisher = publisher(&kinesis).await;
    let error = publisher.publish_all("nowhere", numbered(1)).await.pop().unwrap().unwrap_err();
    assert!(matches!(error.cause(), KinesisError::Stream { stream, .. } if &**stream == "nowhere"), "{error}");
    drop(kinesis);
    let hasty = PublishTo::new(STREAM).delivery_timeout(Duration::from_secs(1));
    let begun = Instant::now();
    let error = publisher.publish_all(hasty, numbered(1)).await.pop().unwrap().unwrap_err();
    let KinesisError::GaveUp { attempts, waited, source: Some(source), .. } = error.cause() else { panic!("{error}") };
    assert!(*attempts >= 2 && *waited >= Duration::from_secs(1), "{error}");
    assert_eq!(source.kind(), FailureKind::Unreachable);
    assert!(begun.elapsed() < Duration::from_secs(10));
}

// P3
#[tokio::test]
async fn an_explicit_hash_key_overrides_the_partition_key() {
    let kinesis = kinesis(4).await;
    let publisher = publisher(&kinesis).await;
    for (number, shard) in kinesis.shards(STREAM).await.into_iter().enumerate() {
        for hash in [shard.hash_keys.0, shard.hash_keys.1] {
            let record = || Outgoing::new("key", number.to_string()).explicit_hash_key(hash);
            assert_eq!(publisher.publish(STREAM, record()).await.unwrap().shard().as_str(), shard.id);
            let results = publisher.publish_all(STREAM, [record()]).await;
            assert_eq!(results[0].as_ref().unwrap().shard().as_str(), shard.id);
        }
    }
}

// P3
#[tokio::test]
async fn under_random_failures_every_record_is_stored_in_the_order_of_its_key() {
    let kinesis = kinesis(3).await;
    let faults = kinesis.faults();
    faults.on(Op::PutRecords).some(200, 1).fail_entries([0, 2, 3], AwsError::THROTTLED);
    faults.on(Op::PutRecords).some(100, 2).fail(AwsError::UNAVAILABLE);
    faults.on(Op::PutRecords).some(100, 3).apply_then_fail(AwsError::INTERNAL_FAILURE);
    faults.on(Op::PutRecords).some(50, 4).fail(AwsError::INVALID_ARGUMENT);
    let to = PublishTo::new(STREAM).request_records(20).max_requests(3).linger(Duration::from_millis(1));
    let sink = publisher(&kinesis).await.sink(to).unwrap();
    let records = (0..600).map(|number| Outgoing::new(format!("key {}", number % 50), number.to_string()));
    let results: Vec<_> = stream::iter(records).map(|record| sink.publish(record)).buffered(300).collect().await;
    // The injected rejection can hit a request with a single record.
    let failed = failures(&results);
    assert!(failed.iter().all(|(_, error)| matches!(error.cause(), KinesisError::Refused { .. })), "{failed:?}");
    let mut by_key: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for text in stored(&kinesis).await.into_values().flatten() {
        let number: usize = String::from_utf8_lossy(&text).parse().unwrap();
        let numbers = by_key.entry(number % 50).or_default();
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    assert!(by_key.values().all(|numbers| numbers.is_sorted()), "{by_key:?}");
    assert_eq!(by_key.values().map(Vec::len).sum::<usize>(), 600 - failed.len());
}

// P3, A1, A2
#[tokio::test]
async fn a_pipeline_from_stream_to_stream_restarts_after_a_sink_failure_without_losing_a_record() {
    const OUT: &str = "out";
    let kinesis = kinesis(2).await;
    kinesis.create_stream(OUT, 1).await;
    kinesis.put_all(STREAM, (0..200).map(|number| (format!("key {number}"), number.to_string()))).await;
    let store = MemoryLeaseStore::new();
    let denied = kinesis.faults().on(Op::PutRecords).nth(3).fail(AwsError::ACCESS_DENIED);
    for is_denied in [true, false] {
        let broker = instance(&kinesis, &store).await;
        let sink = broker.publisher().sink(PublishTo::new(OUT).request_records(20).max_requests(1)).unwrap();
        let subscription = broker.subscribe(quick(STREAM)).await.unwrap();
        let closer = subscription.closer();
        let pipeline = subscription
            .tolerant()
            .map_ok(|delivery| {
                let record = Outgoing::new(delivery.partition_key().unwrap(), delivery.payload().clone());
                (record, Acker::from(delivery))
            })
            .forward(sink.sink_err_into());
        let closing = async {
            eventually("all records are there", async || kinesis.records(OUT, SHARD).await.len() >= 200).await;
            Ok(closer.close().await)
        };
        match try_join(pipeline, closing).await {
            Err(error) => assert!(is_denied && matches!(error, KinesisError::Denied { .. }), "{error}"),
            Ok(((), report)) => assert!(!is_denied && report.is_clean(), "{report:?}"),
        }
        broker.shutdown().await;
    }
    assert_eq!(denied.hits(), 1);
    let mut numbers: Vec<usize> = Vec::new();
    for record in kinesis.records(OUT, SHARD).await {
        numbers.push(String::from_utf8(record.data).unwrap().parse().unwrap());
    }
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, (0..200).collect::<Vec<_>>());
    // The checkpoints cover every record, so no record is redelivered.
    assert!(rows(&store, STREAM).await.values().all(|row| row.checkpoint.is_some() && row.owner.is_none()));
    let seals = seal(&kinesis, STREAM).await;
    let mut third = reading(&kinesis, &store, quick(STREAM)).await;
    assert_eq!(up_to_seals(&mut third, seals).await, Vec::<String>::new());
}

// P3
#[tokio::test]
async fn every_record_arrives_with_relaxed_order() {
    let kinesis = kinesis(2).await;
    let to = PublishTo::new(STREAM).order(PublishOrder::Relaxed);
    let mut sink = publisher(&kinesis).await.sink(to).unwrap();
    let records = (0..3_000).map(|number| Ok(Outgoing::new("key", number.to_string())));
    stream::iter(records).forward(&mut sink).await.unwrap();
    assert_eq!((sent(&kinesis), stored_count(&kinesis).await), (vec![500; 6], 3_000));
    assert_eq!(sink.stats().published, 3_000);
}

// P3, R12
#[cfg(feature = "kpl")]
#[tokio::test]
async fn an_aggregate_is_reported_as_one_and_a_single_record_stays_plain() {
    let kinesis = kinesis(1).await;
    let publisher = publisher(&kinesis).await;
    let many = (0..1_000).map(|number| Outgoing::new("key", number.to_string()));
    let results = publisher.publish_all(PublishTo::new(STREAM).aggregate(), many).await;
    assert!(failures(&results).is_empty());
    publisher.publish_all(PublishTo::new(STREAM).aggregate(), [Outgoing::new("key", "alone")]).await;
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), quick(STREAM)).await;
    let error = item(&mut subscription).await.unwrap().unwrap_err();
    let KinesisError::AggregatedRecord { sequence_number, data, partition_key, .. } = &error else { panic!("{error}") };
    assert_eq!(
        (sequence_number, partition_key.as_deref()),
        (results[0].as_ref().unwrap().sequence_number(), Some("key"))
    );
    assert!(data.len() < 51_200);
    assert_eq!(texts(&records(&mut subscription, 1).await), ["alone"]);
}
