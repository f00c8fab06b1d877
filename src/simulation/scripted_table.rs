//! The lease table as one instance sees it.

use std::sync::Arc;

use futures::FutureExt;

use super::script::{Fault, Rule, Script};
use crate::{
    config::position::Checkpoint,
    error::service::StoreError,
    lease::{Held, Lease, LeaseKey, LeaseStore, Leases, Seen, StoreFuture, Take, Write},
    types::id::ShardId,
};

/// The kinds of calls on a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableOp {
    Leases,
    Take,
    Renew,
    Checkpoint,
    Release,
    Want,
    Withdraw,
    Delete,
}

/// The lease table behind a script of faults.
#[derive(Debug)]
pub(crate) struct ScriptedTable {
    rows: Arc<dyn LeaseStore>,
    pub(crate) script: Script<TableOp, StoreError>,
}

impl ScriptedTable {
    pub(crate) fn new(rows: &Arc<dyn LeaseStore>) -> Self {
        Self { rows: Arc::clone(rows), script: Script::new() }
    }

    /// Makes these calls fail without effect.
    pub(crate) fn fail(&self, rule: Rule<TableOp>) {
        self.script.plan(rule, Fault::Fail(StoreError::new("scripted")));
    }

    /// The checkpoints that were sent for a shard.
    pub(crate) fn checkpoints(&self, shard: &str) -> Vec<String> {
        let of = Some(ShardId::from(shard));
        let calls = self.script.calls(TableOp::Checkpoint).into_iter();
        calls.filter(|call| call.shard == of).map(|call| call.what).collect()
    }

    /// The calls on one lease in order, without renewals.
    pub(crate) fn log(&self, shard: &str) -> Vec<String> {
        let log = self.script.of(shard).into_iter().filter(|call| call.op != TableOp::Renew);
        log.map(|call| format!("{:?} {}", call.op, call.what).trim_end().to_owned()).collect()
    }

    fn call<'a, T: Send + 'a>(
        &'a self,
        (op, shard, what): (TableOp, Option<&ShardId>, String),
        answer: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        let shard = shard.cloned();
        async move { self.script.play((op, shard, what), answer).await }.boxed()
    }
}

impl LeaseStore for ScriptedTable {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Leases> {
        self.call((TableOp::Leases, None, String::new()), self.rows.leases(consumer, stream))
    }

    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
        self.call((TableOp::Take, Some(&take.key.shard), take.owner.to_string()), self.rows.take(take))
    }

    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.call((TableOp::Renew, Some(&held.key.shard), String::new()), self.rows.renew(held))
    }

    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
        let answer = self.rows.checkpoint(held, checkpoint);
        self.call((TableOp::Checkpoint, Some(&held.key.shard), checkpoint.to_string()), answer)
    }

    fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.call((TableOp::Release, Some(&held.key.shard), String::new()), self.rows.release(held))
    }

    fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write> {
        self.call((TableOp::Want, Some(&key.shard), by.to_owned()), self.rows.ask(key, seen, by))
    }

    fn withdraw_ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        self.call((TableOp::Withdraw, Some(&key.shard), String::new()), self.rows.withdraw_ask(key, seen))
    }

    fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        self.call((TableOp::Delete, Some(&key.shard), String::new()), self.rows.delete(key, seen))
    }
}
