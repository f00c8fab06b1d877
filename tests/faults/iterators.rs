//! Shard iterators that expire, fail or hang.

use kinesis_stream::{Action, Commit, ErrorClass, KinesisError, KinesisPosition, MemoryLeaseStore, commit_all};
use kinesis_stream_support::{AwsError, Emulator, Op};
use tokio::time::{Duration, sleep};

use crate::{
    OTHER, SHARD, STREAM, fill, kinesis, numbered,
    wire::{item, quick, reading, record, records, seal, text, texts, up_to_seals},
};

// R8
#[tokio::test]
async fn no_record_is_lost_or_repeated_when_the_user_pauses_longer_than_an_iterator_lives() {
    let kinesis = Emulator::builder().iterator_seconds(1).start();
    kinesis.create_stream(STREAM, 1).await;
    fill(&kinesis, 0..40).await;
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), quick(STREAM).read_limit(5)).await;
    let mut said = texts(&records(&mut subscription, 3).await.into_iter().inspect(|_| ()).collect::<Vec<_>>());
    sleep(Duration::from_millis(2_500)).await;
    while said.len() < 40 {
        let delivery = record(&mut subscription).await;
        if delivery.attempt() == 1 {
            said.push(text(&delivery));
        }
        delivery.ack();
    }
    assert_eq!(said, numbered(0..40));
    assert!(kinesis.faults().count(Op::GetShardIterator) >= 2, "the iterator expired");
}

// R8
#[tokio::test]
async fn an_iterator_that_expires_behind_unsettled_records_continues_with_exactly_the_new_records() {
    let kinesis = Emulator::builder().iterator_seconds(1).start();
    kinesis.create_stream(STREAM, 1).await;
    fill(&kinesis, 0..10).await;
    let slow = quick(STREAM).poll_interval(Duration::from_millis(1_500));
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), slow).await;
    let held = records(&mut subscription, 10).await;
    // The read after the next pause fails with an expired iterator.
    kinesis.faults().called(Op::GetShardIterator, 2).await;
    fill(&kinesis, 10..11).await;
    let seals = seal(&kinesis, STREAM).await;
    assert_eq!(up_to_seals(&mut subscription, seals).await, ["10"]);
    assert_eq!(commit_all(held).await.unwrap(), Commit::Stored);
}

// R8, L5
#[tokio::test]
async fn an_iterator_at_the_tip_that_expires_before_the_first_record_skips_no_record() {
    let kinesis = kinesis(1).await;
    let expired = kinesis.faults().on(Op::GetRecords).fail(AwsError::EXPIRED_ITERATOR);
    let at_tip = quick(STREAM).initial_position(KinesisPosition::latest());
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), at_tip).await;
    fill(&kinesis, 0..3).await;
    kinesis.faults().called(Op::GetShardIterator, 3).await;
    expired.lift();
    assert_eq!(texts(&records(&mut subscription, 3).await), numbered(0..3));
}

// L5
#[tokio::test]
async fn a_shard_whose_first_iterator_failed_opens_at_the_time_of_subscribing() {
    let kinesis = kinesis(1).await;
    // The SDK tries three times.
    kinesis.faults().on(Op::GetShardIterator).first(3).fail(AwsError::INTERNAL_FAILURE);
    let at_tip = quick(STREAM).initial_position(KinesisPosition::latest());
    let mut subscription = reading(&kinesis, &MemoryLeaseStore::new(), at_tip).await;
    fill(&kinesis, 0..3).await;
    let error = item(&mut subscription).await.unwrap().unwrap_err();
    assert_eq!(error.class(), ErrorClass::Transient);
    let KinesisError::Read { shard, failures: 1, gave_up: false, source, .. } = error else { panic!("{error}") };
    assert_eq!((shard.as_str(), source.action()), (SHARD, Action::GetShardIterator));
    assert_eq!(texts(&records(&mut subscription, 3).await), numbered(0..3));
}

// H4, L5
#[tokio::test]
async fn a_shard_whose_iterator_call_hangs_blocks_no_other_shard() {
    let kinesis = kinesis(2).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&kinesis, &store, quick(STREAM)).await;
    let [low, high] = kinesis.split(STREAM, SHARD).await;
    let hung = kinesis.faults().on(Op::GetShardIterator).shard(&low).hold();
    kinesis.faults().called(Op::GetShardIterator, 4).await;
    let [other, _] = kinesis.split(STREAM, OTHER).await;
    for shard in [&high, &other] {
        kinesis.put_to_shard(STREAM, shard, "key", shard.as_str()).await;
        let delivery = record(&mut subscription).await;
        assert_eq!(text(&delivery), *shard);
        delivery.ack();
    }
    hung.lift();
    kinesis.put_to_shard(STREAM, &low, "key", low.as_str()).await;
    assert_eq!(text(&record(&mut subscription).await), low);
}
