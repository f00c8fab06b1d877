//! Which of the rows under this instance's owner id are its own (E4). Pure, with the time passed in.
//!
//! Two processes may run under one owner id, against the rules: for example, one was stopped and taken for dead.
//!
//! **An instance decides whether a lease is its own by comparing epochs, not owner ids.** No two takes make the same
//! epoch. Its own rows are those that it found at its first read of the table (left by an earlier process under the
//! same id) and those that its own takes made. Any other row under its owner id belongs to a twin, a second process
//! with the same id, and the instance treats it like any other owner's row: it waits until the lease expires. So a
//! process that was stopped, and was replaced meanwhile, takes nothing from its replacement before it learns that it
//! was fenced.
//!
//! **How two twins end.** Two processes that hold nothing of each other would live on side by side. So the one that
//! does not hold the first shard stops with `DuplicateOwner`.
//!
//! **The one case that an epoch does not decide** is a take whose response was lost; see `unconfirmed.rs`. If its write
//! arrives late, the row looks like one of a twin. Nobody renews it, so it expires after a time to live. Only a row
//! that lives longer shows a twin. Each row counts alone: two such takes, one after the other, show none.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::{Duration, Instant};

use crate::{
    coordination::expiry::Unobserved,
    lease::{Lease, Take},
    types::id::ShardId,
};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ownership {
    by_shard: BTreeMap<ShardId, OwnedEpochs>,
    has_adopted: bool,
    /// The live rows of a twin with their epochs, and since when every read of the table has shown them.
    twins: BTreeMap<ShardId, (u64, Instant)>,
}

/// The epochs of one shard's row that are this instance's own: before its last take, and after it. Until the take has a
/// response, both are.
#[derive(Debug)]
struct OwnedEpochs {
    before: Option<u64>,
    after: Option<u64>,
}

impl Ownership {
    /// At the first read of the table, adopts the rows that an earlier process left under this owner id.
    pub(super) fn adopt(&mut self, rows: &[Lease], me: &Arc<str>) {
        if !self.has_adopted {
            self.has_adopted = true;
            let left = rows.iter().filter(|row| row.owner.as_ref() == Some(me));
            let owned = |row: &Lease| OwnedEpochs { before: None, after: Some(row.epoch) };
            self.by_shard = left.map(|row| (row.key.shard.clone(), owned(row))).collect();
        }
    }

    /// Records that a take was sent.
    pub(super) fn take_sent(&mut self, take: &Take) {
        let seen = take.seen.map_or(0, |seen| seen.epoch);
        let before = self.has_epoch(&take.key.shard, seen).then_some(seen);
        self.by_shard.insert(take.key.shard.clone(), OwnedEpochs { before, after: seen.checked_add(1) });
    }

    /// Records that the take was refused.
    pub(super) fn take_refused(&mut self, take: &Take) {
        if let Some(owned) = self.by_shard.get_mut(&take.key.shard) {
            owned.after = None;
        }
    }

    /// Forgets a shard that left the stream.
    pub(super) fn forget(&mut self, shard: &ShardId) {
        self.by_shard.remove(shard);
    }

    /// Whether a row under this owner id is this instance's own.
    pub(super) fn has(&self, row: &Lease) -> bool {
        self.has_epoch(&row.key.shard, row.epoch)
    }

    fn has_epoch(&self, shard: &ShardId, epoch: u64) -> bool {
        self.by_shard.get(shard).is_some_and(|owned| [owned.before, owned.after].contains(&Some(epoch)))
    }

    /// Whether a twin took the shard after this instance did.
    pub(super) fn is_overtaken(&self, row: &Lease) -> bool {
        let newest = self.by_shard.get(&row.key.shard).and_then(|owned| owned.after.max(owned.before));
        newest.is_some_and(|newest| newest < row.epoch)
    }

    /// Checks the rows under this owner id whose owner is alive. Returns the row of a twin to which this instance
    /// yields.
    ///
    /// Both processes see the same rows, and the one that holds the first row continues. A process that was overtaken
    /// learns it from the row, so this decides between two that have taken nothing from each other.
    pub(super) fn yields_to<'a>(
        &mut self,
        alive: impl Iterator<Item = &'a Lease>,
        patience: Duration,
        (unobserved, now): (Unobserved, Instant),
    ) -> Option<&'a Lease> {
        let (own, twins): (Vec<_>, Vec<_>) = alive.partition(|row| self.has(row));
        let since = |row: &Lease| {
            let before = self.twins.get(&row.key.shard).filter(|(epoch, _)| *epoch == row.epoch);
            before.map_or(now, |(_, since)| unobserved.leave_out(*since, now))
        };
        self.twins = twins.iter().map(|row| (row.key.shard.clone(), (row.epoch, since(row)))).collect();
        let shard = |row: &&'a Lease| &row.key.shard;
        let renewed = twins.into_iter().filter(|row| now >= self.twins[&row.key.shard].1 + patience);
        let first = renewed.min_by_key(shard)?;
        let is_first = own.into_iter().min_by_key(shard).is_none_or(|own| first.key.shard < own.key.shard);
        is_first.then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{LeaseKey, Seen};

    const TTL: Duration = Duration::from_secs(10);

    const ALL: Unobserved = Unobserved::Part(Duration::ZERO);

    fn row(shard: &str, epoch: u64) -> Lease {
        Lease {
            key: LeaseKey { consumer: "c".into(), stream: "s".into(), shard: shard.into() },
            owner: Some("twin".into()),
            epoch,
            counter: epoch,
            checkpoint: None,
            parents: Vec::new(),
            stream_created: None,
            wanted_by: None,
            is_foreign: false,
            ttl: None,
        }
    }

    fn take(shard: &str, seen: Option<u64>) -> Take {
        Take {
            key: row(shard, 0).key,
            owner: "twin".into(),
            ttl: None,
            seen: seen.map(|epoch| Seen { epoch, counter: epoch }),
            parents: Vec::new(),
            stream_created: None,
            forget_checkpoint: false,
            since: None,
        }
    }

    // E4
    #[test]
    fn a_lease_is_mine_if_i_took_it_or_it_was_mine_at_start() {
        let mut ownership = Ownership::default();
        ownership.adopt(&[row("a", 4)], &"twin".into());
        ownership.adopt(&[row("a", 4), row("b", 1)], &"twin".into());
        assert_eq!(
            (ownership.has(&row("a", 4)), ownership.has(&row("a", 5)), ownership.has(&row("b", 1))),
            (true, false, false)
        );
        // Until the take has a response, both epochs are.
        ownership.take_sent(&take("a", Some(4)));
        assert_eq!([3, 4, 5].map(|epoch| ownership.has(&row("a", epoch))), [false, true, true]);
        ownership.take_refused(&take("a", Some(4)));
        assert_eq!([4, 5].map(|epoch| ownership.has(&row("a", epoch))), [true, false]);
        // A lease taken from another instance is its own from then on.
        ownership.take_sent(&take("b", Some(2)));
        assert_eq!([2, 3].map(|epoch| ownership.has(&row("b", epoch))), [false, true]);
        ownership.take_sent(&take("c", None));
        ownership.take_refused(&take("c", None));
        assert!(!ownership.has(&row("c", 1)));
    }

    // E4
    #[test]
    fn a_lease_of_mine_with_a_later_epoch_is_overtaken() {
        let mut ownership = Ownership::default();
        ownership.take_sent(&take("a", None));
        let overtaken = [row("a", 1), row("a", 2), row("b", 9)].map(|row| ownership.is_overtaken(&row));
        assert_eq!(overtaken, [false, true, false]);
    }

    // E4
    #[test]
    fn of_two_live_twins_the_one_without_the_first_shard_yields_after_a_time_to_live() {
        let (mut first, mut second) = (Ownership::default(), Ownership::default());
        first.take_sent(&take("a", None));
        second.take_sent(&take("b", None));
        let rows = [row("a", 1), row("b", 1)];
        let start = Instant::now();
        for (seconds, yields) in [(0, false), (9, false), (10, true)] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(first.yields_to(rows.iter(), TTL, (ALL, now)), None);
            assert_eq!(second.yields_to(rows.iter(), TTL, (ALL, now)).is_some(), yields, "{seconds} s");
        }
        // An instance without a lease yields to one with a lease.
        let mut none = Ownership::default();
        none.yields_to(rows.iter(), TTL, (ALL, start));
        assert_eq!(none.yields_to(rows.iter(), TTL, (ALL, start + TTL)), Some(&rows[0]));
        // A read of the table without the row of a twin restarts the time.
        assert_eq!(second.yields_to(rows[1..].iter(), TTL, (ALL, start + TTL)), None);
        assert_eq!(second.yields_to(rows.iter(), TTL, (ALL, start + TTL)), None);
    }

    // E4
    #[test]
    fn takes_whose_writes_arrive_late_one_after_the_other_show_no_twin() {
        let start = Instant::now();
        let mut ownership = Ownership::default();
        // The seconds of the reads, and the rows under this owner id that were written less than a time to live ago.
        let table: [(u64, &[Lease]); 8] = [
            (0, &[row("a", 4)]),
            (3, &[row("a", 4)]),
            (6, &[row("a", 4), row("b", 7)]),
            (9, &[row("a", 4), row("b", 7)]),
            (10, &[row("b", 7)]),
            (13, &[row("a", 6), row("b", 7)]),
            (15, &[row("a", 6), row("b", 8)]),
            (18, &[row("a", 6), row("b", 8)]),
        ];
        for (seconds, alive) in table {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(ownership.yields_to(alive.iter(), TTL, (ALL, now)), None, "{seconds} s");
        }
        // After an outage of the store, the time begins anew. A row that lives on is renewed by a twin.
        let twins = [row("a", 6)];
        for (seconds, unobserved, yields) in [(30, Unobserved::Outage, false), (39, ALL, false), (40, ALL, true)] {
            let now = start + Duration::from_secs(seconds);
            let row = ownership.yields_to(twins.iter(), TTL, (unobserved, now));
            assert_eq!(row.is_some(), yields, "{seconds} s");
        }
    }
}
