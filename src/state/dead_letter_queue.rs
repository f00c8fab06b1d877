//! Records whose attempts are spent, on their way to the dead-letter stream.
//!
//! Leaving one here can be done from any thread, without a runtime: dropping a delivery may end up here.

use std::{collections::VecDeque, sync::Mutex};

use tokio::sync::{Notify, futures::Notified};

use crate::{state::events::Returned, util::mutex::lock};

/// See the module. It holds no more than the shards have unsettled records.
#[derive(Debug, Default)]
pub(crate) struct DeadLetterQueue {
    contents: Mutex<DeadLetterQueueState>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct DeadLetterQueueState {
    waiting: VecDeque<Returned>,
    /// So many were taken, and what came of them is not entered yet.
    taken: usize,
}

impl DeadLetterQueue {
    /// Leaves a record to be written.
    pub(crate) fn push(&self, spent: Returned) {
        self.keep(spent);
        self.notify.notify_one();
    }

    /// Leaves a record as the last one, without a word: whoever writes looks by itself.
    pub(crate) fn keep(&self, spent: Returned) {
        lock(&self.contents).waiting.push_back(spent);
    }

    /// Takes the first record. To be followed by [`done`](Self::done).
    pub(crate) fn take(&self) -> Option<Returned> {
        let mut contents = lock(&self.contents);
        let spent = contents.waiting.pop_front()?;
        contents.taken += 1;
        Some(spent)
    }

    /// One that was taken is where it belongs: settled, in here again, in the inbox, or nowhere any more.
    pub(crate) fn done(&self) {
        let mut contents = lock(&self.contents);
        contents.taken = contents.taken.saturating_sub(1);
    }

    /// Drops what waits in here and need not be written any more, since the opening of its shard is over.
    pub(crate) fn forget(&self, is_over: impl Fn(&Returned) -> bool) {
        let mut contents = lock(&self.contents);
        let (over, waiting): (VecDeque<_>, _) = contents.waiting.drain(..).partition(is_over);
        contents.waiting = waiting;
        // What is dropped may wake somebody, which is not to happen under the lock.
        drop(contents);
        drop(over);
    }

    /// Whether nothing waits to be written.
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.contents).waiting.is_empty()
    }

    /// Whether nothing waits or is being written, so that nothing comes from here.
    pub(crate) fn is_idle(&self) -> bool {
        let contents = lock(&self.contents);
        contents.waiting.is_empty() && contents.taken == 0
    }

    /// Told when a record was pushed.
    pub(crate) fn filled(&self) -> Notified<'_> {
        self.notify.notified()
    }
}
