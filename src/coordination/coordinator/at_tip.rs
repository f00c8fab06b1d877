//! Whether everything was read, for a descriptor that asks to stop then (`stop_at_tip`).
//!
//! **`stop_at_tip` ends the stream from the consumer's side.** The coordinator announces that nothing more will be
//! read, and the subscription ends once it has delivered everything. It does not wait for open deliveries: a pipeline
//! that collects them first would then block without an end.
//!
//! **It does wait for dead letters, also for one under way.** The drain time covers such a write only if it succeeds.
//! If it fails, its record would start over at the next start. If it is refused, the stream still has to yield its
//! error. Ending would also turn away the records that wait for the same keys.

use tokio::time::Instant;

use super::{Coordinator, pass::Pass};
use crate::{
    coordination::lineage::{self, Verdict},
    lease::Lease,
    types::id::ShardId,
};

impl Coordinator {
    /// Whether this instance has read everything that it should read.
    pub(super) fn is_all_read(&self, pass: &Pass<'_>) -> bool {
        let Some(opening) = self.phase.opening() else { return false };
        let now = pass.now;
        let is_listing = self.listings.is_in_flight() || self.misses_children();
        if is_listing || pass.rows.iter().any(|row| self.is_incoming(row, now)) {
            return false;
        }
        let is_elsewhere = |shard_id: &ShardId| pass.row(shard_id).is_some_and(|row| self.is_elsewhere(row, now));
        let is_at_tip = |shard_id: &ShardId| self.shards.get(shard_id).is_some_and(|shard| shard.view().is_at_tip());
        let verdicts =
            lineage::verdicts(self.shard_list.shards(), &self.progress(pass.leases, opening), opening.initial());
        verdicts.iter().all(|(shard_id, verdict)| match verdict {
            Verdict::Done | Verdict::PassedOver => true,
            Verdict::Ready { .. } => is_at_tip(shard_id) || is_elsewhere(shard_id),
            // Nobody can tell how far it was read.
            Verdict::Unreadable => false,
            // If a parent was closed after it was at its tip, it is not read any further, and its children appeared
            // later.
            Verdict::Waits(parents) => parents.iter().all(|parent| is_at_tip(parent) || is_elsewhere(parent)),
        })
    }

    /// Whether another live instance holds the shard.
    fn is_elsewhere(&self, row: &Lease, now: Instant) -> bool {
        row.owner.as_ref().is_some_and(|owner| *owner != self.context.owner)
            && !self.expiry.is_expired(&row.key.shard, self.context.settings.lease_ttl, now)
    }

    /// Whether another instance is handing the shard over to this one.
    fn is_incoming(&self, row: &Lease, now: Instant) -> bool {
        row.wanted_by.as_ref() == Some(&self.context.owner)
            && self.is_elsewhere(row, now)
            && !self.requests.is_overdue(&row.key.shard, self.patience(), now)
    }
}
