//! The names of a row's attributes: those of the Kinesis Client Library (KCL), and those of this library.

use std::collections::HashMap;

use aws_sdk_dynamodb::types::AttributeValue;

/// A row as DynamoDB stores it.
pub(super) type Item = HashMap<String, AttributeValue>;

/// S, the hash key.
pub(super) const KEY: &str = "leaseKey";
/// S; absent while the row is free.
pub(super) const OWNER: &str = "leaseOwner";
/// N
pub(super) const COUNTER: &str = "leaseCounter";
/// S: a sequence number, or a word of the KCL such as `TRIM_HORIZON`.
pub(super) const CHECKPOINT: &str = "checkpoint";
/// N: the place inside an aggregated record.
pub(super) const SUB_SEQUENCE: &str = "checkpointSubSequenceNumber";
/// N
pub(super) const SWITCHES: &str = "ownerSwitchesSinceCheckpoint";
/// SS; absent if there are none.
pub(super) const PARENTS: &str = "parentShardId";
/// S: the worker that still reads while the KCL hands a lease over. A take ends the hand-over.
pub(super) const CHECKPOINT_OWNER: &str = "checkpointOwner";
/// S: absent in rows that are leases, or [`LEASE`].
pub(super) const ENTITY_TYPE: &str = "entityType";
/// The pending half of a two-phase checkpoint. As in the KCL, every stored checkpoint ends it.
pub(super) const PENDING: [&str; 3] =
    ["pendingCheckpoint", "pendingCheckpointSubSequenceNumber", "pendingCheckpointState"];

/// N, ours; absent in rows that only the KCL wrote.
pub(super) const EPOCH: &str = "epoch";
/// N, ours: Unix milliseconds.
pub(super) const STREAM_CREATED: &str = "streamCreated";
/// S, ours.
pub(super) const WANTED_BY: &str = "wantedBy";
/// S, ours: the id of the take that made the owner the owner. The holder's writes keep it, and so does the KCL.
pub(super) const TAKE_ID: &str = "takeId";
/// S, ours: `Checkpoint::At`, for which the KCL has no text.
pub(super) const OPEN_AT_SEQUENCE: &str = "openAtSequenceNumber";
/// N, ours: `Checkpoint::Since`.
pub(super) const OPEN_AT_TIMESTAMP: &str = "openAtTimestamp";
/// BOOL, ours: there is no checkpoint, a state that the KCL does not allow.
pub(super) const OPEN_AT_INITIAL: &str = "openAtInitialPosition";

/// The value of [`ENTITY_TYPE`] for leases.
pub(super) const LEASE: &str = "LEASE";

/// The words that stand in place of a sequence number.
pub(super) const TRIM_HORIZON: &str = "TRIM_HORIZON";
pub(super) const LATEST: &str = "LATEST";
pub(super) const AT_TIMESTAMP: &str = "AT_TIMESTAMP";
pub(super) const SHARD_END: &str = "SHARD_END";

pub(super) fn text(text: impl Into<String>) -> AttributeValue {
    AttributeValue::S(text.into())
}

pub(super) fn number<N: ToString + Copy>(number: N) -> AttributeValue {
    AttributeValue::N(number.to_string())
}
