//! Dead letters end to end: the exact bytes in the dead-letter stream, and failures of that stream.

use bytes::Bytes;
use kinesis_stream::{Checkpoint, Commit, DeadLetter, Delivery, ErrorClass, KinesisError, MemoryLeaseStore, Outgoing};
use kinesis_stream_support::{AwsError, Emulator, Op};
use tokio::time::Duration;

mod wire;

use self::wire::{eventually, instance, item, quick, reading, record, records, rows, seal, texts, up_to_seals};

const STREAM: &str = "quakes";
const DEAD: &str = "quakes-dead";
const SHARD: &str = "shardId-000000000000";

async fn kinesis() -> Emulator {
    let kinesis = Emulator::start();
    kinesis.create_stream(STREAM, 1).await;
    kinesis.create_stream(DEAD, 1).await;
    kinesis
}

/// A stream with short intervals and `attempts` attempts per record, and a dead-letter stream for failed records.
fn deadly(attempts: u32) -> kinesis_stream::KinesisStream {
    let (first, longest) = (Duration::from_millis(10), Duration::from_millis(40));
    quick(STREAM).retry_backoff(first..=longest).max_attempts(attempts).dead_letter(DEAD)
}

/// The checkpoint in the row of the shard.
async fn checkpoint(store: &MemoryLeaseStore) -> Option<Checkpoint> {
    rows(store, STREAM).await[SHARD].checkpoint.clone()
}

// A7, S5
#[tokio::test]
async fn a_dead_letter_holds_the_exact_record_and_its_origin_and_a_restart_does_not_redeliver_it() {
    let (kinesis, store) = (kinesis().await, MemoryLeaseStore::new());
    let broker = instance(&kinesis, &store).await;
    let payload = Bytes::from((0..=u8::MAX).collect::<Vec<u8>>());
    let sent = Outgoing::new("schlüssel", payload.clone()).header("trace", Bytes::from_static(b"\0\xff"));
    let published = broker.publisher().publish(STREAM, sent.clone()).await.unwrap();

    let mut subscription = broker.subscribe(deadly(2)).await.unwrap();
    record(&mut subscription).await.nack_because("not yet");
    let last = record(&mut subscription).await;
    let arrived = last.arrived_at();
    assert_eq!(last.attempt(), 2);
    last.nack_because("no such place");
    eventually("the record is settled", async || {
        checkpoint(&store).await == Some(Checkpoint::After(published.sequence_number().clone()))
    })
    .await;

    let mut dead = broker.subscribe(quick(DEAD)).await.unwrap();
    let delivery = record(&mut dead).await;
    let json: serde_json::Value = serde_json::from_slice(delivery.payload()).unwrap();
    let expected = serde_json::json!({
        "format": "kinesis-dead-letter/1",
        "stream": STREAM,
        "shard": SHARD,
        "sequence_number": published.sequence_number().as_str(),
        "partition_key": "schlüssel",
        "arrived_at": json["arrived_at"],
        "consumer": "default",
        "attempts": 2,
        "rejected": false,
        "reason": "no such place",
        "headers": [{"name": "trace", "value_base64": "AP8="}],
        "payload_base64": json["payload_base64"],
    });
    assert_eq!((json, delivery.partition_key()), (expected, Some("schlüssel")));
    let letter = DeadLetter::try_from(&delivery).unwrap();
    assert_eq!((letter.record().payload(), letter.record().arrived_at()), (&payload, arrived));
    assert_eq!(letter.original(), sent);
    assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);

    assert!(subscription.close().await.is_clean());
    let seals = seal(&kinesis, STREAM).await;
    let mut again = reading(&kinesis, &store, deadly(2)).await;
    assert_eq!(up_to_seals(&mut again, seals).await, Vec::<String>::new());
    assert_eq!(kinesis.records(DEAD, SHARD).await.len(), 1);
}

// A7, X2
#[tokio::test]
async fn a_failing_dead_letter_stream_blocks_only_its_record_until_it_recovers() {
    let (kinesis, store) = (kinesis().await, MemoryLeaseStore::new());
    kinesis.put_all(STREAM, (0..5).map(|i| ("key", i.to_string()))).await;
    let outage = kinesis.faults().on(Op::PutRecord).fail(AwsError::UNAVAILABLE);

    let mut subscription = reading(&kinesis, &store, deadly(1)).await;
    let first = record(&mut subscription).await;
    let before = Some(Checkpoint::At(first.sequence_number().clone()));
    first.nack();
    let rest = records(&mut subscription, 4).await;
    assert_eq!(texts(&rest), ["1", "2", "3", "4"]);
    let last = Some(Checkpoint::After(rest[3].sequence_number().clone()));
    rest.into_iter().for_each(Delivery::ack);
    let failed = item(&mut subscription).await.unwrap().unwrap_err();
    assert_eq!(failed.class(), ErrorClass::Transient);
    assert!(matches!(failed, KinesisError::DeadLetter { dead_letter, .. } if &*dead_letter == DEAD));
    assert_eq!((checkpoint(&store).await, subscription.stats().shards[0].in_flight), (before, 1));

    outage.lift();
    eventually("the dead letter is written and the record settled", async || checkpoint(&store).await == last).await;
    assert_eq!(kinesis.records(DEAD, SHARD).await.len(), 1);
    assert_eq!(subscription.stats().shards[0].dead_letters, 1);
}

// L4
#[tokio::test]
async fn a_missing_dead_letter_stream_is_an_error_of_subscribe_unless_it_may_be_created() {
    let (kinesis, store) = (Emulator::start(), MemoryLeaseStore::new());
    kinesis.create_stream(STREAM, 1).await;
    kinesis.put_all(STREAM, [("key", "poison")]).await;
    let broker = instance(&kinesis, &store).await;
    let error = broker.subscribe(deadly(1)).await.unwrap_err();
    assert!(matches!(error, KinesisError::DeadLetterStream { dead_letter, .. } if &*dead_letter == DEAD));

    let mut subscription = broker.subscribe(deadly(1).dead_letter_if_missing(1)).await.unwrap();
    record(&mut subscription).await.reject("poison");
    eventually("the dead letter is written", async || subscription.stats().shards[0].dead_letters == 1).await;
    assert_eq!(kinesis.records(DEAD, SHARD).await.len(), 1);
}
