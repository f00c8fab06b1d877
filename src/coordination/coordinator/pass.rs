//! The lease rows of one pass of the coordinator.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::{
    lease::{Lease, Leases},
    types::id::ShardId,
};

/// The lease rows of one pass.
pub(super) struct Pass<'a> {
    pub(super) leases: &'a Leases,
    /// The rows that can be read.
    pub(super) rows: &'a [Lease],
    by_shard: BTreeMap<&'a ShardId, &'a Lease>,
    /// When the rows were read.
    pub(super) now: Instant,
    /// A listing ended since the pass before.
    pub(super) after_listing: bool,
}

impl<'a> Pass<'a> {
    pub(super) fn new(leases: &'a Leases, after_listing: bool, now: Instant) -> Self {
        let rows = &leases.rows;
        Self { leases, rows, by_shard: rows.iter().map(|row| (&row.key.shard, row)).collect(), now, after_listing }
    }

    /// The shards whose rows make no sense.
    pub(super) fn unreadable(&self) -> impl Iterator<Item = &'a ShardId> {
        self.leases.unreadable.iter().map(|row| &row.key.shard)
    }

    /// The row of a shard, if it has one that can be read.
    pub(super) fn row(&self, shard: &ShardId) -> Option<&'a Lease> {
        self.by_shard.get(shard).copied()
    }
}
