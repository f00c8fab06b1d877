//! Which leases of others have run out: those whose row did not change for the time to live of a lease, measured on this
//! process's monotonic clock (E3). Pure, with the time passed in.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::{Duration, Instant};

use crate::{
    lease::{Lease, Seen},
    types::id::ShardId,
};

/// What was seen of each row, and since when it has looked like that.
#[derive(Debug, Default)]
pub(crate) struct ExpiryWatch {
    seen: BTreeMap<ShardId, LastSeen>,
}

#[derive(Debug)]
struct LastSeen {
    state: Seen,
    owner: Option<Arc<str>>,
    wanted_by: Option<Arc<str>>,
    since: Instant,
}

impl LastSeen {
    /// Whether the owner has done nothing since. That somebody else asked for the shard, which moves the counter once, is no
    /// sign of its life.
    fn is_unchanged(&self, row: &Lease) -> bool {
        let asks = u64::from(self.wanted_by != row.wanted_by);
        self.owner == row.owner
            && self.state.epoch == row.epoch
            && self.state.counter.checked_add(asks) == Some(row.counter)
    }
}

impl ExpiryWatch {
    /// Takes note of all rows. Those that are gone are forgotten.
    pub(crate) fn observe(&mut self, rows: &[Lease], now: Instant) {
        let seen = rows.iter().map(|row| {
            let before = self.seen.get(&row.key.shard).filter(|last| last.is_unchanged(row));
            let last = LastSeen {
                state: row.seen(),
                owner: row.owner.clone(),
                wanted_by: row.wanted_by.clone(),
                since: before.map_or(now, |last| last.since),
            };
            (row.key.shard.clone(), last)
        });
        self.seen = seen.collect();
    }

    /// Whether the row has stood still for this long: a lease that does so for its time to live has run out.
    pub(crate) fn is_unchanged_for(&self, shard: &ShardId, time: Duration, now: Instant) -> bool {
        self.seen.get(shard).is_some_and(|last| now >= last.since + time)
    }

    /// When the first lease of somebody else will have run out that had not by this moment, if nothing moves.
    pub(crate) fn next_expiry(&self, me: &str, ttl: Duration, now: Instant) -> Option<Instant> {
        let of_others = self.seen.values().filter(|last| last.owner.as_deref().is_some_and(|owner| owner != me));
        of_others.map(|last| last.since + ttl).filter(|at| *at > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::LeaseKey;

    const TTL: Duration = Duration::from_secs(10);

    fn row(epoch: u64, counter: u64) -> Lease {
        Lease {
            key: LeaseKey { consumer: "c".into(), stream: "s".into(), shard: "a".into() },
            owner: Some("other".into()),
            epoch,
            counter,
            checkpoint: None,
            parents: Vec::new(),
            stream_created: None,
            wanted_by: None,
        }
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    // E3
    #[test]
    fn a_lease_runs_out_when_its_row_stands_still_for_its_time_to_live() {
        let (start, shard) = (Instant::now(), ShardId::new("a"));
        let mut expiry = ExpiryWatch::default();
        expiry.observe(&[row(1, 1)], start);
        expiry.observe(&[row(1, 1)], start + seconds(9));
        assert!(!expiry.is_unchanged_for(&shard, TTL, start + seconds(9)));
        assert!(expiry.is_unchanged_for(&shard, TTL, start + seconds(10)));
    }

    // E3
    #[test]
    fn a_counter_that_moves_starts_the_time_anew() {
        let (start, shard) = (Instant::now(), ShardId::new("a"));
        let mut expiry = ExpiryWatch::default();
        expiry.observe(&[row(1, 1)], start);
        expiry.observe(&[row(1, 2)], start + seconds(9));
        assert!(!expiry.is_unchanged_for(&shard, TTL, start + seconds(18)));
        assert!(expiry.is_unchanged_for(&shard, TTL, start + seconds(19)));
    }

    // E3, D1
    #[test]
    fn an_ask_is_no_sign_of_life_but_whatever_comes_with_it_is() {
        let (start, shard) = (Instant::now(), ShardId::new("a"));
        for (counter, expires) in [(2, true), (3, false)] {
            let mut expiry = ExpiryWatch::default();
            expiry.observe(&[row(1, 1)], start);
            let asked = Lease { wanted_by: Some("me".into()), ..row(1, counter) };
            expiry.observe(std::slice::from_ref(&asked), start + seconds(9));
            expiry.observe(&[asked], start + seconds(10));
            assert_eq!(expiry.is_unchanged_for(&shard, TTL, start + seconds(10)), expires);
        }
    }

    // E5
    #[test]
    fn the_next_lease_to_run_out_is_one_of_others_and_not_one_that_has() {
        let (start, ttl) = (Instant::now(), TTL);
        let mut expiry = ExpiryWatch::default();
        expiry.observe(&[row(1, 1)], start);
        assert_eq!(expiry.next_expiry("me", ttl, start + seconds(9)), Some(start + seconds(10)));
        assert_eq!(expiry.next_expiry("me", ttl, start + seconds(10)), None);
        assert_eq!(expiry.next_expiry("other", ttl, start), None);
    }

    // E3
    #[test]
    fn a_row_that_was_never_seen_has_not_run_out() {
        assert!(!ExpiryWatch::default().is_unchanged_for(&ShardId::new("a"), TTL, Instant::now()));
    }
}
