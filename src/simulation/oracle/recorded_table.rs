//! A lease table that reports every applied write to the oracle.

use std::sync::{Arc, Mutex};

use futures::FutureExt;

use super::Oracle;

use crate::{
    config::position::Checkpoint,
    lease::{Held, Lease, LeaseKey, LeaseStore, Leases, MemoryLeaseStore, Seen, StoreFuture, Take, Write},
    util::mutex::lock,
};

/// A lease table that reports every applied write to the oracle.
#[derive(Debug)]
pub(crate) struct RecordedTable {
    rows: MemoryLeaseStore,
    oracle: Arc<Mutex<Oracle>>,
}

impl RecordedTable {
    pub(crate) fn new(oracle: &Arc<Mutex<Oracle>>) -> Self {
        Self { rows: MemoryLeaseStore::new(), oracle: Arc::clone(oracle) }
    }

    /// How many records of a shard are settled under this lease.
    pub(crate) fn settled(&self, held: &Held) -> usize {
        lock(&self.oracle).settled_upto(held)
    }

    /// Releases a lease. `settled` is how many records were settled when the call was sent.
    pub(crate) fn release_with<'a>(&'a self, held: &'a Held, settled: usize) -> StoreFuture<'a, Write> {
        self.show(self.rows.release(held), move |oracle, ()| oracle.released(held, settled))
    }

    fn show<'a, T: Send + 'a>(
        &'a self,
        write: StoreFuture<'a, Write<T>>,
        show: impl FnOnce(&mut Oracle, &T) + Send + 'a,
    ) -> StoreFuture<'a, Write<T>> {
        async move {
            let answer = write.await;
            if let Ok(Write::Applied(applied)) = &answer {
                show(&mut lock(&self.oracle), applied);
            }
            answer
        }
        .boxed()
    }
}

impl LeaseStore for RecordedTable {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Leases> {
        self.rows.leases(consumer, stream)
    }

    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
        self.show(self.rows.take(take), Oracle::taken)
    }

    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.show(self.rows.renew(held), move |oracle, ()| {
            oracle.holds(held);
        })
    }

    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
        self.show(self.rows.checkpoint(held, checkpoint), move |oracle, ()| oracle.stored(held, checkpoint))
    }

    fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.release_with(held, self.settled(held))
    }

    fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write> {
        self.show(self.rows.ask(key, seen, by), move |oracle, ()| oracle.asked(key, by))
    }

    fn withdraw_ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        self.show(self.rows.withdraw_ask(key, seen), move |oracle, ()| oracle.ask_withdrawn(key))
    }

    fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        self.show(self.rows.delete(key, seen), move |oracle, ()| oracle.removed(key))
    }
}
