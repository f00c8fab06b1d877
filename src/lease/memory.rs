//! Leases in the memory of this process: the shortest store, and the one that tests use.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use crate::{
    config::position::Checkpoint,
    lease::{Held, Lease, LeaseKey, LeaseStore, Seen, StoreFuture, Take, Write},
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
/// assert_eq!(store.leases("default", "orders").await?, []);
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
    fn step<'a, T>(&'a self, step: impl FnOnce(&mut LeaseMap) -> T + Send + 'a) -> StoreFuture<'a, T> {
        Box::pin(async move { Ok(step(&mut lock(&self.rows))) })
    }

    /// Sets which instance wants the row and increases the counter, or refuses.
    fn mark<'a>(&'a self, key: &'a LeaseKey, seen: Seen, wanted_by: Option<&'a str>) -> StoreFuture<'a, Write> {
        self.step(move |rows| match rows.get_mut(key) {
            Some(row) if row.seen() == seen => {
                row.wanted_by = wanted_by.map(Into::into);
                row.counter += 1;
                Write::Applied(())
            }
            row => Write::Refused(row.cloned()),
        })
    }

    /// Changes a row for its holder and increases the counter, or refuses.
    fn write<'a>(&'a self, held: &'a Held, change: impl FnOnce(&mut Lease) + Send + 'a) -> StoreFuture<'a, Write> {
        self.step(move |rows| match rows.get_mut(&held.key) {
            Some(row) if row.owner.as_ref() == Some(&held.owner) && row.epoch == held.epoch => {
                change(row);
                row.counter += 1;
                Write::Applied(())
            }
            row => Write::Refused(row.cloned()),
        })
    }
}

impl LeaseStore for MemoryLeaseStore {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Vec<Lease>> {
        self.step(move |rows| {
            let belongs = |key: &LeaseKey| *key.consumer == *consumer && *key.stream == *stream;
            rows.values().filter(|row| belongs(&row.key)).cloned().collect()
        })
    }

    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
        self.step(move |rows| {
            let row = rows.get(&take.key);
            if row.map(Lease::seen) != take.seen {
                return Write::Refused(row.cloned());
            }
            let taken = Lease {
                key: take.key.clone(),
                owner: Some(Arc::clone(&take.owner)),
                epoch: row.map_or(1, |row| row.epoch + 1),
                counter: row.map_or(1, |row| row.counter + 1),
                checkpoint: row.filter(|_| !take.forget_checkpoint).and_then(|row| row.checkpoint.clone()),
                parents: take.parents.clone(),
                stream_created: take.stream_created,
                wanted_by: None,
                ttl: take.ttl,
            };
            rows.insert(take.key.clone(), taken.clone());
            Write::Applied(taken)
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
                Write::Applied(())
            }
            row => Write::Refused(row.cloned()),
        })
    }
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
        let take = Take {
            key,
            owner: "a".into(),
            ttl: None,
            seen: None,
            parents: Vec::new(),
            stream_created: None,
            forget_checkpoint: false,
        };
        store.clone().take(&take).await.unwrap();
        assert_eq!(store.leases("default", "orders").await.unwrap().len(), 1);
        assert!(MemoryLeaseStore::new().leases("default", "orders").await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_call_that_is_never_polled_writes_nothing() {
        let store = MemoryLeaseStore::new();
        let key = LeaseKey { consumer: "default".into(), stream: "orders".into(), shard: "shardId-0".into() };
        let take = Take {
            key,
            owner: "a".into(),
            ttl: None,
            seen: None,
            parents: Vec::new(),
            stream_created: None,
            forget_checkpoint: false,
        };
        drop(store.take(&take));
        assert!(store.leases("default", "orders").await.unwrap().is_empty());
    }
}
