//! A lease table in which rows can be made to make no sense, as if a person or another program had edited them (E6).

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use futures::FutureExt;

use crate::{
    config::position::Checkpoint,
    error::service::{StoreError, StoreErrorKind},
    lease::{Held, Lease, LeaseKey, LeaseStore, Leases, MemoryLeaseStore, Seen, StoreFuture, Take, Write},
    types::id::ShardId,
    util::mutex::lock,
};

/// A table in which rows can be spoilt.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpoilableTable<S = MemoryLeaseStore> {
    rows: S,
    spoilt: SpoiltRows,
}

/// The shards whose rows are spoilt.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpoiltRows(Arc<Mutex<BTreeSet<ShardId>>>);

impl SpoiltRows {
    pub(crate) fn spoil(&self, shard: &str) {
        lock(&self.0).insert(shard.into());
    }

    pub(crate) fn mend(&self, shard: &str) {
        lock(&self.0).remove(&shard.into());
    }

    pub(crate) fn mend_all(&self) {
        lock(&self.0).clear();
    }

    fn has(&self, key: &LeaseKey) -> bool {
        lock(&self.0).contains(&key.shard)
    }
}

fn spoilt(key: &LeaseKey) -> StoreError {
    StoreError::new(format!("table \"t\", row \"{key}\": leaseCounter makes no sense"))
        .with_kind(StoreErrorKind::UnreadableRow)
}

impl<S: LeaseStore> SpoilableTable<S> {
    pub(crate) fn new(rows: S) -> Self {
        Self { rows, spoilt: SpoiltRows::default() }
    }

    pub(crate) fn spoilt(&self) -> SpoiltRows {
        self.spoilt.clone()
    }

    fn write<'a, T: Send + 'a>(&'a self, key: &'a LeaseKey, write: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        async move { if self.spoilt.has(key) { Err(spoilt(key)) } else { write.await } }.boxed()
    }
}

impl<S: LeaseStore> LeaseStore for SpoilableTable<S> {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Leases> {
        async move {
            let mut leases = Leases::default();
            for row in self.rows.leases(consumer, stream).await?.rows {
                let key = row.key.clone();
                let is_spoilt = self.spoilt.has(&key);
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
