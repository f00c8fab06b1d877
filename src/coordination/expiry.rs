//! Which leases of other instances have expired: those whose row did not change for a lease's time to live, measured on
//! this process's monotonic clock (E3). Pure, with the time passed in.
//!
//! **No store has a clock.** Every write moves a counter in the row. An observer considers a lease dead when the
//! counter has not moved for a time to live on the observer's own monotonic clock.
//!
//! **Why an owner stops before another instance can take over.** The owner counts from the sending time of its last
//! successful write. Every observer counts from when it saw the row move, which is never earlier. So the owner stops
//! delivering first, as long as both clocks run at the same speed. Where they do not, the epoch in every write still
//! protects the row.
//!
//! **Only time in which the observer could look counts.** While the lease store is away, no owner can renew. An
//! observer that counted this time would find every lease expired after an outage. See [`TableReads`].

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::{Duration, Instant};

use crate::{
    lease::{Lease, Seen},
    types::id::ShardId,
};

/// The longest time to live of another owner that counts.
const LONGEST_TTL: Duration = Duration::from_hours(1);

/// The reads of the lease table that succeeded.
///
/// Less than two renewal intervals between two of them is normal and counts in full. If there is more, at least one
/// read failed or took long. Then one interval counts, so that a dead owner is still noticed where many reads fail.
/// More than three intervals, and more than half a time to live, are an outage: no row is known to have stood still
/// since before.
#[derive(Debug)]
pub(crate) struct TableReads {
    interval: Duration,
    outage: Duration,
    last: Option<Instant>,
}

/// What does not count of the time between two reads of the lease table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unobserved {
    /// This part of it.
    Part(Duration),
    /// Neither it nor the time before.
    Outage,
}

impl TableReads {
    /// For an instance that reads the leases once per `interval`, and whose leases live for `ttl`.
    pub(crate) fn new(interval: Duration, ttl: Duration) -> Self {
        Self { interval, outage: (3 * interval).max(ttl / 2), last: None }
    }

    /// Notes a read that succeeded, and returns what does not count of the time since the last one. The time that a
    /// read takes is time in which the observer looks: a large table is slow to read, and its owners can still renew.
    pub(crate) fn answered(&mut self, asked_at: Instant, answered_at: Instant) -> Unobserved {
        let last = self.last.replace(answered_at);
        let time = last.map_or(Duration::ZERO, |last| asked_at.saturating_duration_since(last));
        if time < 2 * self.interval {
            Unobserved::Part(Duration::ZERO)
        } else if time <= self.outage {
            Unobserved::Part(time.saturating_sub(self.interval))
        } else {
            Unobserved::Outage
        }
    }
}

impl Unobserved {
    /// The time from which to count what began at `since` and has gone on until `now`.
    pub(crate) fn leave_out(self, since: Instant, now: Instant) -> Instant {
        match self {
            Self::Part(time) => (since + time).min(now),
            Self::Outage => now,
        }
    }
}

/// The last state of each row, and since when the row has been in it.
#[derive(Debug, Default)]
pub(crate) struct ExpiryWatch {
    seen: BTreeMap<ShardId, LastSeen>,
    /// When the rows were asked for: a slow answer shows them as they were at any time since.
    asked_at: Option<Instant>,
}

#[derive(Debug)]
struct LastSeen {
    state: Seen,
    owner: Option<Arc<str>>,
    wanted_by: Option<Arc<str>>,
    /// The time to live that the owner named.
    ttl: Option<Duration>,
    since: Instant,
}

impl LastSeen {
    /// The longer one of this time to live and the owner's. A row can hold anything, so the owner's has a bound.
    fn time_to_live(&self, ttl: Duration) -> Duration {
        self.ttl.map_or(ttl, |owners| owners.min(LONGEST_TTL).max(ttl))
    }

    /// Whether the owner has written nothing since. Another instance's request for the shard moves the counter once; it
    /// does not show that the owner lives.
    fn is_unchanged(&self, row: &Lease) -> bool {
        let asks = u64::from(self.wanted_by != row.wanted_by);
        self.owner == row.owner
            && self.state.epoch == row.epoch
            && self.state.counter.checked_add(asks) == Some(row.counter)
    }
}

impl ExpiryWatch {
    /// The rows that are observed next were asked for at this time.
    pub(crate) fn asked(&mut self, at: Instant) {
        self.asked_at = Some(at);
    }

    /// Records the state of all rows, and forgets rows that no longer exist.
    pub(crate) fn observe(&mut self, rows: &[Lease], unobserved: Unobserved, now: Instant) {
        let seen = rows.iter().map(|row| {
            let before = self.seen.get(&row.key.shard).filter(|last| last.is_unchanged(row));
            let last = LastSeen {
                state: row.seen(),
                owner: row.owner.clone(),
                wanted_by: row.wanted_by.clone(),
                ttl: row.ttl,
                since: before.map_or(now, |last| unobserved.leave_out(last.since, now)),
            };
            (row.key.shard.clone(), last)
        });
        self.seen = seen.collect();
    }

    /// Whether the lease has expired: its row has not changed for the time to live of this instance, and for that of
    /// its owner.
    pub(crate) fn is_expired(&self, shard: &ShardId, ttl: Duration, now: Instant) -> bool {
        let now = self.judged_at(now);
        self.seen.get(shard).is_some_and(|last| now >= last.since + last.time_to_live(ttl))
    }

    /// Whether the row has not changed for this long.
    pub(crate) fn is_unchanged_for(&self, shard: &ShardId, time: Duration, now: Instant) -> bool {
        let now = self.judged_at(now);
        self.seen.get(shard).is_some_and(|last| now >= last.since + time)
    }

    /// The time up to which the rows are known to stand still: when they were asked for.
    fn judged_at(&self, now: Instant) -> Instant {
        self.asked_at.map_or(now, |asked_at| asked_at.min(now))
    }

    /// When the next lease of another instance expires after `now`, if no row changes until then.
    pub(crate) fn next_expiry(&self, me: &str, ttl: Duration, now: Instant) -> Option<Instant> {
        let of_others = self.seen.values().filter(|last| last.owner.as_deref().is_some_and(|owner| owner != me));
        of_others.map(|last| last.since + last.time_to_live(ttl)).filter(|at| *at > now).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::LeaseKey;

    const TTL: Duration = Duration::from_secs(10);

    /// All the time between two reads counts.
    const ALL: Unobserved = Unobserved::Part(Duration::ZERO);

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
            is_foreign: false,
            ttl: None,
        }
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    // E1, E3
    #[test]
    fn slow_reads_count_as_time_in_which_the_observer_looks() {
        let (start, mut reads) = (Instant::now(), TableReads::new(Duration::from_secs(3), TTL));
        let after = |seconds| start + Duration::from_secs(seconds);
        let seen = [(0, 20), (23, 43), (46, 66)].map(|(asked, answered)| reads.answered(after(asked), after(answered)));
        assert_eq!(seen, [ALL; 3]);
        assert_eq!(reads.answered(after(80), after(81)), Unobserved::Outage);
    }

    // E3
    #[test]
    fn a_lease_expires_when_its_row_does_not_change_for_its_time_to_live() {
        let (start, shard) = (Instant::now(), ShardId::new("a"));
        let mut expiry = ExpiryWatch::default();
        expiry.observe(&[row(1, 1)], ALL, start);
        expiry.observe(&[row(1, 1)], ALL, start + seconds(9));
        assert!(!expiry.is_unchanged_for(&shard, TTL, start + seconds(9)));
        assert!(expiry.is_unchanged_for(&shard, TTL, start + seconds(10)));
    }

    // E3
    #[test]
    fn a_counter_that_moves_restarts_the_time_to_live() {
        let (start, shard) = (Instant::now(), ShardId::new("a"));
        let mut expiry = ExpiryWatch::default();
        expiry.observe(&[row(1, 1)], ALL, start);
        expiry.observe(&[row(1, 2)], ALL, start + seconds(9));
        assert!(!expiry.is_unchanged_for(&shard, TTL, start + seconds(18)));
        assert!(expiry.is_unchanged_for(&shard, TTL, start + seconds(19)));
    }

    // E3, D1
    #[test]
    fn a_request_does_not_show_that_the_owner_lives_but_a_write_next_to_it_does() {
        let (start, shard) = (Instant::now(), ShardId::new("a"));
        for (counter, expires) in [(2, true), (3, false)] {
            let mut expiry = ExpiryWatch::default();
            expiry.observe(&[row(1, 1)], ALL, start);
            let asked = Lease { wanted_by: Some("me".into()), ..row(1, counter) };
            expiry.observe(std::slice::from_ref(&asked), ALL, start + seconds(9));
            expiry.observe(&[asked], ALL, start + seconds(10));
            assert_eq!(expiry.is_unchanged_for(&shard, TTL, start + seconds(10)), expires);
        }
    }

    // E5
    #[test]
    fn the_next_expiry_is_of_another_instances_lease_that_has_not_expired_yet() {
        let (start, ttl) = (Instant::now(), TTL);
        let mut expiry = ExpiryWatch::default();
        expiry.observe(&[row(1, 1)], ALL, start);
        assert_eq!(expiry.next_expiry("me", ttl, start + seconds(9)), Some(start + seconds(10)));
        assert_eq!(expiry.next_expiry("me", ttl, start + seconds(10)), None);
        assert_eq!(expiry.next_expiry("other", ttl, start), None);
    }

    // E3
    #[test]
    fn the_longer_one_of_two_times_to_live_counts() {
        // The owner's seconds, the observer's, and when the lease expires.
        let table = [(None, 10, 10), (Some(5), 10, 10), (Some(60), 10, 60), (Some(1_000_000), 10, 3_600)];
        for (owners, own, expires) in table {
            let (start, shard) = (Instant::now(), ShardId::new("a"));
            let mut expiry = ExpiryWatch::default();
            expiry.observe(&[Lease { ttl: owners.map(seconds), ..row(1, 1) }], ALL, start);
            let is_expired = |second| expiry.is_expired(&shard, seconds(own), start + seconds(second));
            assert_eq!((is_expired(expires - 1), is_expired(expires)), (false, true), "{owners:?}");
            assert_eq!(expiry.next_expiry("me", seconds(own), start), Some(start + seconds(expires)));
        }
    }

    // E3
    #[test]
    fn time_without_a_look_does_not_count() {
        // The time to live; the seconds of the reads that succeeded; the second at which the lease expires.
        let table: [(u64, &[u64], u64); 8] = [
            (10, &[0, 3, 6], 10),
            (10, &[0, 3, 6, 12], 10 + 3),
            (10, &[0, 3, 10], 10 + 4),
            (10, &[0, 7, 14, 21], 10 + 4 + 4 + 4),
            (10, &[0, 3, 12], 10 + 6),
            (10, &[0, 3, 6, 16], 16 + 10),
            (10, &[0, 90, 93], 90 + 10),
            (60, &[0, 3, 30], 60 + 24),
        ];
        for (ttl, reads, expires) in table {
            let (start, shard, ttl) = (Instant::now(), ShardId::new("a"), seconds(ttl));
            let (mut table_reads, mut expiry) = (TableReads::new(seconds(3), ttl), ExpiryWatch::default());
            for read in reads {
                let now = start + seconds(*read);
                expiry.observe(&[row(1, 1)], table_reads.answered(now, now), now);
            }
            let is_expired = |second| expiry.is_unchanged_for(&shard, ttl, start + seconds(second));
            assert_eq!((is_expired(expires - 1), is_expired(expires)), (false, true), "{reads:?}");
        }
    }

    // E3
    #[test]
    fn a_row_that_was_never_seen_has_not_expired() {
        assert!(!ExpiryWatch::default().is_unchanged_for(&ShardId::new("a"), TTL, Instant::now()));
    }
}
