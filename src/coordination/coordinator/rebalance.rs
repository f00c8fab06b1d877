//! Asking others for their leases, and handing over what others asked for (E5).

use std::collections::BTreeSet;

use futures::{StreamExt, stream};
use tokio::time::{Duration, Instant};

use super::{CALLS_AT_ONCE, Coordinator};
use crate::{
    coordination::balance::{Claim, Stake, wanted},
    lease::{Lease, Write},
    types::id::ShardId,
};

impl Coordinator {
    /// Begins to hand over every shard that another instance asked for.
    pub(super) fn hand_over(&self, rows: &[Lease], now: Instant) {
        let until = now + self.context.settings.drain_timeout;
        for row in rows.iter().filter(|row| row.owner.as_ref() == Some(&self.context.owner)) {
            let Some(heir) = row.wanted_by.as_ref().filter(|heir| **heir != self.context.owner) else { continue };
            let Some(shard) = self.shards.get(&row.key.shard) else { continue };
            if shard.hand_over(row.epoch, until) {
                let (stream, shard_id, epoch) = (&self.context.stream, &row.key.shard, row.epoch);
                tracing::info!(%stream, shard = %shard_id, epoch, %heir, "the shard is handed over to an instance that asked for it");
            }
        }
    }

    /// Asks for the leases of others that this instance should have for the fleet to be even. Whether there were any.
    pub(super) async fn ask(&self, rows: &[Lease], now: Instant) -> bool {
        let context = &self.context;
        let stakes: Vec<Stake<'_>> = rows.iter().filter_map(|row| self.stake(row, now)).collect();
        // Of its own leases only those are among them that others asked for. Some may have gone since the rows were read.
        let mine = stakes.iter().filter(|stake| *stake.holder == *context.owner);
        let given: BTreeSet<&ShardId> = mine.map(|stake| stake.shard).collect();
        let shards = self.shards.all();
        let own = shards.iter().filter(|shard| shard.view().is_share() && !given.contains(&shard.id)).count();
        let wanted: BTreeSet<&ShardId> =
            wanted(&context.owner, own, context.settings.max_leases, &stakes).into_iter().collect();
        let asks = !wanted.is_empty();
        let asked = rows.iter().filter(|row| wanted.contains(&row.key.shard));
        let calls = asked.map(|row| async move {
            let shard_id = &row.key.shard;
            match context.answer(context.store.ask(&row.key, row.seen(), &context.owner)).await {
                Ok(Write::Applied(())) => {
                    tracing::info!(stream = %context.stream, shard = %shard_id, owner = row.owner.as_deref(), "asked for the shard");
                }
                // The next pass asks again if it still should.
                Ok(Write::Refused(_)) => tracing::debug!(stream = %context.stream, shard = %shard_id, "its row has moved meanwhile"),
                Err(error) => tracing::debug!(stream = %context.stream, shard = %shard_id, %error, "the shard was not asked for"),
            }
        });
        stream::iter(calls).for_each_concurrent(CALLS_AT_ONCE, |call| call).await;
        asks
    }

    /// What a row says about who holds its shard, or is about to. This instance knows its own better, apart from those that
    /// others asked for.
    fn stake<'a>(&self, row: &'a Lease, now: Instant) -> Option<Stake<'a>> {
        let settings = &self.context.settings;
        let (shard, me) = (&row.key.shard, &*self.context.owner);
        if row.is_ended() || !self.is_of_this_stream(row) || self.expiry.has_stood(shard, settings.lease_ttl, now) {
            return None;
        }
        let patience = self.patience();
        match (row.owner.as_deref(), row.wanted_by.as_deref()) {
            (Some(holder), Some(heir)) if heir == me && self.requests.ran_out(shard, patience, now) => {
                Some(Stake { shard, holder, claim: Claim::Immovable })
            }
            (Some(holder), Some(heir)) => Some(Stake { shard, holder, claim: Claim::By(heir) }),
            (Some(holder), None) => {
                let claim = if self.reach.contains(shard) { Claim::None } else { Claim::Immovable };
                (holder != me).then_some(Stake { shard, holder, claim })
            }
            (None, Some(heir)) => (heir != me).then_some(Stake { shard, holder: heir, claim: Claim::By(heir) }),
            (None, None) => None,
        }
    }

    /// How long the holder of a shard has to let it go after it was asked: what is in flight there may be settled meanwhile.
    pub(super) fn patience(&self) -> Duration {
        self.context.settings.drain_timeout + self.context.settings.lease_ttl
    }
}
