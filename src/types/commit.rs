//! The outcome of committing a delivery.

/// What committing a delivery came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Commit {
    /// The lease store holds a checkpoint that covers the record: it is not delivered again.
    Stored,
    /// The record is settled, and an earlier one of its shard is still open. It is covered as soon as that one is; if
    /// the shard moves before, it is delivered again.
    Deferred,
    /// The lease or the opening of the shard under which it was delivered is over. Nothing was written, and the
    /// record is delivered again, here or by the instance that holds the shard now.
    Superseded,
}
