//! Rows that exist and make no sense, for example because a person edited them.
//!
//! **Such a row holds back its own shard alone.** The shard is neither taken nor requested, and its children wait. All
//! other shards continue. The stream says so when the row is seen first, and again every few minutes.
//!
//! **A holder whose row is spoilt meanwhile** keeps reading as long as its lease is valid. Its writes fail, so the
//! lease is in doubt after a time to live, as with a store that fails.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::{Duration, Instant};

use super::{Coordinator, pass::Pass};
use crate::{
    coordination::lineage::Progress,
    error::{KinesisError, chain::Chain},
    lease::{Leases, UnreadableLease},
    types::id::ShardId,
};

/// How soon an unreadable row is reported again.
const REPORT_INTERVAL: Duration = Duration::from_mins(5);

/// When each unreadable row was last reported.
#[derive(Debug, Default)]
pub(super) struct UnreadableRows {
    reported: BTreeMap<ShardId, Instant>,
}

impl UnreadableRows {
    /// Enters all rows that are unreadable now, and returns those to report.
    fn due_reports<'a>(&mut self, rows: &'a [UnreadableLease], now: Instant) -> Vec<&'a UnreadableLease> {
        self.reported.retain(|shard, _| rows.iter().any(|row| row.key.shard == *shard));
        let mut due = Vec::new();
        for row in rows {
            let last = self.reported.get(&row.key.shard);
            if last.is_none_or(|last| now >= *last + REPORT_INTERVAL) {
                self.reported.insert(row.key.shard.clone(), now);
                due.push(row);
            }
        }
        due
    }
}

impl Coordinator {
    /// Yields an error for each row that makes no sense, when it appears and every few minutes.
    pub(super) fn report_unreadable(&mut self, pass: &Pass<'_>) {
        for UnreadableLease { key, error: source } in self.unreadable.due_reports(&pass.leases.unreadable, pass.now) {
            let (stream, shard) = (Arc::clone(&self.context.stream), Some(key.shard.clone()));
            let source = source.clone();
            let error = KinesisError::Store { stream, shard, action: "reading the row of the lease", source };
            tracing::warn!(
                shard = %key.shard, error = %Chain(&error),
                "the shard is held back, and its children wait: its lease row makes no sense"
            );
            match self.shards.get(&key.shard) {
                Some(shard) => shard.report(error),
                None => self.context.report(Some(key.shard.clone()), error),
            }
        }
    }

    /// The progress of each shard whose row makes no sense. This instance knows the shards that it reads itself.
    pub(super) fn progress_unreadable(&self, leases: &Leases) -> impl Iterator<Item = (ShardId, Progress)> {
        leases.unreadable.iter().map(|row| {
            let shard = self.shards.get(&row.key.shard);
            let is_read_here = shard.is_some_and(|shard| shard.view().can_move());
            (row.key.shard.clone(), if is_read_here { Progress::Begun } else { Progress::Unreadable })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{error::service::StoreError, lease::LeaseKey};

    // E6
    #[test]
    fn an_unreadable_row_is_reported_when_it_appears_and_every_five_minutes() {
        let start = Instant::now();
        let mut reports = UnreadableRows::default();
        // Seconds, the unreadable rows, and which of them to report.
        let table: [(u64, &[&str], &[&str]); 7] = [
            (0, &["a"], &["a"]),
            (3, &["a", "b"], &["b"]),
            (299, &["a", "b"], &[]),
            (300, &["a", "b"], &["a"]),
            (303, &["b"], &["b"]),
            (306, &["a", "b"], &["a"]),
            (602, &["a", "b"], &[]),
        ];
        for (seconds, unreadable, due) in table {
            let row = |shard: &&str| UnreadableLease {
                key: LeaseKey::new("c", "s", *shard),
                error: StoreError::new("spoilt"),
            };
            let rows: Vec<_> = unreadable.iter().map(row).collect();
            let told = reports.due_reports(&rows, start + Duration::from_secs(seconds));
            let told: Vec<_> = told.into_iter().map(|row| row.key.shard.as_str()).collect();
            assert_eq!(told, due, "{seconds} s");
        }
    }
}
