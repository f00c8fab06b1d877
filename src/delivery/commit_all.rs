//! Settling many deliveries at once: one step in the books of each shard, and at most one write.

use std::{collections::BTreeMap, sync::Arc};

use futures::future::try_join_all;

use super::Acker;
use crate::{
    error::KinesisError,
    state::{
        shard::{Committing, Shard},
        tracker::Ticket,
    },
    types::commit::Commit,
};

/// Settles any number of deliveries, of any shards, with one checkpoint write for each shard, and waits for them all.
///
/// Gives the least of what single commits would have given: [`Commit::Stored`] only if every record is covered by a
/// stored checkpoint, [`Commit::Superseded`] if any of them was superseded. No deliveries are all stored.
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
/// As [`Delivery::commit`](crate::Delivery::commit), for the first shard whose write keeps failing.
///
/// # Cancel safety
///
/// Once it was polled all are settled, as with [`Delivery::commit`](crate::Delivery::commit).
pub async fn commit_all<D: Into<Acker>>(deliveries: impl IntoIterator<Item = D>) -> Result<Commit, KinesisError> {
    let committing = settle(deliveries, |shard, tickets| {
        let committing = shard.commit(tickets);
        (shard, committing)
    });
    let outcome = |(shard, committing): (Arc<Shard>, Committing)| async move { committing.outcome(&shard).await };
    let commits = try_join_all(committing.into_iter().map(outcome)).await?;
    Ok(commits.into_iter().max().unwrap_or(Commit::Stored))
}

/// Settles any number of deliveries without waiting.
pub(crate) fn ack_all<D: Into<Acker>>(deliveries: impl IntoIterator<Item = D>) {
    settle(deliveries, |shard, tickets| shard.ack(tickets));
}

/// Settles deliveries, those of each shard in one go and the shards in the order of their first.
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

/// The tickets of each shard. Deliveries come in runs of one shard, so it is looked for only where a run ends.
fn by_shard(ackers: &[Acker]) -> Vec<(Arc<Shard>, Vec<Ticket>)> {
    let mut shards: Vec<(Arc<Shard>, Vec<Ticket>)> = Vec::new();
    let mut places: BTreeMap<usize, usize> = BTreeMap::new();
    for run in ackers.chunk_by(|one, next| Arc::ptr_eq(&one.open.shard, &next.open.shard)) {
        let Some(first) = run.first() else { continue };
        let shard = &first.open.shard;
        let place = *places.entry(Arc::as_ptr(shard).addr()).or_insert(shards.len());
        if place == shards.len() {
            shards.push((Arc::clone(shard), Vec::with_capacity(run.len())));
        }
        shards[place].1.extend(run.iter().map(|acker| acker.open.ticket));
    }
    shards
}
