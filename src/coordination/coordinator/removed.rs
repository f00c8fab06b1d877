//! Shards and rows that no longer belong to the stream (H6, H7).
//!
//! **How the library recognises another stream under the same name.** Each lease row carries the stream's creation
//! time. If it differs by more than its precision, the instance takes the row and discards its checkpoint. A call that
//! is refused in a way that a recreated stream would explain makes the coordinator check.
//!
//! **When a row is deleted.** The row of an ended shard is deleted only once the shard is gone (two complete listings
//! at least 10 s apart lack it, or the service says so) and each of its children has a checkpoint.

use std::{collections::BTreeSet, mem, sync::Arc};

use futures::{StreamExt, stream};
use tokio::time::Instant;

use super::{CALLS_AT_ONCE, Coordinator, pass::Pass};
use crate::{
    coordination::shard_list::RemovedShard,
    error::{KinesisError, chain::Chain},
    lease::Lease,
    types::id::ShardId,
};

/// How far apart two creation times of one stream may be if one of them is in whole seconds, cut or rounded.
const SECONDS_WITHIN_MILLIS: u64 = 2_000;

/// How far apart two creation times in milliseconds may be, which travel as floating-point numbers.
const MILLIS_WITHIN: u64 = 1;

/// Whether these are creation times of one stream: servers and their versions tell it in seconds or in milliseconds. An
/// unknown one says nothing.
pub(super) fn is_same_stream(one: Option<i64>, other: Option<i64>) -> bool {
    let Some((one, other)) = one.zip(other) else { return true };
    let in_seconds = one % 1_000 == 0 || other % 1_000 == 0;
    one.abs_diff(other) <= if in_seconds { SECONDS_WITHIN_MILLIS } else { MILLIS_WITHIN }
}

impl Coordinator {
    /// Stops reading the shards that were removed from the stream (H6). Open deliveries may be settled for the drain
    /// time.
    pub(super) fn leave_removed(&mut self, pass: &Pass<'_>) {
        for removed in mem::take(&mut self.removed) {
            let row = pass.row(&removed.shard);
            self.leave(removed, row);
        }
    }

    fn leave(&self, RemovedShard { shard: shard_id, was_inferred }: RemovedShard, row: Option<&Lease>) {
        let shard = self.shards.get(&shard_id);
        if shard.as_ref().is_some_and(|shard| shard.view().is_at_end()) {
            return;
        }
        let is_unread = |row: &Lease| {
            self.is_of_this_stream(row)
                && !row.is_ended()
                && row.owner.as_ref().is_none_or(|owner| *owner == self.context.owner)
        };
        let was_opened = was_inferred || shard.as_ref().is_some_and(|shard| shard.view().was_opened());
        if was_opened && row.is_some_and(is_unread) {
            let error = KinesisError::ShardGone { stream: Arc::clone(&self.context.stream), shard: shard_id.clone() };
            tracing::error!(error = %Chain(&error), "a shard is gone");
            match &shard {
                Some(shard) => shard.report(error),
                None => self.context.report(Some(shard_id), error),
            }
        }
        if let Some(shard) = shard {
            shard.leave(Instant::now() + self.context.settings.drain_timeout);
        }
    }

    /// Deletes the rows of ended shards that were removed from the stream, once every child has a checkpoint (H6). Also
    /// deletes the rows of an older stream whose shards this stream does not have.
    ///
    /// While a row is unreadable, nothing is deleted: its shard may be the child that still depends on another row.
    pub(super) async fn delete_stale_rows(&self, pass: &Pass<'_>) {
        if !pass.leases.unreadable.is_empty() {
            return;
        }
        let is_stale = |row: &&Lease| {
            let shard = &row.key.shard;
            if self.is_of_this_stream(row) {
                row.is_ended() && self.shard_list.is_removed(shard)
            } else {
                self.phase.opening().is_some() && !self.shard_list.has(shard) && self.is_free(Some(row), pass.now)
            }
        };
        let mut stale: Vec<&Lease> = pass.rows.iter().filter(is_stale).collect();
        if stale.is_empty() {
            return;
        }
        let waiting = self.parents_of_unread(pass);
        stale.retain(|row| !self.is_of_this_stream(row) || !waiting.contains(&row.key.shard));
        let stale = stale.into_iter();
        let calls = stale.map(|row| self.context.answer("delete", self.context.store.delete(&row.key, row.seen())));
        stream::iter(calls)
            .for_each_concurrent(CALLS_AT_ONCE, |call| async {
                // If it failed, the pass after the next listing tries again.
                if let Err(error) = call.await {
                    tracing::debug!(error = %Chain(&error), "the row of a removed shard was not deleted");
                }
            })
            .await;
    }

    /// Forgets the shards that left the stream and have no row any more. Every round walks all known shards, and a
    /// stream that is often resharded would leave ever more of them.
    pub(super) fn forget_removed(&mut self, pass: &Pass<'_>) {
        let has_row: BTreeSet<&ShardId> = pass.rows.iter().map(|row| &row.key.shard).chain(pass.unreadable()).collect();
        for shard in self.shards.all() {
            let id = &shard.id;
            if self.shard_list.is_removed(id) && !has_row.contains(id) && !shard.view().is_held() {
                self.shards.forget(id);
                self.ownership.forget(id);
            }
        }
    }

    /// The parents of all known shards, listed or not, that have no checkpoint.
    fn parents_of_unread<'a>(&'a self, pass: &Pass<'a>) -> BTreeSet<&'a ShardId> {
        let is_unread = |child: &ShardId| pass.row(child).is_none_or(|row| row.checkpoint.is_none());
        let listed = self.shard_list.shards().map(|shard| (&shard.id, &shard.parents));
        let known = pass.rows.iter().map(|row| (&row.key.shard, &row.parents));
        listed.chain(known).filter(|(child, _)| is_unread(child)).flat_map(|(_, parents)| parents).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // H7
    #[test]
    fn a_creation_time_in_another_precision_is_of_the_same_stream() {
        let created = 1_700_000_000_123;
        for (other, is_same) in [
            (created, true),
            (created + 1, true),
            (1_700_000_000_000, true),
            (1_700_000_001_000, true),
            (1_700_000_002_000, true),
            (1_699_999_999_000, true),
            (1_700_000_003_000, false),
            (1_699_999_998_000, false),
            // Both are in milliseconds, so the stream was recreated quickly.
            (created + 200, false),
            (created - 2, false),
            (i64::MIN, false),
        ] {
            assert_eq!(is_same_stream(Some(created), Some(other)), is_same, "{other}");
            assert_eq!(is_same_stream(Some(other), Some(created)), is_same, "{other}");
        }
        assert!(
            is_same_stream(None, Some(created)) && is_same_stream(Some(created), None) && is_same_stream(None, None)
        );
    }
}
