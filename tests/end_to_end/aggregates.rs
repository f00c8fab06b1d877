//! Records of the Kinesis Producer Library.

use kinesis_stream::{Commit, ErrorClass, KinesisError, MemoryLeaseStore};
use kinesis_stream_support::Harness;
use md5::{Digest, Md5};
use tokio::time::Duration;

use crate::{
    after, stream,
    wire::{item, quick, reading, record, records, rows, seal, text, up_to_seals},
};

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
