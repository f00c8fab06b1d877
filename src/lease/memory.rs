//! Leases in the memory of this process: the shortest store, and the one that tests use.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use crate::{
    config::position::Checkpoint,
    error::service::StoreError,
    lease::{Held, Lease, LeaseKey, LeaseStore, Seen, StoreFuture, Take, Write, next_count::next_count},
    util::mutex::lock,
};

/// Leases in the memory of this process. They end with it, so after a restart a consumer begins at the position that
/// its descriptor names.
///
/// For tests, for tools that read a stream once, and for services that keep their positions elsewhere. Clones share one
/// table, so several brokers of one process can share the shards of a stream.
///
/// ```
/// use kinesis_stream::{LeaseStore, MemoryLeaseStore};
///
/// # futures::executor::block_on(async {
/// let store = MemoryLeaseStore::new();
/// assert!(store.leases("default", "orders").await?.is_empty());
/// # Ok::<_, kinesis_stream::StoreError>(())
/// # }).unwrap();
/// ```
#[derive(Clone, Debug, Default)]
pub struct MemoryLeaseStore {
    rows: Arc<Mutex<LeaseMap>>,
}

type LeaseMap = BTreeMap<LeaseKey, Lease>;

impl MemoryLeaseStore {
    /// An empty table.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs one atomic step.
    fn step<'a, T>(
        &'a self,
        step: impl FnOnce(&mut LeaseMap) -> Result<T, StoreError> + Send + 'a,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move { step(&mut lock(&self.rows)) })
    }

    /// Sets which instance wants the row and increases the counter, or refuses.
    fn mark<'a>(&'a self, key: &'a LeaseKey, seen: Seen, wanted_by: Option<&'a str>) -> StoreFuture<'a, Write> {
        self.step(move |rows| match rows.get_mut(key) {
            Some(row) if row.seen() == seen => {
                row.counter = next(key, "counter", row.counter)?;
                row.wanted_by = wanted_by.map(Into::into);
                Ok(Write::Applied(()))
            }
            row => Ok(Write::Refused(row.cloned())),
        })
    }

    /// Changes a row for its holder and increases the counter, or refuses.
    fn write<'a>(&'a self, held: &'a Held, change: impl FnOnce(&mut Lease) + Send + 'a) -> StoreFuture<'a, Write> {
        self.step(move |rows| match rows.get_mut(&held.key) {
            Some(row) if row.owner.as_ref() == Some(&held.owner) && row.epoch == held.epoch => {
                row.counter = next(&row.key, "counter", row.counter)?;
                change(row);
                Ok(Write::Applied(()))
            }
            row => Ok(Write::Refused(row.cloned())),
        })
    }
}

impl LeaseStore for MemoryLeaseStore {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Vec<Lease>> {
        self.step(move |rows| {
            let belongs = |key: &LeaseKey| *key.consumer == *consumer && *key.stream == *stream;
            Ok(rows.values().filter(|row| belongs(&row.key)).cloned().collect())
        })
    }

    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
        self.step(move |rows| {
            let row = rows.get(&take.key);
            if row.map(Lease::seen) != take.seen {
                return Ok(Write::Refused(row.cloned()));
            }
            let taken = Lease {
                key: take.key.clone(),
                owner: Some(Arc::clone(&take.owner)),
                epoch: next(&take.key, "epoch", row.map_or(0, |row| row.epoch))?,
                counter: next(&take.key, "counter", row.map_or(0, |row| row.counter))?,
                checkpoint: take.checkpoint_after(row.and_then(|row| row.checkpoint.clone())),
                parents: take.parents.clone(),
                stream_created: take.stream_created,
                wanted_by: None,
                is_foreign: false,
                ttl: take.ttl,
            };
            rows.insert(take.key.clone(), taken.clone());
            Ok(Write::Applied(taken))
        })
    }

    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.write(held, |_| ())
    }

    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
        self.write(held, |row| {
            row.checkpoint = Some(checkpoint.clone());
            if *checkpoint == Checkpoint::ShardEnd {
                row.wanted_by = None;
            }
        })
    }

    fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.write(held, |row| row.owner = None)
    }

    fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write> {
        self.mark(key, seen, Some(by))
    }

    fn withdraw_ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        self.mark(key, seen, None)
    }

    fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        self.step(move |rows| match rows.get(key) {
            Some(row) if row.seen() == seen => {
                rows.remove(key);
                Ok(Write::Applied(()))
            }
            row => Ok(Write::Refused(row.cloned())),
        })
    }
}

fn next(key: &LeaseKey, column: &str, number: u64) -> Result<u64, StoreError> {
    next_count(format_args!("the row {key}"), column, number, u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::lease::contract;

    #[tokio::test(flavor = "multi_thread")]
    async fn the_memory_store_keeps_the_contract() {
        contract::run(Arc::new(MemoryLeaseStore::new())).await;
    }

    #[tokio::test]
    async fn clones_share_one_table() {
        let store = MemoryLeaseStore::new();
        let key = LeaseKey { consumer: "default".into(), stream: "orders".into(), shard: "shardId-0".into() };
        let take = Take::new(key, "a");
        store.clone().take(&take).await.unwrap();
        assert_eq!(store.leases("default", "orders").await.unwrap().len(), 1);
        assert!(MemoryLeaseStore::new().leases("default", "orders").await.unwrap().is_empty());
    }

    // E2
    #[tokio::test]
    async fn a_row_at_the_largest_number_refuses_writes_and_does_not_change() {
        let store = MemoryLeaseStore::new();
        let key = LeaseKey::new("default", "orders", "shardId-0");
        for (seen, column) in [(Seen::new(u64::MAX, 1), "epoch"), (Seen::new(1, u64::MAX), "counter")] {
            let row = Lease::new(key.clone(), seen).with_owner(Some("a".into()));
            lock(&store.rows).insert(key.clone(), row.clone());
            let take = Take::new(key.clone(), "b").with_seen(Some(seen));
            let error = store.take(&take).await.unwrap_err().to_string();
            let start =
                format!("the row default/orders/shardId-0: {column} is 18446744073709551615, the largest number");
            assert!(error.starts_with(&start), "{error}");
            let held = Held::new(key.clone(), "a", seen.epoch);
            assert_eq!(store.renew(&held).await.is_err(), column == "counter");
            assert_eq!(store.ask(&key, seen, "b").await.is_err(), column == "counter");
            if column == "counter" {
                assert_eq!(store.leases("default", "orders").await.unwrap(), [row]);
            }
        }
    }

    #[tokio::test]
    async fn a_call_that_is_never_polled_writes_nothing() {
        let store = MemoryLeaseStore::new();
        let key = LeaseKey { consumer: "default".into(), stream: "orders".into(), shard: "shardId-0".into() };
        let take = Take::new(key, "a");
        drop(store.take(&take));
        assert!(store.leases("default", "orders").await.unwrap().is_empty());
    }
}
