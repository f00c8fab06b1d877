//! Which leases of others have run out: those whose row did not change for the time to live of a lease, measured on this
//! process's monotonic clock (E3). Pure, with the time passed in.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::{Duration, Instant};

use crate::{
    id::ShardId,
    lease::{Lease, Seen},
};

/// What was seen of each row, and since when it has looked like that.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    seen: BTreeMap<ShardId, (Seen, Option<Arc<str>>, Instant)>,
}

impl Witness {
    /// Takes note of all rows. Those that are gone are forgotten.
    pub(crate) fn observe(&mut self, rows: &[Lease], now: Instant) {
        let seen = rows.iter().map(|row| {
            let state = (row.seen(), row.owner.clone());
            let since = match self.seen.get(&row.key.shard) {
                Some((seen, owner, since)) if (seen, owner) == (&state.0, &state.1) => *since,
                _ => now,
            };
            (row.key.shard.clone(), (state.0, state.1, since))
        });
        self.seen = seen.collect();
    }

    /// Whether the row has stood still for the whole time to live.
    pub(crate) fn has_run_out(&self, shard: &ShardId, ttl: Duration, now: Instant) -> bool {
        self.seen.get(shard).is_some_and(|(.., since)| now >= *since + ttl)
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
        let mut witness = Witness::default();
        witness.observe(&[row(1, 1)], start);
        witness.observe(&[row(1, 1)], start + seconds(9));
        assert!(!witness.has_run_out(&shard, TTL, start + seconds(9)));
        assert!(witness.has_run_out(&shard, TTL, start + seconds(10)));
    }

    // E3
    #[test]
    fn a_counter_that_moves_starts_the_time_anew() {
        let (start, shard) = (Instant::now(), ShardId::new("a"));
        let mut witness = Witness::default();
        witness.observe(&[row(1, 1)], start);
        witness.observe(&[row(1, 2)], start + seconds(9));
        assert!(!witness.has_run_out(&shard, TTL, start + seconds(18)));
        assert!(witness.has_run_out(&shard, TTL, start + seconds(19)));
    }

    // E3
    #[test]
    fn a_row_that_was_never_seen_has_not_run_out() {
        assert!(!Witness::default().has_run_out(&ShardId::new("a"), TTL, Instant::now()));
    }
}
