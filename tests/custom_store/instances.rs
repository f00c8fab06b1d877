//! Several instances on one store.

use futures::StreamExt;
use kinesis_stream::{Checkpoint, Commit, ErrorClass, KinesisBroker, KinesisError, LeaseStore, MemoryLeaseStore};
use tokio::time::timeout;

use crate::{
    PATIENCE, SHARDS, STREAM,
    faulty::{CallOutcome, FaultyStore},
    fill, item, kinesis, quick, reading, text,
};

// E4
#[tokio::test]
async fn one_of_two_instances_with_the_same_owner_id_stops_with_an_error_that_says_why() {
    let kinesis = kinesis(1).await;
    let store = MemoryLeaseStore::new();
    let twin = async || {
        let broker = KinesisBroker::new().endpoint(kinesis.endpoint()).test_credentials();
        let broker = broker.lease_store(store.clone()).owner_id("twin").connect().await.unwrap();
        broker.subscribe(quick()).await.unwrap()
    };
    let mut first = twin().await;
    let mut second = twin().await;
    let error = item(&mut first).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Fatal);
    assert!(matches!(&error, KinesisError::DuplicateOwner { owner, epoch: 2, .. } if &**owner == "twin"), "{error}");
    assert!(timeout(PATIENCE, first.next()).await.unwrap().is_none());
    fill(&kinesis, SHARDS[0], 1).await;
    let delivery = item(&mut second).await.unwrap();
    assert_eq!((delivery.epoch(), delivery.commit().await.unwrap()), (2, Commit::Stored));
}

// A3, E2, E3
#[tokio::test]
async fn an_instance_that_lost_its_lease_while_cut_off_writes_nothing() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, SHARDS[0], 10).await;
    let cut_off = FaultyStore::new();
    let memory = cut_off.store.clone();
    let mut old = reading(&kinesis, cut_off.clone(), quick()).await;
    let mut held = Vec::new();
    while held.len() < 5 {
        held.push(item(&mut old).await.unwrap());
    }
    cut_off.decide(|_, _| CallOutcome::Hangs);

    let mut new = reading(&kinesis, memory.clone(), quick()).await;
    let mut last = None;
    for i in 0..10 {
        let delivery = item(&mut new).await.unwrap();
        assert_eq!((text(&delivery), delivery.epoch()), (i.to_string(), 2));
        last = Some(Checkpoint::After(delivery.sequence_number().clone()));
        assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);
    }
    cut_off.decide(|_, _| CallOutcome::Passes);
    for delivery in held {
        assert_eq!(delivery.commit().await.unwrap(), Commit::Superseded);
    }
    let row = memory.leases("default", STREAM).await.unwrap().remove(0);
    assert_eq!((row.checkpoint, row.epoch), (last, 2));
    // The stream reports the reason, and delivered no more records of this shard in the meantime.
    let error = loop {
        match item(&mut old).await.unwrap_err() {
            KinesisError::Store { .. } => {}
            other => break other,
        }
    };
    assert!(matches!(error, KinesisError::LeaseLost { epoch: 1, owner: Some(_), .. }), "{error}");
}

// L6
#[tokio::test]
async fn shards_of_a_closed_instance_are_taken_before_its_leases_would_expire() {
    let kinesis = kinesis(2).await;
    let store = MemoryLeaseStore::new();
    let lasting = || quick().lease_ttl(10 * PATIENCE);
    let first = reading(&kinesis, store.clone(), lasting()).await;
    let mut second = reading(&kinesis, store.clone(), lasting()).await;
    assert_eq!(second.stats().awaited, 2);
    assert!(first.close().await.is_clean());
    for shard in SHARDS {
        fill(&kinesis, shard, 1).await;
        let delivery = item(&mut second).await.unwrap();
        assert_eq!((delivery.shard().as_str(), delivery.epoch()), (shard, 2));
        delivery.ack();
    }
    assert_eq!(second.stats().awaited, 0);
}
