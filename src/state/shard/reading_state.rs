//! How far the reading of a shard is, under one lease.

use tokio::time::Instant;

/// How far reading is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Running,
    /// The tip was reached, and reading stops there.
    AtTip,
    /// The service has no more records. Some may not be delivered yet.
    AtEnd,
    /// `SHARD_END` is in the row.
    EndStored,
}

impl Reading {
    /// Whether records of the shard are still to be read or settled.
    pub(super) fn is_open(self) -> bool {
        self != Self::EndStored
    }

    /// Whether the lease counts towards this instance's maximum: at the tip and after the end nothing more is read.
    pub(super) fn is_working(self) -> bool {
        matches!(self, Self::Running | Self::AtEnd)
    }

    pub(super) fn is_at_tip(self) -> bool {
        self == Self::AtTip
    }

    pub(super) fn is_at_end(self) -> bool {
        matches!(self, Self::AtEnd | Self::EndStored)
    }
}

/// A snapshot of a lease term.
#[derive(Clone, Copy, Debug)]
pub(super) struct TermView {
    pub(super) epoch: u64,
    pub(super) deadline: Instant,
    pub(super) reading: Reading,
    pub(super) is_leaving: bool,
    pub(super) is_handed_over: bool,
}

impl TermView {
    /// Whether a seek can move the shard: its end is not stored, and this instance keeps the lease.
    pub(super) fn can_move(&self) -> bool {
        self.reading.is_open() && !self.is_leaving
    }
}
