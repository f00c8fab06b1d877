//! Lost and released leases.

use futures::TryStreamExt;
use kinesis_stream::{
    Commit, Delivery, KinesisError, KinesisPosition, LeaseStore, MemoryLeaseStore, StatsHandle, Take, Write, commit_all,
};
use kinesis_stream_support::{AwsError, Op};
use tokio::time::Instant;

use crate::{
    SHARD, STREAM, fill, kinesis, numbered,
    reads::reads,
    wire::{PATIENCE, eventually, quick, reading, records, rows, seal, text, up_to_seals},
};

// X1, X2
#[tokio::test]
async fn a_tolerant_pipeline_survives_an_outage_a_throttle_and_a_lost_lease() {
    let kinesis = kinesis(1).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&kinesis, &store, quick(STREAM)).await.tolerant();
    let stats = subscription.get_ref().stats_handle();
    let mut next = async || -> Result<Delivery, KinesisError> {
        Ok(subscription.try_next().await?.expect("the stream has not ended"))
    };

    fill(&kinesis, 0..1).await;
    let first = next().await.unwrap();
    assert_eq!((text(&first).as_str(), first.epoch()), ("0", 1));
    assert_eq!(first.commit().await.unwrap(), Commit::Stored);

    let met = kinesis.faults().count(Op::GetRecords);
    kinesis.faults().on(Op::GetRecords).nth(1).fail(AwsError::INTERNAL_FAILURE);
    kinesis.faults().on(Op::GetRecords).nth(2).fail(AwsError::THROTTLED);
    kinesis.faults().called(Op::GetRecords, met + 3).await;
    fill(&kinesis, 1..2).await;
    let second = next().await.unwrap();
    assert_eq!(text(&second), "1");

    // Another instance takes the shard, reads nothing, and dies.
    let stolen = steal_lease(&store).await;
    noticed(&stats, second.epoch()).await;
    fill(&kinesis, 2..3).await;
    let again = next().await.unwrap();
    assert_eq!((text(&again).as_str(), again.epoch(), again.attempt()), ("1", stolen + 1, 1));
    assert_eq!(second.commit().await.unwrap(), Commit::Superseded);
    assert_eq!(again.commit().await.unwrap(), Commit::Stored);
    let last = next().await.unwrap();
    assert_eq!(text(&last), "2");
    assert_eq!(last.commit().await.unwrap(), Commit::Stored);
}

/// Takes the lease of the first shard from its holder, which may renew it concurrently. Returns the epoch.
async fn steal_lease(store: &MemoryLeaseStore) -> u64 {
    let row = rows(store, STREAM).await.remove(SHARD).unwrap();
    let seen = Some(row.seen());
    let mut theft = Take::new(row.key, "thief").with_seen(seen).with_parents(row.parents);
    loop {
        match store.take(&theft).await.unwrap() {
            Write::Applied(lease) => return lease.epoch,
            Write::Refused(row) => theft.seen = row.map(|row| row.seen()),
        }
    }
}

/// Waits until an instance has noticed that it lost the lease of this epoch. The shard may then be free, held by the
/// thief, or held here again: an intermediate state may be too short to observe.
async fn noticed(stats: &StatsHandle, lost: u64) {
    eventually("the theft is noticed", async || stats.snapshot().shards[0].epoch != Some(lost)).await;
}

// L6, L9
#[tokio::test]
async fn a_dropped_subscription_stops_reading_and_releases_its_shards() {
    let kinesis = kinesis(4).await;
    let store = MemoryLeaseStore::new();
    // The TTL is a minute: the second instance can be this fast only if the leases were released.
    let lasting = || quick(STREAM).lease_ttl(PATIENCE + PATIENCE);
    let first = reading(&kinesis, &store, lasting()).await;
    kinesis.faults().called(Op::GetRecords, 4).await;
    drop(first);
    eventually("leases are free", async || rows(&store, STREAM).await.values().all(|row| row.owner.is_none())).await;
    let settled = kinesis.faults().count(Op::GetRecords);
    let begun = Instant::now();
    let mut second = reading(&kinesis, &store, lasting()).await;
    let seals = seal(&kinesis, STREAM).await;
    assert_eq!(up_to_seals(&mut second, seals).await, Vec::<String>::new());
    assert!(begun.elapsed() < PATIENCE && kinesis.faults().count(Op::GetRecords) > settled);
    assert!(rows(&store, STREAM).await.values().all(|row| row.epoch == 2));
    assert!(reads(&second) > 0);
}

// R6, R10, A3
#[tokio::test]
async fn a_replay_that_loses_its_lease_before_the_first_settlement_restarts_where_it_started() {
    let kinesis = kinesis(1).await;
    fill(&kinesis, 0..10).await;
    let store = MemoryLeaseStore::new();
    let mut first = reading(&kinesis, &store, quick(STREAM)).await;
    assert_eq!(commit_all(records(&mut first, 10).await).await.unwrap(), Commit::Stored);
    assert!(first.close().await.is_clean());

    let forced = quick(STREAM).start_at(KinesisPosition::horizon());
    let mut replay = reading(&kinesis, &store, forced).await;
    let stats = replay.stats_handle();
    let held = records(&mut replay, 3).await;
    steal_lease(&store).await;
    noticed(&stats, held[0].epoch()).await;
    let mut replay = replay.tolerant();
    let mut epoch = 0;
    for text in numbered(0..5) {
        let delivery = replay.try_next().await.unwrap().unwrap();
        epoch = delivery.epoch();
        assert_eq!(self::text(&delivery), text);
        assert_eq!(delivery.commit().await.unwrap(), Commit::Stored);
    }
    // A settlement counts: from now on the checkpoint is that of the replay.
    steal_lease(&store).await;
    noticed(&stats, epoch).await;
    let delivery = replay.try_next().await.unwrap().unwrap();
    assert_eq!(text(&delivery), "5");
    drop(held);
}
