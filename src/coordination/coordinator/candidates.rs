//! Which leases to take now, and in which role.
//!
//! **Free and expired leases are taken at once,** by the first instance that sees them, even if that makes the shares
//! uneven. Reading a shard matters more than which instance reads it. Rebalancing follows (`rebalance.rs`).
//!
//! **A free lease that another instance asked for is left to it** for two reads of the table. After that any instance
//! takes it, because the one that asked may be dead. Every take clears the request, and so does the end of the shard.
//!
//! **A shard without a row is taken only if a listing showed it within the last ten seconds.** An older sighting may be
//! of a shard that was read to its end since and whose row was deleted.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
};

use tokio::time::{Duration, Instant};

use super::{Coordinator, Phase, opening::SubscriptionOpening, pass::Pass};
use crate::{
    config::position::{Origin, Role},
    coordination::lineage::{self, Progress, Verdict},
    kinesis::ListedShard,
    lease::{Lease, Leases, Take},
    reading::reader::since,
    state::shard::Shard,
    types::id::ShardId,
};

/// A shard whose lease should be taken.
pub(super) struct Candidate {
    pub(super) shard: Arc<Shard>,
    pub(super) take: Take,
    pub(super) role: Role,
    /// The lease is this instance's own already, or was released for it.
    is_preferred: bool,
    /// Its end is stored, and a forced start or a seek reads it once more.
    pub(super) replays: bool,
}

/// The result of looking for shards to take.
#[derive(Default)]
pub(super) struct Candidates {
    pub(super) take: Vec<Candidate>,
    /// Shards that other instances hold and that this one would take if they were free. It requests no others.
    pub(super) would_take: BTreeSet<ShardId>,
}

/// Whether ready shards stay without an owner because this instance is at its `max_leases`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Unowned {
    #[default]
    None,
    Since(Instant),
    Warned,
}

impl Unowned {
    /// Enters how many shards stay without an owner. Returns true once when there were some for a time to live, in
    /// which other instances could have taken them.
    fn is_to_warn(&mut self, unowned: usize, ttl: Duration, now: Instant) -> bool {
        match *self {
            _ if unowned == 0 => *self = Self::None,
            Self::None => *self = Self::Since(now),
            Self::Since(since) if now >= since + ttl => {
                *self = Self::Warned;
                return true;
            }
            Self::Since(_) | Self::Warned => {}
        }
        false
    }
}

impl Coordinator {
    /// The shards to take now: those that are ready and free, up to `max_leases`.
    pub(super) fn candidates(&mut self, pass: &Pass<'_>) -> Candidates {
        if let Phase::Open(opening) = &mut self.phase {
            opening.forget_replays(pass, &self.shards);
        }
        let Some(opening) = self.phase.opening() else { return Candidates::default() };
        let now = pass.now;
        let verdicts =
            lineage::verdicts(self.shard_list.shards(), &self.progress(pass.leases, opening), opening.initial());
        let (mut awaited, mut stale_sightings) = (0, 0);
        let pause = self.holds_back(pass);
        let mut candidates = Candidates::default();
        for listed in self.shard_list.takeable() {
            let Some(Verdict::Ready { child }) = verdicts.get(&listed.id) else { continue };
            let row = pass.row(&listed.id);
            let shard = self.shards.get_or_open(&self.context, &listed.id);
            shard.seen(listed.closed, row);
            let opens = opening.has(&shard, row, now);
            if shard.view().is_held() || shard.view().gave_up() {
                continue;
            }
            if !self.is_free(row, now) {
                candidates.would_take.insert(listed.id.clone());
                awaited += usize::from(opens && opening.awaits(&listed.id));
                continue;
            }
            if self.leaves_to_others(&listed.id, pause, pass) {
                continue;
            }
            // An instance may have read it to its end since, and its row may have been deleted.
            if row.is_none() && !self.shard_list.was_seen_lately(&listed.id, now) {
                stale_sightings += 1;
                continue;
            }
            let role = Role { opening: opens, child: *child };
            candidates.take.push(Candidate {
                is_preferred: row.is_some_and(|row| self.is_mine(row)),
                take: self.take_request(listed, row).with_since(self.latest_is(&shard, row, role)),
                replays: opening.replays(&listed.id),
                role,
                shard,
            });
        }
        self.context.gauges.awaited.store(awaited, Ordering::Relaxed);
        self.listings.enter_stale_sightings(stale_sightings > 0, pass.after_listing, now);
        self.limit_to_room(&mut candidates.take, stale_sightings, now);
        candidates
    }

    /// Leaves out the shards over `max_leases`. Shards that are not preferred go first.
    fn limit_to_room(&mut self, candidates: &mut Vec<Candidate>, stale_sightings: usize, now: Instant) {
        let max_leases = self.context.settings.max_leases;
        let held = self.shards.all().iter().filter(|shard| shard.view().is_working()).count();
        let room = max_leases.saturating_sub(held);
        if candidates.len() > room {
            candidates.sort_by_key(|candidate| !candidate.is_preferred);
        }
        // A shard that must be listed again before it can be taken needs room, too.
        let unowned = (candidates.len() + stale_sightings).saturating_sub(room);
        candidates.truncate(room);
        self.context.gauges.unowned.store(unowned, Ordering::Relaxed);
        if self.unowned.is_to_warn(unowned, self.context.settings.lease_ttl, now) {
            tracing::warn!(
                unowned,
                max_leases,
                "no instance reads these shards: this one is at its max_leases, and no other one takes them"
            );
        }
    }

    /// The progress of each shard by its row. A shard that must be replayed counts as open.
    pub(super) fn progress(&self, leases: &Leases, opening: &SubscriptionOpening) -> BTreeMap<ShardId, Progress> {
        let progress = |row: &Lease| match Progress::from(row.checkpoint.as_ref()) {
            Progress::Ended if opening.replays(&row.key.shard) => Progress::Open,
            progress => progress,
        };
        let own = leases.rows.iter().filter(|row| self.is_of_this_stream(row));
        own.map(|row| (row.key.shard.clone(), progress(row))).chain(self.progress_unreadable(leases)).collect()
    }

    /// Whether the row is this instance's own, or was released for it.
    fn is_mine(&self, row: &Lease) -> bool {
        let me = Some(&self.context.owner);
        if row.owner.is_some() {
            row.owner.as_ref() == me && self.ownership.has(row)
        } else {
            row.wanted_by.as_ref() == me
        }
    }

    /// Whether the lease can be taken: it has no owner, is this instance's own, or has expired (E4, E5). A lease that
    /// its owner released for another instance is left to that one for two reads of the table.
    pub(super) fn is_free(&self, row: Option<&Lease>, now: Instant) -> bool {
        let Some(row) = row else { return true };
        let settings = &self.context.settings;
        let is_unchanged_for = |time| self.expiry.is_unchanged_for(&row.key.shard, time, now);
        match (&row.owner, &row.wanted_by) {
            _ if self.is_mine(row) => true,
            (Some(_), _) => self.expiry.is_expired(&row.key.shard, settings.lease_ttl, now),
            (None, Some(_)) => is_unchanged_for(2 * settings.renew_interval),
            (None, None) => true,
        }
    }

    fn take_request(&self, shard: &ListedShard, row: Option<&Lease>) -> Take {
        Take {
            key: self.context.lease_key(&shard.id),
            owner: Arc::clone(&self.context.owner),
            ttl: Some(self.context.settings.lease_ttl),
            seen: row.map(Lease::seen),
            parents: shard.parents.clone(),
            stream_created: self.beginning.created,
            forget_checkpoint: row.is_some_and(|row| !self.is_of_this_stream(row)),
            since: None,
        }
    }

    /// The time to store for a shard that opens at LATEST (R5): the start of the subscription, or the time at which
    /// this instance opened the shard before. None if the row keeps a checkpoint, or the shard opens elsewhere.
    fn latest_is(&self, shard: &Shard, row: Option<&Lease>, role: Role) -> Option<i64> {
        let keeps_checkpoint = row.is_some_and(|row| self.is_of_this_stream(row) && row.checkpoint.is_some());
        if keeps_checkpoint || !self.plan.opens_at_latest(&shard.id, role) {
            return None;
        }
        match shard.reopens_at(None).unwrap_or_else(|| since(self.beginning.moment)) {
            Origin::Timestamp(unix_millis) => Some(unix_millis),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // E5
    #[test]
    fn a_warning_of_unowned_shards_comes_once_after_a_time_to_live() {
        let (start, ttl) = (Instant::now(), Duration::from_secs(10));
        let mut unowned = Unowned::default();
        // Seconds, how many shards are unowned, and whether to warn.
        let table = [
            (0, 2, false),
            (9, 1, false),
            (10, 1, true),
            (30, 1, false),
            (31, 0, false),
            (32, 1, false),
            (42, 3, true),
        ];
        for (seconds, count, warns) in table {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(unowned.is_to_warn(count, ttl, now), warns, "{seconds} s");
        }
    }
}
