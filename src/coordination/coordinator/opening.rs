//! The shards with which the subscription opens, at its beginning or with a seek: where a forced start applies.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio::time::Instant;

use crate::{
    config::position::Plan,
    coordination::{lineage, shard_list::ShardList},
    kinesis::ListedShard,
    lease::Lease,
    state::shard::{Shard, Shards},
    types::id::ShardId,
};

/// See the module.
pub(super) struct Opening {
    shards: lineage::Opening,
    /// Those that a forced start has yet to read to their end once more, whatever their rows say (R6).
    replays: BTreeSet<ShardId>,
    /// Those that others held at the first pass; they belong to the opening for two lives of a lease (E5).
    held_by_others: BTreeSet<ShardId>,
    awaited_until: Instant,
}

impl Opening {
    /// `first` is what the first complete listing showed. Rows may be known only later, and by then shards can be closed
    /// that were open when the subscription began.
    pub(super) fn new(plan: &Plan, first: &[ListedShard], shard_list: &ShardList, rows: &[&Lease]) -> Self {
        let listed: BTreeSet<&ShardId> = shard_list.takeable().map(|shard| &shard.id).collect();
        let replays = |row: &&&Lease| plan.replays() && row.is_ended() && listed.contains(&row.key.shard);
        Self {
            shards: lineage::Opening::new(plan, first.iter().chain(shard_list.memories())),
            replays: rows.iter().filter(replays).map(|row| row.key.shard.clone()).collect(),
            held_by_others: BTreeSet::new(),
            awaited_until: Instant::now(),
        }
    }

    /// Those that others than this owner hold may prove free until then.
    pub(super) fn awaiting(mut self, rows: &[&Lease], owner: &Arc<str>, until: Instant) -> Self {
        let of_others = rows.iter().filter(|row| row.owner.as_ref().is_some_and(|holder| holder != owner));
        self.held_by_others = of_others.map(|row| row.key.shard.clone()).collect();
        self.awaited_until = until;
        self
    }

    /// As after a seek: the plan is another one, and goes before what the rows say of the `own` shards, which this instance
    /// reads or has read. Those of others do not belong to the opening.
    pub(super) fn after_seek(plan: &Plan, shard_list: &ShardList, rows: &[&Lease], own: &BTreeSet<ShardId>) -> Self {
        let listed: BTreeSet<&ShardId> = shard_list.takeable().map(|shard| &shard.id).collect();
        let ended = rows.iter().filter(|row| row.is_ended()).map(|row| &row.key.shard);
        let replays = ended.chain(own).filter(|shard| plan.replays() && listed.contains(shard));
        let of_others = rows.iter().filter(|row| row.owner.is_some()).map(|row| &row.key.shard);
        Self {
            shards: lineage::Opening::new(plan, shard_list.shards()),
            replays: replays.cloned().collect(),
            held_by_others: of_others.filter(|shard| !own.contains(*shard)).cloned().collect(),
            awaited_until: Instant::now(),
        }
    }

    /// The shard is to be read once more from somewhere to its end, whatever its row says.
    pub(super) fn replay(&mut self, shard: ShardId) {
        self.replays.insert(shard);
    }

    /// Forgets the replays that are done: the end is stored again, or the row tells the truth since something of the replay
    /// is stored there, here or by an instance to which the shard moved.
    pub(super) fn forget_replays(&mut self, rows: &BTreeMap<&ShardId, &Lease>, shards: &Shards) {
        self.replays.retain(|shard_id| match shards.get(shard_id) {
            Some(shard) if shard.view().is_held() => true,
            Some(shard) if shard.view().ended_here() => false,
            _ => rows.get(shard_id).is_some_and(|row| row.is_ended()),
        });
    }

    /// What the lineage has to know of it.
    pub(super) fn lineage(&self) -> &lineage::Opening {
        &self.shards
    }

    /// Whether the shard belongs to the opening, so that a forced start applies to it (R6). One that another instance held
    /// when the subscription began does if that one proves dead soon (E5); if it let go, the shard came over.
    pub(super) fn has(&self, shard: &Shard, row: Option<&Lease>, now: Instant) -> bool {
        let is_held = || row.is_some_and(|row| row.owner.is_some());
        self.shards.has(&shard.id)
            && !shard.view().was_opened()
            && (!self.awaits(&shard.id) || now < self.awaited_until && is_held())
    }

    /// Whether another instance held the shard when the subscription began.
    pub(super) fn awaits(&self, shard: &ShardId) -> bool {
        self.held_by_others.contains(shard)
    }

    /// Whether the shard is yet to be read to its end once more.
    pub(super) fn replays(&self, shard: &ShardId) -> bool {
        self.replays.contains(shard)
    }
}
