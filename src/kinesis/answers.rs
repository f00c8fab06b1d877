//! The values that the calls return.

use std::time::Duration;

use bytes::Bytes;

use crate::types::id::{SequenceNumber, ShardId};

/// A time by the service's own clock, in Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServiceTime(pub(crate) i64);

/// The state of a stream, from DescribeStreamSummary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamStatus {
    /// Being created: not usable yet.
    Creating,
    /// Usable: active, or being updated.
    Usable,
    /// Being deleted.
    Deleting,
}

/// The response to DescribeStreamSummary.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub(crate) status: StreamStatus,
    /// When the stream was created, in Unix milliseconds.
    pub(crate) created: Option<i64>,
    /// How long the stream keeps records.
    pub(crate) retention: Option<Duration>,
    /// When the service answered.
    pub(crate) now: Option<ServiceTime>,
}

/// A shard as ListShards or the last page of its parent describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedShard {
    pub(crate) id: ShardId,
    /// None, one (a split) or two (a merge).
    pub(crate) parents: Vec<ShardId>,
    /// A closed shard takes no new records. Readers can still read the records that it holds.
    pub(crate) closed: bool,
}

/// The response to ListShards: one page of a listing.
#[derive(Clone, Debug)]
pub(crate) struct ListedPage {
    pub(crate) shards: Vec<ListedShard>,
    /// The token of the next page; none on the last.
    pub(crate) next: Option<String>,
}

/// The response to GetShardIterator.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) iterator: String,
    /// When the service answered.
    pub(crate) now: Option<ServiceTime>,
}

/// A record as GetRecords returns it, before it is decoded.
#[derive(Clone, Debug)]
pub(crate) struct RawRecord {
    pub(crate) data: Bytes,
    /// The service leaves it out if the stream itself distributes records over its shards.
    pub(crate) partition_key: Option<String>,
    /// The string that the SDK allocated. It is converted record by record: an allocator spends many times more on
    /// values that are allocated for a whole page at once, and freed at once, than on values that live as briefly as
    /// their record.
    pub(crate) sequence_number: String,
    /// Roughly when the record arrived, in Unix milliseconds.
    pub(crate) arrived_at: Option<i64>,
}

/// The response to GetRecords.
#[derive(Clone, Debug)]
pub(crate) struct Fetched {
    pub(crate) records: Vec<RawRecord>,
    /// The iterator of the next read; none at the end of a closed shard.
    pub(crate) next: Option<String>,
    /// How far this response lags behind the tip of the shard, in milliseconds.
    pub(crate) behind: Option<i64>,
    /// At the end of a shard: its children, if the service names them.
    pub(crate) children: Vec<ListedShard>,
}

/// The response to PutRecord, and to one entry of PutRecords.
#[derive(Clone, Debug)]
pub(crate) struct Put {
    pub(crate) shard: ShardId,
    pub(crate) sequence_number: SequenceNumber,
}
