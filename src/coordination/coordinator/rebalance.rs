//! Requesting leases from other instances, and handing over the shards that they requested (E5).
//!
//! **An instance asks only for shards that it would take at once** if the owner released them. A shard that it has not
//! listed, or does not consider ready, counts for its owner and stays there. Otherwise an instance that cannot list its
//! shards would have shards handed over to it and would leave them unread.
//!
//! **A shard moves only when its owner releases it.** The owner stops reading, waits for the deliveries in flight (at
//! most `drain_timeout`), stores the checkpoint and releases the lease. Records settled by then are not redelivered.
//!
//! **The row says where to continue, even if nothing was delivered yet** (`Checkpoint::Since`). For the next owner,
//! LATEST would be a different place.
//!
//! **If the owner is dead, its lease expires as it would without the request.** The request moves the row's counter
//! once, and `expiry` does not take that for a sign of life. If the owner lives and ignores the request, the request
//! expires after `drain_timeout` plus a time to live, and the instance asks for another shard.
//!
//! **All ways to leave a shard are the same steps.** A reader that gives up, a hand-over, closing and a drop all stop
//! reading, leave the deliveries in flight valid up to a deadline, flush the rest and release the lease. They differ in
//! the deadline only.

use std::{collections::BTreeSet, sync::atomic::Ordering};

use futures::{StreamExt, stream};
use tokio::time::{Duration, Instant};

use super::{CALLS_AT_ONCE, Coordinator, pass::Pass};
use crate::{
    coordination::balance::{HandOverRequest, HeldShard, shards_to_request},
    error::chain::Chain,
    lease::{Lease, Write},
    types::id::ShardId,
    util::cut::cut,
};

/// How often a request is taken back whose row changes meanwhile. Its owner writes once per renewal or checkpoint.
const WITHDRAWALS: u32 = 3;

impl Coordinator {
    /// Begins to hand over every shard that another instance requested.
    pub(super) fn hand_over(&self, pass: &Pass<'_>) {
        let until = pass.now + self.context.settings.drain_timeout;
        for row in pass.rows.iter().filter(|row| row.owner.as_ref() == Some(&self.context.owner)) {
            let Some(requester) = row.wanted_by.as_ref().filter(|requester| **requester != self.context.owner) else {
                continue;
            };
            let Some(shard) = self.shards.get(&row.key.shard) else { continue };
            if shard.hand_over(row.epoch, until) {
                self.context.gauges.handed_over.fetch_add(1, Ordering::Relaxed);
                let (shard_id, epoch) = (&row.key.shard, row.epoch);
                tracing::info!(
                    shard = %shard_id, epoch, requester = %cut(requester), "handing the shard over to the instance that requested it"
                );
            }
        }
    }

    /// Requests the leases that this instance needs for the fleet to be even. Returns whether there were any.
    pub(super) async fn ask(&self, pass: &Pass<'_>, would_take: &BTreeSet<ShardId>) -> bool {
        let context = &self.context;
        if self.holds_back(pass).is_some() {
            return false;
        }
        let held: Vec<HeldShard<'_>> =
            pass.rows.iter().filter_map(|row| self.held_shard(row, would_take, pass.now)).collect();
        // Of this instance's own leases, `held` contains only those that others requested. Some may have been released
        // since the rows were read.
        let mine = held.iter().filter(|held| *held.owner == *context.owner);
        let given: BTreeSet<&ShardId> = mine.map(|held| held.shard).collect();
        let shards = self.shards.all();
        let own = shards.iter().filter(|shard| shard.view().is_share() && !given.contains(&shard.id)).count();
        let wanted: BTreeSet<&ShardId> =
            shards_to_request(&context.owner, own, context.settings.max_leases, &held).into_iter().collect();
        let asks = !wanted.is_empty();
        let asked = pass.rows.iter().filter(|row| wanted.contains(&row.key.shard));
        let calls = asked.map(|row| async move {
            let shard_id = &row.key.shard;
            match context.answer("ask", context.store.ask(&row.key, row.seen(), &context.owner)).await {
                Ok(Write::Applied(())) => {
                    tracing::info!(shard = %shard_id, owner = row.owner.as_deref().map(cut).as_deref(), "requested the shard");
                }
                // The next pass requests it again if the fleet is still uneven.
                Ok(Write::Refused(_)) => {
                    tracing::debug!(shard = %shard_id, "the row changed, so the shard was not requested");
                }
                Err(error) => {
                    tracing::debug!(shard = %shard_id, error = %Chain(&error), "the request for the shard failed");
                }
            }
        });
        stream::iter(calls).for_each_concurrent(CALLS_AT_ONCE, |call| call).await;
        asks
    }

    /// Takes back what this instance asked for and did not get, because it closes. A shard that its owner releases from
    /// now on is free for all at once.
    pub(super) async fn withdraw_asks(&self) {
        let context = &self.context;
        if !self.asked && self.requests.is_empty() {
            return;
        }
        let rows =
            match context.answer("read_leases", context.store.read_leases(&context.consumer, &context.stream)).await {
                Ok(leases) => leases.rows,
                Err(error) => {
                    return tracing::debug!(error = %Chain(&error), "the requests for shards were not taken back");
                }
            };
        let asked = rows.into_iter().filter(|row| row.wanted_by.as_ref() == Some(&context.owner));
        stream::iter(asked).for_each_concurrent(CALLS_AT_ONCE, |row| self.withdraw_ask(row)).await;
    }

    async fn withdraw_ask(&self, mut row: Lease) {
        let context = &self.context;
        for _ in 0..WITHDRAWALS {
            match context.answer("withdraw_ask", context.store.withdraw_ask(&row.key, row.seen())).await {
                // The owner wrote meanwhile.
                Ok(Write::Refused(Some(newer))) if newer.wanted_by == row.wanted_by => row = newer,
                Ok(Write::Applied(()) | Write::Refused(_)) => return,
                Err(error) => {
                    let shard_id = &row.key.shard;
                    return tracing::debug!(
                        shard = %shard_id, error = %Chain(&error), "the request for the shard was not taken back"
                    );
                }
            }
        }
    }

    /// Who holds the shard of a row, or is about to. For this instance's own shards, the row counts only if another
    /// instance requested the shard: the instance knows the others better from its own state.
    fn held_shard<'a>(&self, row: &'a Lease, would_take: &BTreeSet<ShardId>, now: Instant) -> Option<HeldShard<'a>> {
        let settings = &self.context.settings;
        let (shard, me) = (&row.key.shard, &*self.context.owner);
        if row.is_ended() || !self.is_of_this_stream(row) || self.expiry.is_expired(shard, settings.lease_ttl, now) {
            return None;
        }
        let patience = self.patience();
        match (row.owner.as_deref(), row.wanted_by.as_deref()) {
            (Some(owner), Some(requester)) if requester == me && self.requests.is_overdue(shard, patience, now) => {
                Some(HeldShard { shard, owner, request: HandOverRequest::Unmovable })
            }
            (Some(owner), Some(requester)) => Some(HeldShard { shard, owner, request: HandOverRequest::By(requester) }),
            (Some(owner), None) => {
                // Another program knows no requests, and may fail on a row that changed.
                let can_move = would_take.contains(shard) && !row.is_foreign;
                let request = if can_move { HandOverRequest::None } else { HandOverRequest::Unmovable };
                (owner != me).then_some(HeldShard { shard, owner, request })
            }
            (None, Some(requester)) => (requester != me).then_some(HeldShard {
                shard,
                owner: requester,
                request: HandOverRequest::By(requester),
            }),
            (None, None) => None,
        }
    }

    /// How long an owner has to release a requested shard. Its deliveries in flight may be settled meanwhile.
    pub(super) fn patience(&self) -> Duration {
        self.context.settings.drain_timeout + self.context.settings.lease_ttl
    }
}
