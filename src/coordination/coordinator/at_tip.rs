//! Whether everything was read that there is, where the descriptor asks to stop then.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::Coordinator;
use crate::{
    coordination::lineage::{self, Verdict},
    lease::Lease,
    types::id::ShardId,
};

impl Coordinator {
    /// Whether nothing is still to come that this instance is to read.
    pub(super) fn is_done(&self, rows: &[Lease], now: Instant) -> bool {
        let Some(opening) = &self.opening else { return false };
        if self.is_listing || self.lacks_children() || rows.iter().any(|row| self.is_coming(row, now)) {
            return false;
        }
        let rows_by_shard: BTreeMap<&ShardId, &Lease> = rows.iter().map(|row| (&row.key.shard, row)).collect();
        let is_elsewhere =
            |shard_id: &ShardId| rows_by_shard.get(shard_id).is_some_and(|row| self.is_elsewhere(row, now));
        let is_at_tip = |shard_id: &ShardId| self.shards.get(shard_id).is_some_and(|shard| shard.view().is_at_tip());
        let verdicts = lineage::judge(self.shard_list.shards(), &self.known(rows, opening), opening.lineage());
        verdicts.iter().all(|(shard_id, verdict)| match verdict {
            Verdict::Done | Verdict::PassedOver => true,
            Verdict::Ready { .. } => is_at_tip(shard_id) || is_elsewhere(shard_id),
            // A parent that was closed after it was done is not read on, and its children came later.
            Verdict::Waits(parents) => parents.iter().all(|parent| is_at_tip(parent) || is_elsewhere(parent)),
        })
    }

    /// Whether another instance reads the shard.
    fn is_elsewhere(&self, row: &Lease, now: Instant) -> bool {
        row.owner.as_ref().is_some_and(|owner| *owner != self.context.owner)
            && !self.expiry.has_stood(&row.key.shard, self.context.settings.lease_ttl, now)
    }

    /// Whether another instance is about to hand the shard over to this one.
    fn is_coming(&self, row: &Lease, now: Instant) -> bool {
        row.wanted_by.as_ref() == Some(&self.context.owner)
            && self.is_elsewhere(row, now)
            && !self.requests.ran_out(&row.key.shard, self.patience(), now)
    }
}
