//! The result of committing a delivery.

/// The result of committing a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Commit {
    /// The lease store holds a checkpoint that covers the record, so the record is not redelivered.
    Stored,
    /// The record is settled, but an earlier record of its shard is still unsettled. A checkpoint covers this record
    /// once the earlier one is settled; if the shard moves before that, the record is redelivered.
    Deferred,
    /// The lease or the generation of the shard under which the record was delivered is over. Nothing was written, and
    /// the record is redelivered, here or by the instance that now holds the shard.
    Superseded,
}
