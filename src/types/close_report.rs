//! What a subscription reports when it has closed.

use crate::types::id::{SequenceNumber, ShardId};

/// What a closed subscription left open.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReport {
    /// The shards on which deliveries were still unsettled when the leases were released; their records come again.
    /// Empty after a clean close.
    pub open: Vec<OpenShard>,
    /// The shards whose last checkpoint or release the lease store refused to take: the leases run out by themselves,
    /// and what was settled since the last stored checkpoint comes again. Empty after a clean close.
    pub unsaved: Vec<ShardId>,
}

impl CloseReport {
    /// Whether everything that was handed out is settled and stored.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.open.is_empty() && self.unsaved.is_empty()
    }
}

/// A shard on which deliveries stayed open.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenShard {
    /// The shard.
    pub shard: ShardId,
    /// How many deliveries stayed open.
    pub deliveries: usize,
    /// The oldest of them.
    pub oldest: SequenceNumber,
}
