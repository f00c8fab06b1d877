//! Which leases to take now, and as what.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
};

use tokio::time::Instant;

use super::{Coordinator, opening::Opening};
use crate::{
    config::position::Role,
    coordination::lineage::{self, Progress, Verdict},
    kinesis::ListedShard,
    lease::{Lease, Take},
    state::shard::Shard,
    types::id::ShardId,
    util::mutex::lock,
};

/// A shard whose lease is to be taken.
pub(super) struct Candidate {
    pub(super) shard: Arc<Shard>,
    pub(super) take: Take,
    pub(super) role: Role,
    /// It was this instance's own, or asked for.
    is_meant: bool,
    /// Its end is stored and it is to be read again.
    pub(super) replays: bool,
}

impl Coordinator {
    /// The shards to take now: those that are ready and free, as far as there is room for them.
    pub(super) fn candidates(&mut self, rows: &[Lease], lists: bool, now: Instant) -> Vec<Candidate> {
        let by_shard: BTreeMap<&ShardId, &Lease> = rows.iter().map(|row| (&row.key.shard, row)).collect();
        if let Some(opening) = &mut self.opening {
            opening.forget_replays(&by_shard, &self.shards);
        }
        self.reach.clear();
        let Some(opening) = &self.opening else { return Vec::new() };
        let verdicts = lineage::judge(self.shard_list.shards(), &self.known(rows, opening), opening.lineage());
        let (mut awaited, mut doubtful) = (0, 0);
        let mut candidates = Vec::new();
        for shard_id in self.shard_list.takeable() {
            let Some(Verdict::Ready { child }) = verdicts.get(&shard_id.id) else { continue };
            let row = by_shard.get(&shard_id.id).copied();
            let shard = self.shards.get_or_open(&self.context, &shard_id.id);
            shard.seen(shard_id.closed, row);
            let opens = opening.has(&shard, row, now);
            let view = shard.view();
            if view.is_held() || view.gave_up() {
                continue;
            }
            if !self.is_free(row, now) {
                self.reach.insert(shard_id.id.clone());
                awaited += usize::from(opens && opening.awaits(&shard_id.id));
                continue;
            }
            // It may have been read to its end, and its row removed since.
            if row.is_none() && !self.shard_list.is_fresh(&shard_id.id, now) {
                doubtful += 1;
                continue;
            }
            candidates.push(Candidate {
                is_meant: row.is_some_and(|row| self.is_mine(row)),
                take: self.take_of(shard_id, row),
                replays: opening.replays(&shard_id.id),
                role: Role { opening: opens, child: *child },
                shard,
            });
        }
        self.context.gauges.awaited.store(awaited, Ordering::Relaxed);
        self.doubtful = doubtful;
        if doubtful > 0 && !lists && !self.is_listing {
            self.next_listing = Some(now);
        }
        self.within_bounds(candidates, now)
    }

    /// Leaves out what is more than this instance may hold: first what nobody meant for it.
    fn within_bounds(&mut self, mut candidates: Vec<Candidate>, now: Instant) -> Vec<Candidate> {
        let held = self.shards.all().iter().filter(|shard| shard.view().is_working()).count();
        let room = self.context.settings.max_leases.saturating_sub(held);
        if candidates.len() > room {
            candidates.sort_by_key(|candidate| !candidate.is_meant);
        }
        // Those that are to be seen again before they can be taken need room, too.
        let unowned = (candidates.len() + self.doubtful).saturating_sub(room);
        candidates.truncate(room);
        self.context.gauges.unowned.store(unowned, Ordering::Relaxed);
        self.warn_of_unowned(unowned, now);
        candidates
    }

    /// Says once that shards stay unread, when others had the time to take them.
    fn warn_of_unowned(&mut self, unowned: usize, now: Instant) {
        if unowned == 0 {
            self.unowned_since = None;
            return;
        }
        let (since, said) = self.unowned_since.get_or_insert((now, false));
        if !*said && now >= *since + self.context.settings.lease_ttl {
            *said = true;
            let most = self.context.settings.max_leases;
            tracing::warn!(
                stream = %self.context.stream, unowned, max_leases = most,
                "shards are read by nobody: this instance is at its max_leases, and no other one takes them"
            );
        }
    }

    /// What the rows say about each shard, seen through a forced start.
    pub(super) fn known(&self, rows: &[Lease], opening: &Opening) -> BTreeMap<ShardId, Progress> {
        let progress = |row: &Lease| match Progress::from(row.checkpoint.as_ref()) {
            Progress::Ended if opening.replays(&row.key.shard) => Progress::Open,
            progress => progress,
        };
        let own = rows.iter().filter(|row| self.is_of_this_stream(row));
        own.map(|row| (row.key.shard.clone(), progress(row))).collect()
    }

    /// Whether the row is this instance's own, or let go for it.
    fn is_mine(&self, row: &Lease) -> bool {
        let me = Some(&self.context.owner);
        if row.owner.is_some() {
            row.owner.as_ref() == me && lock(&self.ownership).has(row)
        } else {
            row.wanted_by.as_ref() == me
        }
    }

    /// Whether the lease can be taken: nobody has it, it was this instance's own, or it ran out (E4, E5). One that its
    /// holder let go for another instance is left to that one for two looks at the leases.
    pub(super) fn is_free(&self, row: Option<&Lease>, now: Instant) -> bool {
        let Some(row) = row else { return true };
        let settings = &self.context.settings;
        let has_stood = |time| self.expiry.has_stood(&row.key.shard, time, now);
        match (&row.owner, &row.wanted_by) {
            _ if self.is_mine(row) => true,
            (Some(_), _) => has_stood(settings.lease_ttl),
            (None, Some(_)) => has_stood(2 * settings.renew_interval),
            (None, None) => true,
        }
    }

    fn take_of(&self, shard: &ListedShard, row: Option<&Lease>) -> Take {
        Take {
            key: self.context.lease_key(&shard.id),
            owner: Arc::clone(&self.context.owner),
            seen: row.map(Lease::seen),
            parents: shard.parents.clone(),
            stream_created: self.beginning.created,
            forget_checkpoint: row.is_some_and(|row| !self.is_of_this_stream(row)),
        }
    }
}
