//! What an instance does that reaches the lease store and could not read from Kinesis (R10): see
//! [`read_health`](crate::state::read_health).
//!
//! **It holds back only where another instance is in sight.** A lone instance harms nobody and takes its shards again
//! after the next listing.
//!
//! **A trial is one small read of a shard that another instance holds.** Without it, an instance without leases would
//! never learn that it can read again, since a healthy fleet leaves no lease free. It needs no lease, because its
//! records are dropped.

use std::{collections::BTreeSet, future::pending, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use tokio::time::{Duration, Instant, timeout};

use super::{Coordinator, pass::Pass};
use crate::{
    config::position::Origin,
    error::{chain::Chain, service::ServiceFailure},
    state::context::SubscriptionContext,
    types::id::ShardId,
};

/// After this time without an answer, a trial read has failed.
const TRIAL_LIMIT: Duration = Duration::from_secs(10);

/// A trial read under way.
pub(super) type TrialInFlight = BoxFuture<'static, ()>;

/// Waits until the trial read is done, if one is under way.
///
/// # Cancel safety
///
/// Cancel safe: the next call continues with the same read.
pub(super) async fn tried(trial: &mut Option<TrialInFlight>) {
    match trial {
        Some(in_flight) => {
            in_flight.await;
            *trial = None;
        }
        None => pending().await,
    }
}

impl Coordinator {
    /// How long a lease must have stood free before this instance takes it. None if it need not hold back.
    pub(super) fn holds_back(&self, pass: &Pass<'_>) -> Option<Duration> {
        let (me, ttl) = (&self.context.owner, self.context.settings.lease_ttl);
        let others = pass.rows.iter().filter(|row| {
            let asks = row.wanted_by.as_ref().is_some_and(|asks| asks != me);
            asks || row.owner.as_ref().is_some_and(|owner| owner != me)
        });
        let pause = self.context.read_health.pause()?;
        let mut alive = others.filter(|row| !self.expiry.is_expired(&row.key.shard, ttl, pass.now));
        alive.next().map(|_| pause)
    }

    /// Whether this instance should leave a free lease to those that can read.
    pub(super) fn leaves_to_others(&self, shard: &ShardId, pause: Option<Duration>, pass: &Pass<'_>) -> bool {
        let Some(pause) = pause else { return false };
        let is_mine = pass.row(shard).is_some_and(|row| row.owner.as_ref() == Some(&self.context.owner));
        let stood_free = self.expiry.is_unchanged_for(shard, pause, pass.now);
        !(is_mine || stood_free && self.context.read_health.is_trial_due(pass.now))
    }

    /// The shard of the trial read that is due. None if none is, or if a reader shows whether this instance can read.
    pub(super) fn trial_shard(&self, would_take: &BTreeSet<ShardId>, pass: &Pass<'_>) -> Option<ShardId> {
        let reads = || self.shards.all().iter().any(|shard| shard.view().is_working());
        let is_due = self.context.read_health.is_trial_due(pass.now) && !reads();
        would_take.first().filter(|_| is_due).cloned()
    }
}

/// Begins a trial read of this shard.
pub(super) fn begin_trial(context: &Arc<SubscriptionContext>, shard: ShardId) -> TrialInFlight {
    try_read(Arc::clone(context), shard).boxed()
}

async fn try_read(context: Arc<SubscriptionContext>, shard: ShardId) {
    let read = async {
        let placed = context.service.place(&context.stream, &shard, &Origin::Latest).await?;
        context.service.read(&placed.iterator, 1).await?;
        Ok::<(), ServiceFailure>(())
    };
    match timeout(TRIAL_LIMIT, read).await {
        Ok(Ok(())) => {
            tracing::info!(%shard, "this instance can read again");
            context.read_health.good_read();
            context.wakeups.pass_now();
        }
        Ok(Err(failure)) => {
            tracing::warn!(%shard, error = %Chain(&failure), "this instance still cannot read");
            context.read_health.gave_up(Instant::now());
        }
        Err(_) => {
            tracing::warn!(%shard, limit = ?TRIAL_LIMIT, "this instance still cannot read: no answer");
            context.read_health.gave_up(Instant::now());
        }
    }
}
