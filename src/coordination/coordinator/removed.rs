//! Shards and rows that are no longer part of the stream (H6, H7).

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::Arc,
};

use futures::{StreamExt, stream};
use tokio::time::Instant;

use super::{CALLS_AT_ONCE, Coordinator};
use crate::{coordination::shard_list::Gone, error::KinesisError, lease::Lease, types::id::ShardId};

impl Coordinator {
    /// These shards are no longer part of the stream (H6). What is in the user's hands may be settled for the drain time.
    pub(super) fn leave_gone(&mut self, rows: &[Lease]) {
        let gone = mem::take(&mut self.gone);
        if gone.is_empty() {
            return;
        }
        let by_shard = by_shard(rows);
        for gone in gone {
            let row = by_shard.get(&gone.shard).copied();
            self.leave(gone, row);
        }
    }

    fn leave(&self, Gone { shard: shard_id, was_memory }: Gone, row: Option<&Lease>) {
        let shard = self.shards.get(&shard_id);
        let view = shard.as_ref().map(|shard| shard.view());
        if view.is_some_and(|view| view.is_at_end()) {
            return;
        }
        let is_unread = |row: &Lease| {
            self.is_of_this_stream(row)
                && !row.is_ended()
                && row.owner.as_ref().is_none_or(|owner| *owner == self.context.owner)
        };
        let was_opened = was_memory || view.is_some_and(|view| view.was_opened());
        if was_opened && row.is_some_and(is_unread) {
            let error = KinesisError::ShardGone { stream: Arc::clone(&self.context.stream), shard: shard_id.clone() };
            tracing::warn!(%error, "a shard is gone");
            match &shard {
                Some(shard) => shard.report(error),
                None => self.context.events.error(Some(shard_id), error),
            }
        }
        if let Some(shard) = shard {
            shard.leave(Instant::now() + self.context.settings.drain_timeout);
        }
    }

    /// Removes the rows of ended shards that are gone, once every child has a checkpoint (H6), and those of an older
    /// stream, the shards of which this one does not have.
    pub(super) async fn sweep(&self, rows: &[Lease], now: Instant) {
        let is_over = |row: &&Lease| {
            let shard = &row.key.shard;
            if self.is_of_this_stream(row) {
                row.is_ended() && self.shard_list.is_gone(shard)
            } else {
                self.opening.is_some() && !self.shard_list.has(shard) && self.is_free(Some(row), now)
            }
        };
        let mut over: Vec<&Lease> = rows.iter().filter(is_over).collect();
        if over.is_empty() {
            return;
        }
        let waiting = self.parents_of_unread(rows);
        over.retain(|row| !self.is_of_this_stream(row) || !waiting.contains(&row.key.shard));
        let over = over.into_iter();
        let calls = over.map(|row| self.context.answer(self.context.store.delete(&row.key, row.seen())));
        stream::iter(calls)
            .for_each_concurrent(CALLS_AT_ONCE, |call| async {
                // Whatever came of it, the next listing looks again.
                if let Err(error) = call.await {
                    tracing::debug!(stream = %self.context.stream, %error, "the row of a shard that is gone was not removed");
                }
            })
            .await;
    }

    /// The parents of all shards that are known, listed or not, and have no checkpoint.
    fn parents_of_unread<'a>(&'a self, rows: &'a [Lease]) -> BTreeSet<&'a ShardId> {
        let by_shard = by_shard(rows);
        let is_unread = |child: &ShardId| by_shard.get(child).is_none_or(|row| row.checkpoint.is_none());
        let listed = self.shard_list.shards().map(|shard| (&shard.id, &shard.parents));
        let known = rows.iter().map(|row| (&row.key.shard, &row.parents));
        listed.chain(known).filter(|(child, _)| is_unread(child)).flat_map(|(_, parents)| parents).collect()
    }
}

fn by_shard(rows: &[Lease]) -> BTreeMap<&ShardId, &Lease> {
    rows.iter().map(|row| (&row.key.shard, row)).collect()
}
