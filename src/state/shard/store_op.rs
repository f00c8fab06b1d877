//! The store calls that the renewer makes for a lease, and what waiters see of them.

use crate::{config::position::Checkpoint, error::service::StoreError};

/// A store call for the renewer to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreOp {
    /// Store this checkpoint, which covers every record below the offset.
    Save(Checkpoint, u64),
    Release,
    Renew,
}

impl StoreOp {
    /// What the renewer does with it, in words.
    pub(crate) fn doing(&self) -> &'static str {
        match self {
            Self::Save(..) => "storing a checkpoint",
            Self::Release => "releasing the lease",
            Self::Renew => "renewing the lease",
        }
    }

    /// Whether it stores the end of a shard.
    pub(crate) fn ends_shard(&self) -> bool {
        matches!(self, Self::Save(Checkpoint::ShardEnd, _))
    }
}

/// What waiters for the store see. Each lease term has its own, so that a commit that is polled late still sees how its
/// term ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoredProgress {
    /// The row holds a checkpoint.
    pub(crate) has_checkpoint: bool,
    /// The stored checkpoint covers every record below this offset.
    pub(crate) upto: u64,
    /// Failed writes in this term.
    pub(crate) failures: u32,
    /// The error of the last failed write.
    pub(crate) error: Option<StoreError>,
}
