//! A store whose calls fail or hang.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use futures::{FutureExt, future};
use kinesis_stream::{
    Checkpoint, Held, Lease, LeaseKey, LeaseStore, MemoryLeaseStore, Seen, StoreError, StoreFuture, Take, Write,
};

/// The outcome of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum CallOutcome {
    Passes,
    Fails,
    Hangs,
}

type Decide = dyn Fn(&str, &str) -> CallOutcome + Send + Sync;

/// A store that logs its calls, and fails some of them.
#[derive(Clone)]
pub(crate) struct FaultyStore {
    pub(crate) store: MemoryLeaseStore,
    log: Arc<Mutex<Vec<String>>>,
    decide: Arc<Mutex<Box<Decide>>>,
}

impl FaultyStore {
    pub(crate) fn new() -> Self {
        let passes: Box<Decide> = Box::new(|_, _| CallOutcome::Passes);
        Self { store: MemoryLeaseStore::new(), log: Arc::default(), decide: Arc::new(Mutex::new(passes)) }
    }

    /// From now on, `decide` chooses the outcome of each call by method name and shard.
    pub(crate) fn decide(&self, decide: impl Fn(&str, &str) -> CallOutcome + Send + Sync + 'static) {
        *self.decide.lock().unwrap() = Box::new(decide);
    }

    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    fn meets<'a, T: Send + 'a>(
        &'a self,
        method: &'static str,
        shard: &str,
        call: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        match (self.decide.lock().unwrap())(method, shard) {
            CallOutcome::Passes => {
                self.log.lock().unwrap().push(method.to_owned());
                call
            }
            CallOutcome::Fails => future::err(StoreError::new("the table is too busy")).boxed(),
            CallOutcome::Hangs => future::pending().boxed(),
        }
    }
}

impl fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultyStore")
    }
}

impl LeaseStore for FaultyStore {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Vec<Lease>> {
        self.meets("leases", "", self.store.leases(consumer, stream))
    }

    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
        self.meets("take", take.key.shard.as_str(), self.store.take(take))
    }

    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.meets("renew", held.key.shard.as_str(), self.store.renew(held))
    }

    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
        self.meets("checkpoint", held.key.shard.as_str(), self.store.checkpoint(held, checkpoint))
    }

    fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.meets("release", held.key.shard.as_str(), self.store.release(held))
    }

    fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write> {
        self.meets("ask", key.shard.as_str(), self.store.ask(key, seen, by))
    }

    fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        self.meets("delete", key.shard.as_str(), self.store.delete(key, seen))
    }
}
