//! Settles many deliveries at once: one lock and at most one checkpoint write per shard.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::try_join_all;

use crate::{
    delivery::acker::Acker,
    error::KinesisError,
    state::{
        shard::{PendingCommit, Shard},
        tracker::Ticket,
    },
    types::commit::Commit,
};

/// Settles deliveries of any shards, with one checkpoint write per shard, and waits for all writes.
///
/// Returns the weakest result of the single commits: [`Commit::Stored`] only if stored checkpoints cover every record,
/// [`Commit::Superseded`] if any record was superseded. For no deliveries it returns [`Commit::Stored`].
/// [`Batch::commit`](crate::Batch::commit) does the same.
///
/// ```
/// # use kinesis_stream::{Commit, Delivery, KinesisError, commit_all};
/// # async fn insert(rows: &[&[u8]]) {}
/// async fn store(deliveries: Vec<Delivery>) -> Result<(), KinesisError> {
///     let rows: Vec<&[u8]> = deliveries.iter().map(|delivery| delivery.payload().as_ref()).collect();
///     insert(&rows).await;
///     commit_all(deliveries).await?;
///     Ok(())
/// }
/// ```
///
/// # Errors
///
/// The error of [`Delivery::commit`](crate::Delivery::commit), for the first shard whose write keeps failing.
///
/// # Cancel safety
///
/// The first poll settles all deliveries, as with [`Delivery::commit`](crate::Delivery::commit).
pub async fn commit_all<D: Into<Acker>>(deliveries: impl IntoIterator<Item = D>) -> Result<Commit, KinesisError> {
    let pending = settle(deliveries, |shard, tickets| {
        let pending = shard.commit(tickets);
        (shard, pending)
    });
    let outcome = |(shard, pending): (Arc<Shard>, PendingCommit)| async move { pending.outcome(&shard).await };
    let commits = try_join_all(pending.into_iter().map(outcome)).await?;
    Ok(commits.into_iter().max().unwrap_or(Commit::Stored))
}

/// Settles deliveries of any shards without waiting.
pub(crate) fn ack_all<D: Into<Acker>>(deliveries: impl IntoIterator<Item = D>) {
    settle(deliveries, |shard, tickets| shard.ack(tickets));
}

/// Settles deliveries shard by shard, in the order of the first delivery of each shard.
fn settle<D: Into<Acker>, T>(
    deliveries: impl IntoIterator<Item = D>,
    settle: impl Fn(Arc<Shard>, &[Ticket]) -> T,
) -> Vec<T> {
    let mut ackers: Vec<Acker> = deliveries.into_iter().map(Into::into).collect();
    let shards = by_shard(&ackers);
    let settled = shards.into_iter().map(|(shard, tickets)| settle(shard, &tickets)).collect();
    ackers.iter_mut().for_each(Acker::note_settled);
    settled
}

/// The tickets of each shard. Deliveries come in runs of one shard, so a shard is looked up once per run.
fn by_shard(ackers: &[Acker]) -> Vec<(Arc<Shard>, Vec<Ticket>)> {
    let mut shards: Vec<(Arc<Shard>, Vec<Ticket>)> = Vec::new();
    let mut places: BTreeMap<usize, usize> = BTreeMap::new();
    for run in ackers.chunk_by(|one, next| Arc::ptr_eq(&one.delivered.shard, &next.delivered.shard)) {
        let Some(first) = run.first() else { continue };
        let shard = &first.delivered.shard;
        let place = *places.entry(Arc::as_ptr(shard).addr()).or_insert(shards.len());
        if place == shards.len() {
            shards.push((Arc::clone(shard), Vec::with_capacity(run.len())));
        }
        shards[place].1.extend(run.iter().map(|acker| acker.delivered.ticket));
    }
    shards
}
