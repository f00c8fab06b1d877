//! What a subscription reports when it has closed.

use crate::types::id::{SequenceNumber, ShardId};

/// What a closed subscription left unsettled or unsaved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CloseReport {
    /// The shards that had unsettled deliveries when their leases were released. These records are redelivered. Empty
    /// after a clean close.
    pub open: Vec<OpenShard>,
    /// The shards whose last checkpoint or release the lease store did not accept. Their leases expire, and the records
    /// settled since the last stored checkpoint are redelivered. Empty after a clean close.
    pub unsaved: Vec<ShardId>,
}

impl CloseReport {
    /// Whether every delivered record is settled and its checkpoint stored.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.open.is_empty() && self.unsaved.is_empty()
    }
}

/// A shard with deliveries that stayed unsettled.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenShard {
    /// The shard.
    pub shard: ShardId,
    /// The number of unsettled deliveries.
    pub deliveries: usize,
    /// The sequence number of the oldest of them.
    pub oldest: SequenceNumber,
}
