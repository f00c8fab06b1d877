//! How the other tasks wake the renewer and the coordinator. Needs no runtime and never blocks.

use std::{
    collections::BTreeSet,
    mem,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::sync::{Notify, futures::Notified};

use crate::{types::id::ShardId, util::mutex::lock};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    /// Shards with a store call that is due.
    shards: Mutex<BTreeSet<ShardId>>,
    renewer: Notify,
    list: Notify,
    pass: Notify,
    check_stream: AtomicBool,
    shard_ended: AtomicBool,
}

impl Wakeups {
    /// Wakes the renewer: a store call for this shard is due.
    pub(crate) fn wake_renewer(&self, shard: &ShardId) {
        if lock(&self.shards).insert(shard.clone()) {
            self.renewer.notify_one();
        }
    }

    /// Waits until shards have a store call that is due, and takes them all.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it takes the shards only when the future is ready.
    pub(crate) async fn due_shards(&self) -> BTreeSet<ShardId> {
        loop {
            let shards = mem::take(&mut *lock(&self.shards));
            if !shards.is_empty() {
                return shards;
            }
            self.renewer.notified().await;
        }
    }

    /// Wakes the coordinator to list the shards at once: a shard has ended, so its children may start.
    pub(crate) fn shard_ended(&self) {
        self.shard_ended.store(true, Ordering::Relaxed);
        self.list_now();
    }

    /// Whether a shard has ended since the last call.
    pub(crate) fn take_shard_ended(&self) -> bool {
        self.shard_ended.swap(false, Ordering::Relaxed)
    }

    /// Wakes the coordinator to list the shards at once, for example because a shard has been removed.
    pub(crate) fn list_now(&self) {
        self.list.notify_one();
    }

    /// Notified by [`list_now`](Self::list_now).
    pub(crate) fn list_wanted(&self) -> Notified<'_> {
        self.list.notified()
    }

    /// Wakes the coordinator to make a pass without listing.
    pub(crate) fn pass_now(&self) {
        self.pass.notify_one();
    }

    /// Notified by [`pass_now`](Self::pass_now).
    pub(crate) fn pass_wanted(&self) -> Notified<'_> {
        self.pass.notified()
    }

    /// Makes the next listing check whether the stream is still the same one, because the service rejected a call in a
    /// way that makes this doubtful.
    pub(crate) fn check_stream(&self) {
        self.check_stream.store(true, Ordering::Relaxed);
    }

    /// As [`check_stream`](Self::check_stream), and lists at once.
    pub(crate) fn check_stream_now(&self) {
        self.check_stream();
        self.list_now();
    }

    /// Whether a check of the stream was asked for since the last call.
    pub(crate) fn take_stream_check(&self) -> bool {
        self.check_stream.swap(false, Ordering::Relaxed)
    }
}
