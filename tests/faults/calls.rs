//! Failures of the other calls: puts, creation, listing.

use kinesis_stream::{ErrorClass, KinesisError, KinesisPosition, MemoryLeaseStore, Outgoing};
use kinesis_stream_support::{AwsError, Emulator, Op};

use crate::{
    SHARD, STREAM, fill, kinesis, numbered,
    wire::{instance, item, quick, reading, records, texts},
};

// P1
#[tokio::test]
async fn a_put_whose_answer_is_lost_is_retried_and_returns_the_retried_record() {
    let kinesis = kinesis(1).await;
    kinesis.faults().on(Op::PutRecord).first(1).apply_then_fail(AwsError::INTERNAL_FAILURE);
    let broker = instance(&kinesis, &MemoryLeaseStore::new()).await;
    let published = broker.publisher().publish(STREAM, Outgoing::new("key", "payload")).await.unwrap();
    // At least once: the stream stores the record twice.
    let stored = kinesis.records(STREAM, SHARD).await;
    assert_eq!(stored.len(), 2);
    assert_eq!(stored[1].sequence_number, published.sequence_number().as_str());
}

// L4
#[tokio::test]
async fn a_stream_is_created_once_even_if_the_answer_is_lost() {
    let kinesis = Emulator::start();
    kinesis.faults().on(Op::CreateStream).first(1).apply_then_fail(AwsError::INTERNAL_FAILURE);
    let creating = quick(STREAM).create_if_missing(2);
    let subscription = reading(&kinesis, &MemoryLeaseStore::new(), creating).await;
    assert_eq!((kinesis.shards(STREAM).await.len(), subscription.stats().shards.len()), (2, 2));
}

// L5, X1
#[tokio::test]
async fn a_failed_first_listing_is_yielded_by_the_stream_and_loses_no_record() {
    let kinesis = kinesis(1).await;
    kinesis.faults().on(Op::ListShards).first(3).fail(AwsError::INTERNAL_FAILURE);
    let at_tip = quick(STREAM).initial_position(KinesisPosition::latest());
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), at_tip).await;
    fill(&kinesis, 0..2).await;
    let error = item(&mut subscription).await.unwrap().unwrap_err();
    assert!(matches!(error, KinesisError::List { .. }) && error.class() == ErrorClass::Transient, "{error}");
    assert_eq!(texts(&records(&mut subscription, 2).await), numbered(0..2));
}
