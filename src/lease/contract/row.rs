//! One row under test, and the values that the promises use.

use std::sync::Arc;

use crate::{
    config::position::Checkpoint,
    lease::{Held, Lease, LeaseKey, LeaseStore, Seen, Take, Write},
    types::id::ShardId,
};

/// The owners that meet on a row.
pub(super) const ONE: &str = "instance-1";
pub(super) const TWO: &str = "instance-2";

const STREAM: &str = "orders";
const SHARD: &str = "shardId-000000000002";

/// The row that one promise uses. It is absent at first.
pub(super) struct TestRow<'a> {
    pub(super) store: &'a dyn LeaseStore,
    pub(super) key: LeaseKey,
}

impl<'a> TestRow<'a> {
    pub(super) fn new(store: &'a dyn LeaseStore, promise: &str) -> Self {
        let consumer = format!("contract: {promise}").into();
        Self { store, key: LeaseKey { consumer, stream: STREAM.into(), shard: SHARD.into() } }
    }

    /// The row as `leases` shows it.
    pub(super) async fn read(&self) -> Option<Lease> {
        let mut rows = self.store.leases(&self.key.consumer, &self.key.stream).await.expect("the leases are read").rows;
        rows.retain(|row| row.key == self.key);
        assert!(rows.len() <= 1, "one row for each key: {rows:?}");
        rows.pop()
    }

    /// The row, which must exist.
    pub(super) async fn lease(&self) -> Lease {
        self.read().await.expect("there is a row")
    }

    pub(super) async fn seen(&self) -> Option<Seen> {
        self.read().await.as_ref().map(Lease::seen)
    }

    pub(super) async fn take(&self, owner: &str, seen: Option<Seen>) -> Write<Lease> {
        self.store.take(&take(&self.key, owner, seen)).await.expect("the take returns no error")
    }

    /// Makes this owner the holder, whatever the state of the row.
    pub(super) async fn taken(&self, owner: &str) -> Held {
        match self.take(owner, self.seen().await).await {
            Write::Applied(lease) => self.held(owner, lease.epoch),
            Write::Refused(row) => panic!("a take that saw the newest state is applied, not refused with {row:?}"),
        }
    }

    pub(super) fn held(&self, owner: &str, epoch: u64) -> Held {
        Held { key: self.key.clone(), owner: owner.into(), epoch }
    }

    pub(super) async fn renew(&self, held: &Held) -> Write {
        self.store.renew(held).await.expect("the renewal returns no error")
    }

    pub(super) async fn checkpoint(&self, held: &Held, checkpoint: &Checkpoint) -> Write {
        self.store.checkpoint(held, checkpoint).await.expect("the checkpoint returns no error")
    }

    pub(super) async fn release(&self, held: &Held) -> Write {
        self.store.release(held).await.expect("the release returns no error")
    }

    pub(super) async fn ask(&self, seen: Seen, by: &str) -> Write {
        self.store.ask(&self.key, seen, by).await.expect("the ask returns no error")
    }

    pub(super) async fn withdraw_ask(&self, seen: Seen) -> Write {
        self.store.withdraw_ask(&self.key, seen).await.expect("the withdrawal returns no error")
    }

    pub(super) async fn delete(&self, seen: Seen) -> Write {
        self.store.delete(&self.key, seen).await.expect("the delete returns no error")
    }

    /// A renewal, a checkpoint and a release under this owner and epoch are refused, show the row and do not change it.
    pub(super) async fn refuses(&self, held: &Held) {
        let before = self.read().await;
        assert_eq!(self.renew(held).await, Write::Refused(before.clone()), "renew as {held:?}");
        assert_eq!(
            self.checkpoint(held, &after("666")).await,
            Write::Refused(before.clone()),
            "checkpoint as {held:?}"
        );
        assert_eq!(self.release(held).await, Write::Refused(before.clone()), "release as {held:?}");
        assert_eq!(self.read().await, before, "a refused write changes nothing");
    }
}

pub(super) fn take(key: &LeaseKey, owner: &str, seen: Option<Seen>) -> Take {
    Take {
        key: key.clone(),
        owner: owner.into(),
        seen,
        parents: parents(),
        stream_created: Some(CREATED),
        forget_checkpoint: false,
        since: None,
    }
}

/// The row after its first take.
pub(super) fn first(key: &LeaseKey, owner: &str) -> Lease {
    Lease {
        key: key.clone(),
        owner: Some(Arc::from(owner)),
        epoch: 1,
        counter: 1,
        checkpoint: None,
        parents: parents(),
        stream_created: Some(CREATED),
        wanted_by: None,
        is_foreign: false,
    }
}

pub(super) fn after(number: &str) -> Checkpoint {
    Checkpoint::After(number.into())
}

const CREATED: i64 = 1_700_000_000_123;

fn parents() -> Vec<ShardId> {
    vec!["shardId-000000000000".into(), "shardId-000000000001".into()]
}
