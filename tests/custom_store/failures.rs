//! A store that fails: writes, renewals, start and close.

use std::sync::{Arc, Mutex};

use futures::{StreamExt, future};
use kinesis_stream::{Checkpoint, Commit, Delivery, ErrorClass, KinesisError, KinesisPosition, LeaseStore, ShardId};
use tokio::time::{Duration, sleep, timeout};

use crate::{
    PATIENCE, SHARDS, STREAM, eventually,
    faulty::{CallOutcome, FaultyStore},
    fill, item, kinesis, quick, reading, text,
};

// L9
#[tokio::test]
async fn closing_writes_the_checkpoint_before_it_releases_the_lease() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, SHARDS[0], 3).await;
    let store = FaultyStore::new();
    let never = Duration::from_hours(1);
    let mut subscription = reading(&kinesis, store.clone(), quick().checkpoint_interval(never)).await;
    for _ in 0..3 {
        item(&mut subscription).await.unwrap().ack();
    }
    subscription.close().await;
    let mut log = store.log();
    log.retain(|method| method != "renew" && method != "leases");
    // The first checkpoint is the position where the shard was opened.
    assert_eq!(log, ["take", "checkpoint", "checkpoint", "release"]);
}

// A4
#[tokio::test]
async fn concurrent_commits_share_one_write() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, SHARDS[0], 100).await;
    let store = FaultyStore::new();
    let mut subscription = reading(&kinesis, store.clone(), quick()).await;
    let mut taken = Vec::new();
    while taken.len() < 100 {
        taken.push(item(&mut subscription).await.unwrap());
    }
    let commits = future::join_all(taken.into_iter().map(Delivery::commit)).await;
    assert!(commits.iter().all(|commit| matches!(commit, Ok(Commit::Stored))), "{commits:?}");
    let writes = store.log().iter().filter(|method| *method == "checkpoint").count();
    // The position of opening, the records settled at the first commit, and the rest.
    assert!(writes <= 3, "{writes}");
}

// A1, X1
#[tokio::test]
async fn failing_checkpoint_writes_of_one_shard_do_not_block_another_shard() {
    let kinesis = kinesis(2).await;
    let store = FaultyStore::new();
    let mut subscription = reading(&kinesis, store.clone(), quick().lease_ttl(PATIENCE)).await;
    for shard in SHARDS {
        fill(&kinesis, shard, 1).await;
        assert_eq!(item(&mut subscription).await.unwrap().commit().await.unwrap(), Commit::Stored);
    }
    store.decide(
        |method, shard| {
            if (method, shard) == ("checkpoint", SHARDS[0]) { CallOutcome::Fails } else { CallOutcome::Passes }
        },
    );
    fill(&kinesis, SHARDS[0], 1).await;
    let stuck = item(&mut subscription).await.unwrap();
    let covered = Some(Checkpoint::After(stuck.sequence_number().clone()));
    // The commit returns the error, and the stream yields it.
    let error = stuck.commit().await.unwrap_err();
    assert!(matches!(&error, KinesisError::Store { shard: Some(shard), .. } if shard.as_str() == SHARDS[0]), "{error}");
    let error = item(&mut subscription).await.unwrap_err();
    assert!(matches!(error, KinesisError::Store { .. }) && error.class() == ErrorClass::Transient, "{error}");
    let mut moving = subscription.tolerant();
    for _ in 0..3 {
        fill(&kinesis, SHARDS[1], 1).await;
        let delivery = item(&mut moving).await.unwrap();
        assert_eq!(delivery.shard().as_str(), SHARDS[1]);
        assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);
    }
    // The library does not give up: the write succeeds once the store accepts it.
    store.decide(|_, _| CallOutcome::Passes);
    eventually("the checkpoint is written", async || {
        let rows = store.store.leases("default", STREAM).await.unwrap();
        rows.iter().any(|row| row.key.shard.as_str() == SHARDS[0] && row.checkpoint == covered)
    })
    .await;
}

// E3
#[tokio::test]
async fn a_lease_survives_renewals_that_fail_for_less_than_its_ttl() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, SHARDS[0], 1).await;
    let store = FaultyStore::new();
    let mut subscription = reading(&kinesis, store.clone(), quick().lease_ttl(PATIENCE)).await;
    let held = item(&mut subscription).await.unwrap();
    let failures = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&failures);
    store.decide(move |method, _| {
        let mut failures = counter.lock().unwrap();
        if method != "renew" || *failures == 3 {
            return CallOutcome::Passes;
        }
        *failures += 1;
        CallOutcome::Fails
    });
    let error = item(&mut subscription).await.unwrap_err();
    assert!(matches!(error, KinesisError::Store { action: "renewing the lease", .. }), "{error}");
    eventually("renewals continue", async || *failures.lock().unwrap() == 3).await;
    assert_eq!(held.commit().await.unwrap(), Commit::Stored);
    fill(&kinesis, SHARDS[0], 1).await;
    assert_eq!(item(&mut subscription.tolerant()).await.unwrap().epoch(), 1);
}

// E3
#[tokio::test]
async fn no_record_is_delivered_past_the_ttl_of_a_lease_that_cannot_be_renewed() {
    let kinesis = kinesis(1).await;
    let store = FaultyStore::new();
    let mut subscription = reading(&kinesis, store.clone(), quick()).await;
    fill(&kinesis, SHARDS[0], 1).await;
    let held = item(&mut subscription).await.unwrap();
    store.decide(|method, _| if method == "leases" { CallOutcome::Passes } else { CallOutcome::Hangs });
    // Later than the last renewal plus the TTL.
    sleep(Duration::from_millis(1_500)).await;
    kinesis.put_to_shard(STREAM, SHARDS[0], "key", "late").await;
    let nothing = sleep(Duration::from_millis(500));
    tokio::pin!(nothing);
    loop {
        tokio::select! {
            item = subscription.next() => assert!(matches!(item, Some(Err(KinesisError::Store { .. }))), "{item:?}"),
            () = &mut nothing => break,
        }
    }
    // The store is back and no other instance took the shard, so delivery continues.
    store.decide(|_, _| CallOutcome::Passes);
    assert_eq!(held.commit().await.unwrap(), Commit::Stored);
    assert_eq!(text(&item(&mut subscription.tolerant()).await.unwrap()), "late");
}

// L5, X1
#[tokio::test]
async fn a_hanging_store_does_not_block_the_start_and_is_reported() {
    let kinesis = kinesis(1).await;
    let store = FaultyStore::new();
    store.decide(|_, _| CallOutcome::Hangs);
    let at_tip = quick().initial_position(KinesisPosition::latest());
    let mut subscription = timeout(PATIENCE, reading(&kinesis, store.clone(), at_tip)).await.expect("it starts");
    fill(&kinesis, SHARDS[0], 2).await;
    let error = item(&mut subscription).await.unwrap_err();
    assert!(matches!(error, KinesisError::Store { shard: None, action: "reading the leases", .. }), "{error}");
    store.decide(|_, _| CallOutcome::Passes);
    let mut subscription = subscription.tolerant();
    for i in 0..2 {
        let delivery = item(&mut subscription).await.unwrap();
        assert_eq!(text(&delivery), i.to_string());
        delivery.ack();
    }
}

// L9
#[tokio::test]
async fn closing_without_a_working_store_ends_in_bounded_time_and_reports_the_unsaved_shards() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, SHARDS[0], 1).await;
    let store = FaultyStore::new();
    let descriptor = quick().drain_timeout(Duration::from_millis(100));
    let mut subscription = reading(&kinesis, store.clone(), descriptor).await;
    let delivery = item(&mut subscription).await.unwrap();
    store.decide(|_, _| CallOutcome::Fails);
    delivery.ack();
    let report = timeout(PATIENCE, subscription.close()).await.expect("it ends");
    assert_eq!(report.unsaved.iter().map(ShardId::as_str).collect::<Vec<_>>(), [SHARDS[0]]);
    assert!(!report.is_clean());
}
