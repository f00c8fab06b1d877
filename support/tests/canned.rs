//! The canned service in a separate process.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use std::{collections::BTreeSet, net::TcpStream, path::Path, time::Duration};

use aws_sdk_kinesis::{
    primitives::Blob,
    types::{PutRecordsRequestEntry, ShardIteratorType},
};
use kinesis_stream_support::{
    Harness,
    canned::{Canned, Process},
};
use tokio::time::Instant;

const SHARD: &str = "shardId-000000000001";

fn spawn(canned: Canned) -> (Process, Harness) {
    let process = canned.spawn_as(Path::new(env!("CARGO_BIN_EXE_canned-kinesis"))).unwrap();
    let harness = Harness::at(process.endpoint());
    (process, harness)
}

#[tokio::test]
async fn an_ending_shard_holds_the_configured_records() {
    let ending = Canned { shards: 2, records_per_page: 3, record_bytes: 100, pages: Some(4), ..Canned::default() };
    let (_process, kinesis) = spawn(ending);
    let shards = kinesis.shards("any").await;
    assert_eq!(shards.len(), 2);
    assert!(shards.iter().all(|shard| shard.closed));
    let records = kinesis.records("any", SHARD).await;
    assert_eq!(records.len(), 12);
    assert!(records.iter().all(|record| record.data.len() == 100));
    assert!(records.is_sorted_by(|earlier, later| earlier.sequence_number < later.sequence_number));
}

#[tokio::test]
async fn an_iterator_after_a_record_starts_at_the_next_record() {
    let ending = Canned { shards: 2, records_per_page: 3, record_bytes: 1, pages: Some(2), ..Canned::default() };
    let (_process, kinesis) = spawn(ending);
    let records = kinesis.records("any", SHARD).await;
    let after = &records[2].sequence_number;
    let place = kinesis.client().get_shard_iterator().stream_name("any").shard_id(SHARD);
    let place = place.shard_iterator_type(ShardIteratorType::AfterSequenceNumber).starting_sequence_number(after);
    let iterator = place.send().await.unwrap().shard_iterator.unwrap();
    let page = kinesis.client().get_records().shard_iterator(iterator).send().await.unwrap();
    assert_eq!(page.records[0].sequence_number, records[3].sequence_number);
    assert_eq!(page.next_shard_iterator, None);
}

#[tokio::test]
async fn an_endless_shard_never_repeats_a_sequence_number() {
    let (_process, kinesis) = spawn(Canned { records_per_page: 2, ..Canned::default() });
    let mut iterator = "0/0".to_owned();
    let mut numbers = BTreeSet::new();
    for _ in 0..5 {
        let page = kinesis.client().get_records().shard_iterator(iterator).send().await.unwrap();
        numbers.extend(page.records.into_iter().map(|record| record.sequence_number));
        iterator = page.next_shard_iterator.unwrap();
    }
    assert_eq!(numbers.len(), 10);
}

#[tokio::test]
async fn a_read_takes_at_least_the_configured_latency() {
    let latency = Duration::from_millis(50);
    let (_process, kinesis) = spawn(Canned { latency, ..Canned::default() });
    let started = Instant::now();
    let page = kinesis.client().get_records().shard_iterator("0/0").send().await.unwrap();
    assert_eq!(page.records.len(), 1000);
    assert!(started.elapsed() >= latency);
}

#[tokio::test]
async fn every_put_record_gets_a_different_sequence_number() {
    let (_process, kinesis) = spawn(Canned::default());
    let entry = |key: &str| {
        let entry = PutRecordsRequestEntry::builder().partition_key(key).data(Blob::new("data"));
        entry.build().unwrap()
    };
    let mut numbers = BTreeSet::new();
    for _ in 0..2 {
        let put = kinesis.client().put_records().stream_name("any").records(entry("a")).records(entry("b"));
        let put = put.send().await.unwrap();
        assert_eq!((put.failed_record_count, put.records.len()), (Some(0), 2));
        numbers.extend(put.records.into_iter().map(|record| record.sequence_number.unwrap()));
    }
    assert_eq!(numbers.len(), 4);
}

#[tokio::test]
async fn the_process_ends_when_its_handle_is_dropped() {
    let (process, _) = spawn(Canned::default());
    let address = process.endpoint().replace("http://", "");
    assert!(TcpStream::connect(&address).is_ok());
    drop(process);
    assert!(TcpStream::connect(&address).is_err());
}
