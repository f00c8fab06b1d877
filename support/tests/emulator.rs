//! The embedded emulator: it loses no record, it stops, and it responds like the service where `faithful` corrects it.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use std::{collections::BTreeSet, net::TcpStream};

use aws_sdk_kinesis::{
    operation::get_records::GetRecordsOutput,
    primitives::DateTime,
    types::{ShardFilter, ShardFilterType, ShardIteratorType},
};
use futures::future::join_all;
use kinesis_stream_support::{Emulator, Harness, Op};
use tokio::time::{Duration, sleep};

const SHARD: &str = "shardId-000000000000";

async fn one_shard() -> Emulator {
    let kinesis = Emulator::start();
    kinesis.create_stream("s", 1).await;
    kinesis
}

async fn read(kinesis: &Emulator, iterator: impl Into<String>) -> GetRecordsOutput {
    kinesis.client().get_records().shard_iterator(iterator).send().await.unwrap()
}

async fn place(kinesis: &Emulator, kind: ShardIteratorType, at: Option<i64>) -> String {
    let place = kinesis.client().get_shard_iterator().stream_name("s").shard_id(SHARD).shard_iterator_type(kind);
    place.set_timestamp(at.map(DateTime::from_millis)).send().await.unwrap().shard_iterator.unwrap()
}

async fn data_since(kinesis: &Emulator, at: i64) -> Vec<String> {
    let iterator = place(kinesis, ShardIteratorType::AtTimestamp, Some(at)).await;
    let page = read(kinesis, iterator).await;
    page.records.into_iter().map(|record| String::from_utf8(record.data.into_inner()).unwrap()).collect()
}

/// The arrival times of the records of the shard, in milliseconds. The wire has doubles, so nanoseconds are rounded.
async fn arrivals(kinesis: &Emulator) -> Vec<i64> {
    let iterator = place(kinesis, ShardIteratorType::TrimHorizon, None).await;
    let page = read(kinesis, iterator).await;
    let arrived = page.records.iter().map(|record| record.approximate_arrival_timestamp.unwrap());
    arrived.map(|at| DateTime::from_nanos(at.as_nanos() + 500_000).unwrap().to_millis().unwrap()).collect()
}

#[tokio::test]
async fn a_tailing_reader_sees_every_record_of_sixteen_writers() {
    let kinesis = one_shard().await;
    let write = |writer: usize| {
        let kinesis = kinesis.clone();
        async move {
            for i in 0..50 {
                kinesis.put("s", "key", format!("{writer}-{i}")).await;
            }
        }
    };
    let tail = async {
        let mut seen = BTreeSet::new();
        let mut iterator = place(&kinesis, ShardIteratorType::TrimHorizon, None).await;
        while seen.len() < 800 {
            let page = read(&kinesis, iterator).await;
            seen.extend(page.records.into_iter().map(|record| record.data.into_inner()));
            iterator = page.next_shard_iterator.unwrap();
        }
    };
    let work = futures::future::join(join_all((0..16).map(write)), tail);
    tokio::time::timeout(Duration::from_secs(30), work).await.expect("the reader sees all 800 records");
}

#[tokio::test]
async fn the_emulator_stops_when_its_last_handle_is_dropped() {
    let kinesis = one_shard().await;
    let address = kinesis.endpoint().replace("http://", "");
    let harness = kinesis.clone().into_harness();
    drop(kinesis);
    assert!(TcpStream::connect(&address).is_ok());
    drop(harness);
    assert!(TcpStream::connect(&address).is_err());
}

#[test]
fn the_emulator_outlives_the_runtime_that_started_it() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let kinesis = runtime().block_on(one_shard());
    let harness = Harness::at(kinesis.endpoint());
    assert_eq!(runtime().block_on(harness.shards("s")).len(), 1);
}

#[tokio::test]
async fn a_request_over_two_mebibytes_is_accepted() {
    let kinesis = one_shard().await;
    kinesis.put_all("s", (0..7).map(|_| ("key", vec![7; 1 << 19]))).await;
    assert_eq!(kinesis.faults().count(Op::PutRecords), 1);
    assert_eq!(kinesis.records("s", SHARD).await.len(), 7);
}

#[tokio::test]
async fn a_timestamp_finds_records_by_the_millisecond() {
    let kinesis = one_shard().await;
    for data in ["a", "b", "c"] {
        kinesis.put("s", "key", data).await;
        sleep(Duration::from_millis(5)).await;
    }
    let arrived = arrivals(&kinesis).await;
    assert!(arrived.is_sorted_by(|earlier, later| earlier < later), "{arrived:?}");
    assert_eq!(data_since(&kinesis, arrived[0] - 1000).await, ["a", "b", "c"]);
    assert_eq!(data_since(&kinesis, arrived[1]).await, ["b", "c"]);
    assert_eq!(data_since(&kinesis, arrived[1] + 1).await, ["c"]);
    assert!(data_since(&kinesis, arrived[2] + 1).await.is_empty());
}

#[tokio::test]
async fn a_timestamp_after_the_newest_record_skips_the_old_records() {
    let kinesis = one_shard().await;
    kinesis.put("s", "key", "old").await;
    sleep(Duration::from_millis(5)).await;
    let after = arrivals(&kinesis).await[0] + 1;
    let iterator = place(&kinesis, ShardIteratorType::AtTimestamp, Some(after)).await;
    kinesis.put("s", "key", "new").await;
    let page = read(&kinesis, iterator).await;
    assert_eq!(page.records.len(), 1);
    assert_eq!(page.records[0].data.as_ref(), b"new");
}

#[tokio::test]
async fn a_page_before_the_tip_reports_a_lag() {
    let kinesis = one_shard().await;
    for data in ["a", "b"] {
        kinesis.put("s", "key", data).await;
    }
    let iterator = place(&kinesis, ShardIteratorType::TrimHorizon, None).await;
    let first = kinesis.client().get_records().shard_iterator(iterator).limit(1).send().await.unwrap();
    assert!(first.millis_behind_latest.unwrap() > 0);
    let second = read(&kinesis, first.next_shard_iterator.unwrap()).await;
    assert_eq!(second.millis_behind_latest, Some(0));
}

#[tokio::test]
async fn the_end_of_a_shard_names_its_children() {
    let kinesis = one_shard().await;
    kinesis.put("s", "key", "data").await;
    let children = kinesis.split("s", SHARD).await;
    let mut iterator = Some(place(&kinesis, ShardIteratorType::TrimHorizon, None).await);
    let mut named = Vec::new();
    while let Some(at) = iterator {
        let page = read(&kinesis, at).await;
        named = page.child_shards.unwrap_or_default();
        iterator = page.next_shard_iterator;
    }
    assert!(named.iter().map(|child| &child.shard_id).eq(&children));
    assert!(named.iter().all(|child| child.parent_shards == [SHARD]));
}

#[tokio::test]
async fn a_listing_continues_from_its_token_alone() {
    let kinesis = Emulator::builder().shards_per_page(2).start();
    kinesis.create_stream("s", 5).await;
    let listed: Vec<_> = kinesis.shards("s").await.into_iter().map(|shard| shard.id).collect();
    assert_eq!(listed.len(), 5);
    assert!(listed.is_sorted());
    assert_eq!(kinesis.faults().count(Op::ListShards), 3);
}

#[tokio::test]
async fn at_latest_lists_open_shards_only() {
    let kinesis = one_shard().await;
    let children = kinesis.split("s", SHARD).await;
    let filter = ShardFilter::builder().r#type(ShardFilterType::AtLatest).build().unwrap();
    let listed = kinesis.client().list_shards().stream_name("s").shard_filter(filter).send().await.unwrap();
    assert!(listed.shards().iter().map(|shard| &shard.shard_id).eq(&children));
}

#[tokio::test]
async fn a_recreated_stream_has_another_creation_time() {
    let kinesis = one_shard().await;
    let made = async || {
        let described = kinesis.client().describe_stream_summary().stream_name("s").send().await.unwrap();
        described.stream_description_summary.unwrap().stream_creation_timestamp
    };
    let first = made().await;
    kinesis.delete_stream("s").await;
    kinesis.create_stream("s", 1).await;
    assert_ne!(first, made().await);
}

#[tokio::test]
async fn an_iterator_expires_after_its_configured_lifetime() {
    let kinesis = Emulator::builder().iterator_seconds(1).start();
    kinesis.create_stream("s", 1).await;
    let iterator = place(&kinesis, ShardIteratorType::TrimHorizon, None).await;
    read(&kinesis, &iterator).await;
    sleep(Duration::from_millis(1100)).await;
    let refused = kinesis.client().get_records().shard_iterator(iterator).send().await.unwrap_err();
    assert!(refused.into_service_error().is_expired_iterator_exception());
}
