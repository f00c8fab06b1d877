//! The shards with which the subscription opens, at its start or at a seek.
//!
//! **A forced start applies to the shards of the opening.** This includes a child that has to wait until its parents
//! are replayed. It excludes a shard that another instance held at the time and that moves here later.
//!
//! **A seek is an opening, too.** For a position of the whole stream, it treats the shards as a forced start does at
//! the beginning: it replays ended shards, and children wait for their parents.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::pass::Pass;
use crate::{
    config::position::Plan,
    coordination::{lineage::InitialShards, shard_list::ShardList},
    lease::Lease,
    state::shard::{Shard, Shards},
    types::id::ShardId,
};

/// See the module.
pub(super) struct SubscriptionOpening {
    initial: InitialShards,
    /// The shards that a forced start still has to replay to their end, although their rows say that they ended (R6).
    replays: BTreeSet<ShardId>,
    /// The shards that other instances held at the first pass. They belong to the opening until `awaited_until`, which
    /// is two times to live after the start (E5).
    held_by_others: BTreeSet<ShardId>,
    awaited_until: Instant,
}

impl SubscriptionOpening {
    /// The opening of a start or of a seek. A plan with a forced position replays the ended shards, and the `own`
    /// shards that this instance reads or has read, or that it held before a restart. Shards that others hold may turn
    /// out to be free until `awaited_until`.
    pub(super) fn new(
        plan: &Plan,
        initial: InitialShards,
        shard_list: &ShardList,
        (rows, own): (&[&Lease], &BTreeSet<ShardId>),
        awaited_until: Instant,
    ) -> Self {
        let takeable: BTreeSet<&ShardId> = shard_list.takeable().map(|shard| &shard.id).collect();
        let ended = rows.iter().filter(|row| row.is_ended()).map(|row| &row.key.shard);
        let replays = ended.chain(own).filter(|shard| plan.replays() && takeable.contains(shard));
        let owned = rows.iter().filter(|row| row.owner.is_some()).map(|row| &row.key.shard);
        Self {
            initial,
            replays: replays.cloned().collect(),
            held_by_others: owned.filter(|shard| !own.contains(*shard)).cloned().collect(),
            awaited_until,
        }
    }

    /// Has the shard read once more to its end, even if its row says that it ended.
    pub(super) fn replay(&mut self, shard: ShardId) {
        self.replays.insert(shard);
    }

    /// Treats these shards as held by other instances.
    pub(super) fn await_shards<'a>(&mut self, shards: impl Iterator<Item = &'a ShardId>) {
        self.held_by_others.extend(shards.cloned());
    }

    /// Forgets the replays that are done: the end is stored again, or the row holds a checkpoint of the replay, stored
    /// by this instance or by one to which the shard moved.
    pub(super) fn forget_replays(&mut self, pass: &Pass<'_>, shards: &Shards) {
        self.replays.retain(|shard_id| match shards.get(shard_id) {
            Some(shard) if shard.view().is_held() => true,
            Some(shard) if shard.view().ended_here() => false,
            _ => pass.row(shard_id).is_some_and(Lease::is_ended),
        });
    }

    /// The part that the lineage needs.
    pub(super) fn initial(&self) -> &InitialShards {
        &self.initial
    }

    /// Whether the shard belongs to the opening, so that a forced start applies to it (R6). A shard that another
    /// instance held when the subscription began belongs to it if that instance turns out to be dead soon (E5). If it
    /// released the shard, the shard moved here and does not belong to the opening.
    pub(super) fn has(&self, shard: &Shard, row: Option<&Lease>, now: Instant) -> bool {
        let is_held = || row.is_some_and(|row| row.owner.is_some());
        self.initial.has(&shard.id)
            && !shard.view().was_opened()
            && (!self.awaits(&shard.id) || now < self.awaited_until && is_held())
    }

    /// Whether another instance held the shard when the subscription began.
    pub(super) fn awaits(&self, shard: &ShardId) -> bool {
        self.held_by_others.contains(shard)
    }

    /// Whether the shard still has to be replayed to its end.
    pub(super) fn replays(&self, shard: &ShardId) -> bool {
        self.replays.contains(shard)
    }
}
