//! The lease rows of one pass of the coordinator.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::{lease::Lease, types::id::ShardId};

/// The lease rows of one pass.
pub(super) struct Pass<'a> {
    pub(super) rows: &'a [Lease],
    by_shard: BTreeMap<&'a ShardId, &'a Lease>,
    /// When the rows were read.
    pub(super) now: Instant,
    /// A listing ended since the pass before.
    pub(super) after_listing: bool,
}

impl<'a> Pass<'a> {
    pub(super) fn new(rows: &'a [Lease], after_listing: bool, now: Instant) -> Self {
        Self { rows, by_shard: rows.iter().map(|row| (&row.key.shard, row)).collect(), now, after_listing }
    }

    /// The row of a shard.
    pub(super) fn row(&self, shard: &ShardId) -> Option<&'a Lease> {
        self.by_shard.get(shard).copied()
    }
}
