//! Spent records, those that have used up their attempts, on their way to the dead-letter stream.
//!
//! Any thread may push a record, without a runtime: dropping a delivery may end up here.

use std::sync::Mutex;

use tokio::sync::{Notify, futures::Notified};

use crate::{
    state::{events::Returned, shard_queue::ShardQueue},
    types::id::ShardId,
    util::mutex::lock,
};

/// See the module. The shards bound it: it never holds more than their unsettled records.
#[derive(Debug, Default)]
pub(crate) struct DeadLetterQueue {
    contents: Mutex<DeadLetterQueueState>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct DeadLetterQueueState {
    /// Ordered by arrival.
    waiting: ShardQueue<u64, Returned>,
    arrivals: u64,
    /// How many records were taken and are not [done](DeadLetterQueue::done).
    taken: usize,
}

impl DeadLetterQueue {
    /// Queues a record and wakes the writer.
    pub(crate) fn push(&self, spent: Returned) {
        self.requeue(spent);
        self.notify.notify_one();
    }

    /// Queues a record at the end and wakes no one: the writer calls this, and it looks at the queue afterwards.
    pub(crate) fn requeue(&self, spent: Returned) {
        let mut contents = lock(&self.contents);
        contents.arrivals += 1;
        let arrival = contents.arrivals;
        contents.waiting.insert(arrival, spent);
    }

    /// Takes the first record. The caller has to call [`done`](Self::done) afterwards.
    pub(crate) fn take(&self) -> Option<Returned> {
        let mut contents = lock(&self.contents);
        let spent = contents.waiting.pop_first()?;
        contents.taken += 1;
        Some(spent)
    }

    /// The outcome of a taken record is known: it is settled, queued here again, in the events, or dropped.
    pub(crate) fn done(&self) {
        let mut contents = lock(&self.contents);
        contents.taken = contents.taken.saturating_sub(1);
    }

    /// Drops queued records of a shard that need no dead letter, because this generation and all before it are over.
    pub(crate) fn forget(&self, shard: &ShardId, generation: u64) {
        let over = lock(&self.contents).waiting.remove(shard, generation);
        // Dropping a record may wake a task, which must not happen under the lock.
        drop(over);
    }

    /// Whether no record is queued.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.contents).waiting.is_empty()
    }

    /// Whether no record is queued or being written, so that nothing more comes from here.
    pub(crate) fn is_idle(&self) -> bool {
        let contents = lock(&self.contents);
        contents.waiting.is_empty() && contents.taken == 0
    }

    /// Notified when a record is pushed.
    pub(crate) fn pushed(&self) -> Notified<'_> {
        self.notify.notified()
    }
}
