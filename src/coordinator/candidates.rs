//! Which leases to take now, and as what.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
};

use tokio::time::Instant;

use super::Coordinator;
use crate::{
    catalogue::Catalogue,
    id::ShardId,
    lease::{Lease, Take},
    ledger::{Ledger, Ledgers},
    lineage::{self, Progress, Verdict},
    position::{Plan, Role},
    service::ListedShard,
};

/// The shards with which the subscription opens.
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
    pub(super) fn new(
        plan: &Plan,
        first: &[ListedShard],
        catalogue: &Catalogue,
        rows: &[&Lease],
        owner: &Arc<str>,
        awaited_until: Instant,
    ) -> Self {
        let of_others = |row: &&&Lease| row.owner.as_ref().is_some_and(|holder| holder != owner);
        let shard = |row: &&Lease| row.key.shard.clone();
        let listed: BTreeSet<&ShardId> = catalogue.takeable().map(|shard| &shard.id).collect();
        let replays = |row: &&&Lease| plan.replays() && row.is_ended() && listed.contains(&row.key.shard);
        Self {
            shards: lineage::Opening::new(plan, first.iter().chain(catalogue.memories())),
            replays: rows.iter().filter(replays).map(shard).collect(),
            held_by_others: rows.iter().filter(of_others).map(shard).collect(),
            awaited_until,
        }
    }

    /// As after a seek: the plan is another one, and goes before what the rows say of the `own` shards, which this instance
    /// reads or has read. Those of others do not belong to the opening.
    pub(super) fn after_seek(plan: &Plan, catalogue: &Catalogue, rows: &[&Lease], own: &BTreeSet<ShardId>) -> Self {
        let listed: BTreeSet<&ShardId> = catalogue.takeable().map(|shard| &shard.id).collect();
        let ended = rows.iter().filter(|row| row.is_ended()).map(|row| &row.key.shard);
        let replays = ended.chain(own).filter(|shard| plan.replays() && listed.contains(shard));
        let of_others = rows.iter().filter(|row| row.owner.is_some()).map(|row| &row.key.shard);
        Self {
            shards: lineage::Opening::new(plan, catalogue.shards()),
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
    fn forget_replays(&mut self, rows: &BTreeMap<&ShardId, &Lease>, ledgers: &Ledgers) {
        self.replays.retain(|shard| match ledgers.get(shard) {
            Some(ledger) if ledger.is_held() => true,
            Some(ledger) if ledger.ended_here() => false,
            _ => rows.get(shard).is_some_and(|row| row.is_ended()),
        });
    }

    /// What the lineage has to know of it.
    pub(super) fn lineage(&self) -> &lineage::Opening {
        &self.shards
    }
}

/// A shard whose lease is to be taken.
pub(super) struct Candidate {
    pub(super) ledger: Arc<Ledger>,
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
            opening.forget_replays(&by_shard, &self.ledgers);
        }
        let Some(opening) = &self.opening else { return Vec::new() };
        let verdicts = lineage::judge(self.catalogue.shards(), &self.known(rows, opening), &opening.shards);
        let (mut awaited, mut doubtful) = (0, false);
        let mut candidates = Vec::new();
        for shard in self.catalogue.takeable() {
            let Some(Verdict::Ready { child }) = verdicts.get(&shard.id) else { continue };
            let row = by_shard.get(&shard.id).copied();
            let ledger = self.ledgers.get_or_open(&self.hub, &shard.id);
            if let Some(row) = row {
                ledger.seen(row);
            }
            let opens = self.opens(opening, &ledger, row, now);
            if ledger.is_held() || ledger.was_given_up() && !lists {
                continue;
            }
            if !self.is_free(row, now) {
                awaited += usize::from(opens && opening.held_by_others.contains(&shard.id));
                continue;
            }
            // It may have been read to its end, and its row removed since.
            if row.is_none() && !self.catalogue.is_fresh(&shard.id, now) {
                doubtful = true;
                continue;
            }
            candidates.push(Candidate {
                is_meant: row.is_some_and(|row| self.is_mine(row)),
                take: self.take_of(shard, row),
                replays: opening.replays.contains(&shard.id),
                role: Role { opening: opens, child: *child },
                ledger,
            });
        }
        self.hub.awaited.store(awaited, Ordering::Relaxed);
        if doubtful && !lists {
            self.next_listing = now;
        }
        self.within_bounds(candidates, now)
    }

    /// Leaves out what is more than this instance may hold: first what nobody meant for it.
    fn within_bounds(&mut self, mut candidates: Vec<Candidate>, now: Instant) -> Vec<Candidate> {
        let held = self.ledgers.all().iter().filter(|ledger| ledger.counts()).count();
        let room = self.hub.settings.max_leases.saturating_sub(held);
        if candidates.len() > room {
            candidates.sort_by_key(|candidate| !candidate.is_meant);
        }
        let unowned = candidates.len().saturating_sub(room);
        candidates.truncate(room);
        self.hub.unowned.store(unowned, Ordering::Relaxed);
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
        if !*said && now >= *since + self.hub.settings.lease_ttl {
            *said = true;
            let most = self.hub.settings.max_leases;
            tracing::warn!(
                stream = %self.hub.stream, unowned, max_leases = most,
                "shards are read by nobody: this instance is at its max_leases, and no other one takes them"
            );
        }
    }

    /// What the rows say about each shard, seen through a forced start.
    pub(super) fn known(&self, rows: &[Lease], opening: &Opening) -> BTreeMap<ShardId, Progress> {
        let progress = |row: &Lease| match Progress::from(row.checkpoint.as_ref()) {
            Progress::Ended if opening.replays.contains(&row.key.shard) => Progress::Open,
            progress => progress,
        };
        let own = rows.iter().filter(|row| self.is_of_this_stream(row));
        own.map(|row| (row.key.shard.clone(), progress(row))).collect()
    }

    /// Whether the shard belongs to the opening, so that a forced start applies to it (R6). One that another instance held
    /// when the subscription began does if that one proves dead soon (E5); if it let go, the shard came over.
    fn opens(&self, opening: &Opening, ledger: &Ledger, row: Option<&Lease>, now: Instant) -> bool {
        let is_held = || row.is_some_and(|row| row.owner.is_some());
        opening.shards.has(&ledger.shard)
            && !ledger.has_begun()
            && (!opening.held_by_others.contains(&ledger.shard) || now < opening.awaited_until && is_held())
    }

    /// Whether the row names this instance.
    fn is_mine(&self, row: &Lease) -> bool {
        row.owner.as_ref().or(row.wanted_by.as_ref()) == Some(&self.hub.owner)
    }

    /// Whether the lease can be taken: nobody has it, it was this instance's own, or it ran out (E4, E5). One that its
    /// holder let go for another instance is left to that one for two looks at the leases.
    pub(super) fn is_free(&self, row: Option<&Lease>, now: Instant) -> bool {
        let Some(row) = row else { return true };
        let settings = &self.hub.settings;
        let has_stood = |time| self.witness.has_stood(&row.key.shard, time, now);
        match (&row.owner, &row.wanted_by) {
            _ if self.is_mine(row) => true,
            (Some(_), _) => has_stood(settings.lease_ttl),
            (None, Some(_)) => has_stood(2 * settings.renew_interval),
            (None, None) => true,
        }
    }

    fn take_of(&self, shard: &ListedShard, row: Option<&Lease>) -> Take {
        Take {
            key: self.hub.lease_key(&shard.id),
            owner: Arc::clone(&self.hub.owner),
            seen: row.map(Lease::seen),
            parents: shard.parents.clone(),
            stream_created: self.beginning.created,
            forget_checkpoint: row.is_some_and(|row| !self.is_of_this_stream(row)),
        }
    }
}
