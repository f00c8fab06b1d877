//! Each kind of fault works as documented.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use aws_sdk_kinesis::{
    error::ProvideErrorMetadata,
    primitives::Blob,
    types::{
        PutRecordsRequestEntry,
        ShardIteratorType::{self, TrimHorizon},
    },
};
use kinesis_stream_support::{AwsError, Call, Emulator, Op};
use serde_json::json;
use tokio::time::{Duration, Instant, timeout};

const SHARD: &str = "shardId-000000000000";
const OTHER: &str = "shardId-000000000001";

async fn two_shards() -> Emulator {
    let kinesis = Emulator::start();
    kinesis.create_stream("s", 2).await;
    kinesis
}

async fn place(kinesis: &Emulator, shard: &str, kind: ShardIteratorType) -> String {
    let place = kinesis.client().get_shard_iterator().stream_name("s").shard_id(shard).shard_iterator_type(kind);
    place.send().await.unwrap().shard_iterator.unwrap()
}

/// Reads once. Returns the number of records, or the error code.
async fn read(kinesis: &Emulator, iterator: &str) -> Result<usize, String> {
    let read = kinesis.client().get_records().shard_iterator(iterator).send().await;
    read.map(|page| page.records.len()).map_err(|error| error.code().unwrap_or("none").to_owned())
}

#[tokio::test]
async fn only_the_first_calls_on_one_shard_fail() {
    let kinesis = two_shards().await;
    let rule = kinesis.faults().on(Op::GetRecords).shard(SHARD).first(2).fail(AwsError::THROTTLED);
    let (ours, other) = (place(&kinesis, SHARD, TrimHorizon).await, place(&kinesis, OTHER, TrimHorizon).await);
    let throttled = Err(AwsError::THROTTLED.code().to_owned());
    assert_eq!(read(&kinesis, &other).await, Ok(0));
    assert_eq!(read(&kinesis, &ours).await, throttled);
    assert_eq!(read(&kinesis, &other).await, Ok(0));
    assert_eq!(read(&kinesis, &ours).await, throttled);
    assert_eq!(read(&kinesis, &ours).await, Ok(0));
    assert_eq!(rule.hits(), 2);
}

#[tokio::test]
async fn only_the_nth_call_fails() {
    let kinesis = two_shards().await;
    kinesis.faults().on(Op::GetRecords).nth(2).fail(AwsError::INTERNAL_FAILURE);
    let iterator = place(&kinesis, SHARD, TrimHorizon).await;
    assert_eq!(read(&kinesis, &iterator).await, Ok(0));
    assert_eq!(read(&kinesis, &iterator).await, Err("InternalFailure".into()));
    assert_eq!(read(&kinesis, &iterator).await, Ok(0));
}

#[tokio::test]
async fn every_call_fails_until_the_rule_is_lifted() {
    let kinesis = two_shards().await;
    let rule = kinesis.faults().on(Op::GetRecords).fail(AwsError::EXPIRED_ITERATOR);
    let iterator = place(&kinesis, SHARD, TrimHorizon).await;
    for _ in 0..3 {
        assert_eq!(read(&kinesis, &iterator).await, Err("ExpiredIteratorException".into()));
    }
    rule.lift();
    assert_eq!(read(&kinesis, &iterator).await, Ok(0));
    assert_eq!(rule.hits(), 3);
}

#[tokio::test]
async fn the_sdk_recognizes_the_injected_errors_by_type() {
    let kinesis = two_shards().await;
    let client = kinesis.client();
    kinesis.faults().on(Op::ListShards).nth(1).fail(AwsError::NOT_FOUND);
    kinesis.faults().on(Op::ListShards).nth(2).fail(AwsError::EXPIRED_TOKEN);
    kinesis.faults().on(Op::ListShards).nth(3).fail(AwsError::LIMIT_EXCEEDED);
    let mut listed = Vec::new();
    for _ in 0..3 {
        listed.push(client.list_shards().stream_name("s").send().await.unwrap_err().into_service_error());
    }
    assert!(listed[0].is_resource_not_found_exception());
    assert!(listed[1].is_expired_next_token_exception());
    assert!(listed[2].is_limit_exceeded_exception());
}

#[tokio::test]
async fn a_call_can_take_effect_and_still_fail() {
    let kinesis = two_shards().await;
    kinesis.faults().on(Op::PutRecord).first(1).apply_then_fail(AwsError::UNAVAILABLE);
    let put = kinesis.client().put_record().stream_name("s").partition_key("k").explicit_hash_key("0");
    put.data(Blob::new("data")).send().await.unwrap_err();
    assert_eq!(kinesis.records("s", SHARD).await.len(), 1);
}

#[tokio::test]
async fn some_of_a_thousand_calls_fail_and_only_the_seed_decides_which() {
    let mut failed = Vec::new();
    for seed in [1, 1, 2] {
        let kinesis = Emulator::start();
        let rule = kinesis.faults().on(Op::ListShards).some(300, seed).fail(AwsError::INTERNAL_FAILURE);
        let mut which = Vec::new();
        for n in 0..40 {
            let answer = kinesis.client().list_shards().stream_name("none").send().await.unwrap_err();
            if answer.raw_response().is_some_and(|response| response.status().as_u16() == 500) {
                which.push(n);
            }
        }
        assert_eq!(rule.hits(), which.len());
        failed.push(which);
    }
    assert!(failed[0] == failed[1] && failed[0] != failed[2] && (4..=24).contains(&failed[0].len()), "{failed:?}");
}

#[tokio::test]
async fn some_entries_of_a_batch_fail_and_the_others_are_put() {
    let kinesis = two_shards().await;
    kinesis.faults().on(Op::PutRecords).first(1).fail_entries([2, 0], AwsError::THROTTLED);
    let entry = |data: &str| {
        let entry = PutRecordsRequestEntry::builder().partition_key("k").explicit_hash_key("0");
        entry.data(Blob::new(data)).build().unwrap()
    };
    let put = kinesis.client().put_records().stream_name("s");
    let put = put.set_records(Some(["a", "b", "c"].map(entry).into())).send().await.unwrap();
    assert_eq!(put.failed_record_count, Some(2));
    let failed: Vec<_> = put.records.iter().map(|entry| entry.error_code.as_deref()).collect();
    assert_eq!(failed, [Some(AwsError::THROTTLED.code()), None, Some(AwsError::THROTTLED.code())]);
    let stored = kinesis.records("s", SHARD).await;
    assert_eq!(stored.iter().map(|record| record.data.as_slice()).collect::<Vec<_>>(), [b"b"]);
}

#[tokio::test]
async fn all_entries_of_a_batch_can_fail_and_none_is_put() {
    let kinesis = two_shards().await;
    kinesis.faults().on(Op::PutRecords).fail_entries([0, 1], AwsError::INTERNAL_FAILURE);
    let entry = PutRecordsRequestEntry::builder().partition_key("k").explicit_hash_key("0").data(Blob::new("a"));
    let put = kinesis.client().put_records().stream_name("s").records(entry.build().unwrap()).send().await.unwrap();
    let failed: Vec<_> = put.records.iter().map(|entry| entry.error_code.as_deref()).collect();
    assert_eq!((put.failed_record_count, failed), (Some(1), vec![Some(AwsError::INTERNAL_FAILURE.code())]));
    assert!(kinesis.records("s", SHARD).await.is_empty());
}

#[tokio::test]
async fn a_delayed_call_is_answered_after_the_delay() {
    let kinesis = two_shards().await;
    kinesis.faults().on(Op::GetRecords).first(1).delay(Duration::from_millis(100));
    let iterator = place(&kinesis, SHARD, TrimHorizon).await;
    let before = Instant::now();
    assert_eq!(read(&kinesis, &iterator).await, Ok(0));
    assert!(before.elapsed() >= Duration::from_millis(100));
}

#[tokio::test]
async fn a_held_call_continues_when_its_rule_is_lifted() {
    let kinesis = two_shards().await;
    let rule = kinesis.faults().on(Op::GetRecords).hold();
    let iterator = place(&kinesis, SHARD, TrimHorizon).await;
    let lift = async {
        kinesis.faults().called(Op::GetRecords, 1).await;
        kinesis.put_to_shard("s", SHARD, "k", "while held").await;
        rule.lift();
    };
    let (read, ()) = futures::future::join(read(&kinesis, &iterator), lift).await;
    assert_eq!(read, Ok(1));
}

#[tokio::test]
async fn a_hung_call_is_never_answered_but_the_next_one_is() {
    let kinesis = two_shards().await;
    kinesis.faults().on(Op::GetRecords).first(1).hang();
    let iterator = place(&kinesis, SHARD, TrimHorizon).await;
    timeout(Duration::from_millis(200), read(&kinesis, &iterator)).await.unwrap_err();
    assert_eq!(read(&kinesis, &iterator).await, Ok(0));
}

#[tokio::test]
async fn a_response_can_be_edited() {
    let kinesis = two_shards().await;
    kinesis.faults().on(Op::GetRecords).edit(|answer| answer["MillisBehindLatest"] = json!(7000));
    let iterator = place(&kinesis, SHARD, TrimHorizon).await;
    let page = kinesis.client().get_records().shard_iterator(iterator).send().await.unwrap();
    assert_eq!(page.millis_behind_latest, Some(7000));
}

#[tokio::test]
async fn the_log_holds_target_time_and_body_of_every_call() {
    let kinesis = two_shards().await;
    let faults = kinesis.faults();
    let iterator = place(&kinesis, SHARD, TrimHorizon).await;
    let other = place(&kinesis, OTHER, TrimHorizon).await;
    for _ in 0..4 {
        read(&kinesis, &iterator).await.unwrap();
    }
    read(&kinesis, &other).await.unwrap();

    assert_eq!(faults.count(Op::GetRecords), 5);
    assert_eq!(faults.busiest_second(Op::GetRecords, SHARD), 4);
    assert_eq!(faults.busiest_second(Op::GetRecords, OTHER), 1);
    let calls = faults.calls(Op::GetRecords);
    assert!(calls.is_sorted_by_key(Call::at));
    let last = calls.last().unwrap();
    assert_eq!((last.stream(), last.shard()), (Some("s"), Some(OTHER)));
    assert_eq!(last.body()["ShardIterator"], other.as_str());
    faults.clear();
    assert_eq!(faults.count(Op::GetRecords), 0);
}
