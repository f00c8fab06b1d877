//! Settling and dropping deliveries.

use kinesis_stream::{Checkpoint, Commit, Delivery, MemoryLeaseStore, SequenceNumber, commit_all};
use kinesis_stream_support::Harness;

use crate::{
    NEVER, after, fill, stream,
    wire::{eventually, quick, reading, record, records, rows, seal, text, texts, up_to_seals},
};

// A3
#[tokio::test]
async fn each_lease_row_moves_only_with_the_records_of_its_own_shard() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "rows", 2).await;
    let shards = harness.shards(stream).await;
    let (a, b) = (shards[0].id.as_str(), shards[1].id.as_str());
    fill(&harness, stream, a, "a", 5).await;
    fill(&harness, stream, b, "b", 5).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&harness, &store, quick(stream).checkpoint_interval(NEVER)).await;
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for delivery in records(&mut subscription, 10).await {
        if delivery.shard().as_str() == a { of_a.push(Some(delivery)) } else { of_b.push(Some(delivery)) }
    }
    let checkpoints = async || {
        let rows = rows(&store, stream).await;
        (rows[a].checkpoint.clone(), rows[b].checkpoint.clone())
    };
    let number = |delivery: &Option<Delivery>| delivery.as_ref().unwrap().sequence_number().clone();
    let (numbers_a, numbers_b): (Vec<_>, Vec<_>) =
        (of_a.iter().map(number).collect(), of_b.iter().map(number).collect());
    let at = |number: &SequenceNumber| Some(Checkpoint::At(number.clone()));
    let after = |number: &SequenceNumber| Some(Checkpoint::After(number.clone()));

    assert_eq!(checkpoints().await, (at(&numbers_a[0]), at(&numbers_b[0])));
    assert_eq!(of_a[0].take().unwrap().commit().await.unwrap(), Commit::Stored);
    assert_eq!(checkpoints().await, (after(&numbers_a[0]), at(&numbers_b[0])));
    assert_eq!(of_b[1].take().unwrap().commit().await.unwrap(), Commit::Deferred);
    assert_eq!(of_a[2].take().unwrap().commit().await.unwrap(), Commit::Deferred);
    assert_eq!(checkpoints().await, (after(&numbers_a[0]), at(&numbers_b[0])));
    assert_eq!(of_b[0].take().unwrap().commit().await.unwrap(), Commit::Stored);
    assert_eq!(checkpoints().await, (after(&numbers_a[0]), after(&numbers_b[1])));
    assert_eq!(of_a[1].take().unwrap().commit().await.unwrap(), Commit::Stored);
    assert_eq!(checkpoints().await, (after(&numbers_a[2]), after(&numbers_b[1])));
}

// A1, A2, A7
#[tokio::test]
async fn a_nacked_or_dropped_record_is_redelivered_as_its_second_attempt() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "again", 1).await;
    let shard = &harness.shards(stream).await[0].id;
    fill(&harness, stream, shard, "record", 4).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&harness, &store, quick(stream)).await;
    for delivery in records(&mut subscription, 4).await {
        assert_eq!(delivery.attempt(), 1);
        match text(&delivery).as_str() {
            "record 1" => delivery.nack(),
            "record 2" => drop(delivery),
            _ => delivery.ack(),
        }
    }
    let again = records(&mut subscription, 2).await;
    assert_eq!(texts(&again), ["record 1", "record 2"]);
    assert!(again.iter().all(|delivery| delivery.attempt() == 2));
    assert_eq!(subscription.stats().shards[0].redeliveries, 2);
    assert_eq!(commit_all(again).await.unwrap(), Commit::Stored);

    let seals = seal(&harness, stream).await;
    assert_eq!(up_to_seals(&mut subscription, seals).await, Vec::<String>::new());
}

// A2
#[tokio::test]
async fn dropping_acknowledges_if_the_descriptor_says_so() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "ack-on-drop", 1).await;
    let shard = &harness.shards(stream).await[0].id;
    fill(&harness, stream, shard, "record", 5).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&harness, &store, quick(stream).ack_on_drop()).await;
    let mut taken = records(&mut subscription, 5).await;
    let covered = Some(after(&taken[3]));
    let last = taken.pop().unwrap();
    drop(taken);
    eventually("the checkpoint covers the dropped records", async || {
        rows(&store, stream).await[shard].checkpoint == covered
    })
    .await;
    drop(subscription);
    eventually("the lease is released", async || rows(&store, stream).await[shard].owner.is_none()).await;
    // The subscription is gone: a record dropped now is redelivered.
    drop(last);
    let mut second = reading(&harness, &store, quick(stream)).await;
    assert_eq!(text(&record(&mut second).await), "record 4");
}

// A2
#[tokio::test]
async fn a_panic_does_not_acknowledge_the_deliveries_that_it_drops() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "panic", 1).await;
    harness.put(stream, "key", "record").await;
    let mut subscription = reading(&harness, &MemoryLeaseStore::new(), quick(stream).ack_on_drop()).await;
    let delivery = record(&mut subscription).await;
    let worker = tokio::spawn(async move {
        let held = delivery;
        assert_eq!(held.attempt(), 2, "this panic is part of the test");
    });
    assert!(worker.await.unwrap_err().is_panic());
    assert_eq!(record(&mut subscription).await.attempt(), 2);
}
