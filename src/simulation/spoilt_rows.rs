//! Rows of the lease table that make no sense, because a person or another program edited them (E6).

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use futures::FutureExt;
use tokio::time::{Duration, sleep};

use super::{
    harness::{CapturedLogs, Harness, error, horizon, item, latest, millis, names, next, seconds, take, within},
    scripted_table::TableOp,
};
use crate::{
    config::position::Checkpoint,
    error::{
        ErrorClass, KinesisError,
        chain::Chain,
        service::{StoreError, StoreErrorKind},
    },
    lease::{Held, Lease, LeaseKey, LeaseStore, Leases, MemoryLeaseStore, Seen, StoreFuture, Take, Write},
    types::{commit::Commit, id::ShardId},
    util::mutex::lock,
};

/// A table in which rows can be spoilt.
#[derive(Clone, Debug, Default)]
struct SpoilableTable {
    rows: MemoryLeaseStore,
    spoilt: Arc<Mutex<BTreeSet<ShardId>>>,
}

fn spoilt(key: &LeaseKey) -> StoreError {
    StoreError::new(format!("table \"t\", row \"{key}\": leaseCounter makes no sense"))
        .with_kind(StoreErrorKind::UnreadableRow)
}

impl SpoilableTable {
    fn spoil(&self, shard: &str) {
        lock(&self.spoilt).insert(shard.into());
    }

    fn mend(&self, shard: &str) {
        lock(&self.spoilt).remove(&shard.into());
    }

    fn write<'a, T: Send + 'a>(&'a self, key: &'a LeaseKey, write: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        async move { if lock(&self.spoilt).contains(&key.shard) { Err(spoilt(key)) } else { write.await } }.boxed()
    }
}

impl LeaseStore for SpoilableTable {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Leases> {
        async move {
            let mut leases = Leases::default();
            for row in self.rows.leases(consumer, stream).await?.rows {
                let key = row.key.clone();
                let is_spoilt = lock(&self.spoilt).contains(&key.shard);
                leases.push(key.clone(), if is_spoilt { Err(spoilt(&key)) } else { Ok(row) });
            }
            Ok(leases)
        }
        .boxed()
    }

    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
        self.write(&take.key, self.rows.take(take))
    }

    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.write(&held.key, self.rows.renew(held))
    }

    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
        self.write(&held.key, self.rows.checkpoint(held, checkpoint))
    }

    fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.write(&held.key, self.rows.release(held))
    }

    fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write> {
        self.write(key, self.rows.ask(key, seen, by))
    }

    fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        self.write(key, self.rows.delete(key, seen))
    }
}

// E6
#[tokio::test(start_paused = true)]
async fn a_spoilt_row_holds_back_its_own_shard_and_children_alone() {
    for stream in [horizon, latest] {
        let table = SpoilableTable::default();
        let harness = Harness::on(&["a", "b"], table.clone());
        // An earlier process has read a part of each shard.
        let earlier = harness.instance("earlier");
        let mut before = earlier.subscribe(horizon()).await;
        harness.kinesis.put("a", 1);
        harness.kinesis.put("b", 1);
        for record in take(&mut before, 2).await {
            assert_eq!(record.commit().await.unwrap(), Commit::Stored);
        }
        before.close().await;
        harness.kinesis.split("a", ["a0", "a1"]);
        harness.kinesis.put("a0", 1);
        harness.kinesis.put("b", 1);
        table.spoil("a");

        let logs = CapturedLogs::new();
        let (me, begun) = (harness.instance("me"), harness.millis());
        let mut subscription = me.subscribe(stream()).await;
        let told = error(&mut subscription).await;
        assert_eq!(told.class(), ErrorClass::Transient);
        assert_eq!(
            Chain(&told).to_string(),
            "stream s, shard a: the lease store failed while reading the row of the lease: table \"t\", row \"test/s/a\": \
             leaseCounter makes no sense"
        );
        let read = within(&mut subscription, seconds(200)).await;
        assert_eq!(names(&read), ["b1"]);
        assert_eq!(logs.with("makes no sense").len(), 1);
        assert!(me.table.script.times(TableOp::Take, "a").is_empty());
        // It is said again after some minutes.
        assert!(matches!(item(&mut subscription).await, Some(Err(KinesisError::Store { .. }))));
        assert_eq!(harness.millis() - begun, 300_000);

        table.mend("a");
        let rest = take(&mut subscription, 1).await;
        assert_eq!(names(&rest), ["a00"]);
    }
}

// E6, E3
#[tokio::test(start_paused = true)]
async fn a_holder_of_a_spoilt_row_writes_ever_more_rarely_and_continues_once_it_is_corrected() {
    let table = SpoilableTable::default();
    let harness = Harness::on(&["a", "b"], table.clone());
    let me = harness.instance("me");
    let mut subscription = me.subscribe(latest()).await;
    sleep(millis(500)).await;
    table.spoil("a");
    assert!(matches!(error(&mut subscription).await, KinesisError::Store { shard: Some(_), .. }));
    sleep(seconds(20)).await;
    harness.kinesis.put("a", 1);
    harness.kinesis.put("b", 1);
    let read = within(&mut subscription, seconds(240)).await;
    assert_eq!(names(&read), ["b0"]);
    let writes = me.table.script.times(TableOp::Renew, "a");
    assert!(writes.len() < 40, "{writes:?}");
    let pauses = writes.windows(2).map(|two| two[1].saturating_sub(two[0]));
    assert_eq!(pauses.max().unwrap(), Duration::from_secs(10));

    table.mend("a");
    let record = next(&mut subscription).await;
    assert_eq!((record.sequence_number().as_str(), record.epoch()), ("a0", 1));
}
