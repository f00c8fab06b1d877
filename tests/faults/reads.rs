//! Failing, throttled and hanging reads, and the pace of reading.

use std::collections::BTreeSet;

use aws_config::{BehaviorVersion, Region, SdkConfig, retry::RetryConfig, timeout::TimeoutConfig};
use aws_credential_types::{Credentials, provider::SharedCredentialsProvider};
use kinesis_stream::{
    Action, Checkpoint, Commit, ErrorClass, FailureKind, KinesisBroker, KinesisError, KinesisPosition,
    MemoryLeaseStore, Subscription, commit_all,
};
use kinesis_stream_support::{AwsError, Emulator, Op};
use tokio::time::Duration;

use crate::{
    OTHER, SHARD, STREAM, fill, kinesis, numbered,
    wire::{eventually, item, quick, reading, record, records, rows, seal, text, texts, up_to_seals},
};

/// How many reads of the first shard the subscription counted.
pub(crate) fn reads(subscription: &Subscription) -> u64 {
    subscription.stats().shards[0].reads
}

// R7
#[tokio::test]
async fn a_shard_gets_at_most_five_reads_in_any_second_however_large_its_backlog() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, 0..1_000).await;
    // A throttle and an outage in between: retries by the SDK would count as well.
    kinesis.faults().on(Op::GetRecords).nth(4).fail(AwsError::THROTTLED);
    kinesis.faults().on(Op::GetRecords).nth(7).fail(AwsError::INTERNAL_FAILURE);
    kinesis.faults().on(Op::GetRecords).nth(8).fail(AwsError::UNAVAILABLE);
    let hungry = quick(STREAM).read_limit(50).reads_per_second(5);
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), hungry).await;
    let mut said = Vec::new();
    while said.len() < 1_000 {
        match item(&mut subscription).await.unwrap() {
            Ok(delivery) => {
                said.push(text(&delivery));
                delivery.ack();
            }
            Err(error) => assert_eq!(error.class(), ErrorClass::Transient),
        }
    }
    assert_eq!(said, numbered(0..1_000));
    assert!(kinesis.faults().count(Op::GetRecords) >= 23);
    assert_eq!(kinesis.faults().busiest_second(Op::GetRecords, SHARD), 5);
}

// R9
#[tokio::test]
async fn throttled_reads_are_retried_silently_with_the_same_iterator() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, 0..3).await;
    kinesis.faults().on(Op::GetRecords).first(3).fail(AwsError::THROTTLED);
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), quick(STREAM)).await;
    assert_eq!(texts(&records(&mut subscription, 3).await), numbered(0..3));
    let stats = &subscription.stats().shards[0];
    assert_eq!((stats.throttles, stats.last_error.is_none()), (3, true));
    let iterators = kinesis.faults().calls(Op::GetRecords).into_iter().take(4);
    let iterators: BTreeSet<String> = iterators.map(|call| call.body()["ShardIterator"].to_string()).collect();
    assert_eq!((iterators.len(), kinesis.faults().count(Op::GetShardIterator)), (1, 1));
}

// R9
#[tokio::test]
async fn a_throttled_read_is_retried_after_one_poll_interval() {
    let kinesis = kinesis(1).await;
    kinesis.faults().on(Op::GetRecords).first(3).fail(AwsError::LIMIT_EXCEEDED);
    let poll = Duration::from_millis(300);
    let subscription = reading(&kinesis, &MemoryLeaseStore::new(), quick(STREAM).poll_interval(poll)).await;
    kinesis.faults().called(Op::GetRecords, 4).await;
    let calls = kinesis.faults().calls(Op::GetRecords);
    for pair in calls.windows(2) {
        let pause = pair[1].at() - pair[0].at();
        assert!(pause >= poll, "{pause:?}");
    }
    drop(subscription);
}

// R7
#[tokio::test]
async fn an_idle_shard_is_read_once_per_poll_interval() {
    let kinesis = kinesis(1).await;
    let poll = Duration::from_millis(200);
    let subscription = reading(&kinesis, &MemoryLeaseStore::new(), quick(STREAM).poll_interval(poll)).await;
    // The test does not poll the subscription: an idle shard is read anyway.
    kinesis.faults().called(Op::GetRecords, 16).await;
    let calls = kinesis.faults().calls(Op::GetRecords);
    let took = calls[15].at() - calls[0].at();
    assert!(took >= 15 * poll, "sixteen reads in {took:?}");
    assert!(calls.windows(2).all(|pair| pair[1].at() - pair[0].at() >= poll));
    assert_eq!(kinesis.faults().count(Op::GetShardIterator), 1);
    drop(subscription);
}

/// A configuration with a short timeout per attempt.
fn impatient(kinesis: &Emulator, attempt: Duration) -> SdkConfig {
    let keys = Credentials::new("test", "test", None, None, "test");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(keys))
        .endpoint_url(kinesis.endpoint())
        .retry_config(RetryConfig::disabled())
        .timeout_config(TimeoutConfig::builder().operation_attempt_timeout(attempt).build())
        .build()
}

// R10, L6
#[tokio::test]
async fn a_read_that_is_never_answered_times_out_and_is_retried_under_the_same_lease() {
    let kinesis = kinesis(2).await;
    for (shard, record) in [(SHARD, "hung"), (OTHER, "other")] {
        kinesis.put_to_shard(STREAM, shard, "key", record).await;
    }
    let hung = kinesis.faults().on(Op::GetRecords).shard(SHARD).first(1).hang();
    let store = MemoryLeaseStore::new();
    let broker = KinesisBroker::from_config(impatient(&kinesis, Duration::from_secs(2))).lease_store(store.clone());
    let broker = broker.connect().await.unwrap();
    let mut subscription = broker.subscribe(quick(STREAM)).await.unwrap();

    let other = record(&mut subscription).await;
    assert_eq!(text(&other), "other");
    assert_eq!(other.commit().await.unwrap(), Commit::Stored);
    let error = item(&mut subscription).await.unwrap().unwrap_err();
    let KinesisError::Read { shard, failures: 1, gave_up: false, source, .. } = error else { panic!("{error}") };
    assert_eq!((shard.as_str(), source.kind(), source.action()), (SHARD, FailureKind::Unreachable, Action::GetRecords));
    assert_eq!(text(&record(&mut subscription).await), "hung");
    assert_eq!(hung.hits(), 1);
    let rows = rows(&store, STREAM).await;
    assert!(rows.values().all(|row| row.epoch == 1 && row.owner.is_some()), "{rows:?}");
}

// R10, R13
#[tokio::test]
async fn after_eleven_failures_the_reader_gives_up_and_the_next_reader_starts_where_it_started() {
    // A reader gives up only for the sake of another instance that is in sight: here one with another shard.
    let kinesis = kinesis(2).await;
    let store = MemoryLeaseStore::new();
    let one_shard = quick(STREAM).max_leases(1);
    let at_tip = one_shard.clone().initial_position(KinesisPosition::latest()).drain_timeout(Duration::ZERO);
    let outage = kinesis.faults().on(Op::GetRecords).shard(SHARD).fail(AwsError::INTERNAL_FAILURE);
    let mut subscription = reading(&kinesis, &store, at_tip).await;
    let _others = reading(&kinesis, &store, one_shard).await;
    fill(&kinesis, 0..2).await;
    for n in 1..=11 {
        let error = item(&mut subscription).await.unwrap().unwrap_err();
        let KinesisError::Read { failures, gave_up, .. } = error else { panic!("{error}") };
        assert_eq!((failures, gave_up), (n, n == 11));
    }
    outage.lift();
    let taken = records(&mut subscription, 2).await;
    assert_eq!(texts(&taken), numbered(0..2));
    assert!(taken.iter().all(|delivery| delivery.epoch() == 2));
}

/// A split shard of three records. The response that holds them names no next iterator.
async fn with_records_on_the_last_page() -> Emulator {
    let kinesis = kinesis(1).await;
    fill(&kinesis, 0..3).await;
    kinesis.split(STREAM, SHARD).await;
    kinesis
        .faults()
        .on(Op::GetRecords)
        .shard(SHARD)
        .edit(|answer| answer["NextShardIterator"] = serde_json::Value::Null);
    kinesis
}

// H2
#[tokio::test]
async fn the_last_page_of_a_shard_may_hold_records() {
    let kinesis = with_records_on_the_last_page().await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&kinesis, &store, quick(STREAM)).await;
    let taken = records(&mut subscription, 3).await;
    assert_eq!(texts(&taken), numbered(0..3));
    assert!(matches!(rows(&store, STREAM).await[SHARD].checkpoint, Some(Checkpoint::At(_))));
    assert_eq!(commit_all(taken).await.unwrap(), Commit::Stored);
    let ended = async || rows(&store, STREAM).await[SHARD].checkpoint == Some(Checkpoint::ShardEnd);
    eventually("the end is stored", ended).await;
    eventually("the children are read", async || rows(&store, STREAM).await.len() == 3).await;
}

// H2
#[tokio::test]
async fn closing_in_the_middle_of_the_last_page_loses_no_record() {
    let kinesis = with_records_on_the_last_page().await;
    let store = MemoryLeaseStore::new();
    let mut first = reading(&kinesis, &store, quick(STREAM)).await;
    record(&mut first).await.ack();
    assert!(first.close().await.is_clean());
    let seals = seal(&kinesis, STREAM).await;
    let mut second = reading(&kinesis, &store, quick(STREAM)).await;
    assert_eq!(up_to_seals(&mut second, seals).await, numbered(1..3));
}

// R7
#[tokio::test]
async fn a_read_asks_for_the_number_of_records_in_the_descriptor() {
    let kinesis = kinesis(1).await;
    for (descriptor, limit) in [(quick(STREAM), 1_000), (quick(STREAM).read_limit(7), 7)] {
        kinesis.faults().clear();
        let subscription = reading(&kinesis, &MemoryLeaseStore::new(), descriptor).await;
        kinesis.faults().called(Op::GetRecords, 1).await;
        assert_eq!(kinesis.faults().calls(Op::GetRecords)[0].body()["Limit"], limit);
        drop(subscription);
    }
}
