//! The handful of calls that are made on Kinesis, as a private trait.
//!
//! Everything above this seam speaks of values of this crate: [`sdk`] is the one place that knows the SDK's types, and
//! [`classify`](crate::aws::classify) the one that turns its errors into a [`ServiceFailure`]. Tests of time-driven logic put a scripted
//! service here.

use std::{fmt, time::Duration};

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::{
    config::position::Origin,
    error::service::ServiceFailure,
    types::id::{SequenceNumber, ShardId},
};

mod date_header;
mod sdk;

pub(crate) use self::sdk::SdkService;

/// The future of one call.
pub(crate) type Call<'a, T> = BoxFuture<'a, Result<T, ServiceFailure>>;

/// A moment by the service's own clock, in Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ServiceTime(pub(crate) i64);

/// The state of a stream, as DescribeStreamSummary tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamStatus {
    /// Being created: not yet usable.
    Creating,
    /// Usable: active, or being changed.
    Usable,
    /// Being deleted.
    Deleting,
}

/// The answer of DescribeStreamSummary.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    pub(crate) status: StreamStatus,
    /// When the stream was created, in Unix milliseconds.
    pub(crate) created: Option<i64>,
    /// How long records are kept.
    pub(crate) retention: Option<Duration>,
    /// When the service answered.
    pub(crate) now: Option<ServiceTime>,
}

/// A shard as ListShards or the last page of its parent tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedShard {
    pub(crate) id: ShardId,
    /// None, one (a split) or two (a merge).
    pub(crate) parents: Vec<ShardId>,
    /// It takes no new records. What it holds is still read.
    pub(crate) closed: bool,
}

/// Where a listing begins or goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Listing<'a> {
    /// The first page of this stream.
    Stream(&'a str),
    /// The page that this token names; a token stands alone.
    Token(&'a str),
}

/// One page of a listing.
#[derive(Clone, Debug)]
pub(crate) struct ListedPage {
    pub(crate) shards: Vec<ListedShard>,
    /// The token of the next page; none on the last.
    pub(crate) next: Option<String>,
}

/// A shard iterator that was just placed.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    pub(crate) iterator: String,
    /// When the service answered.
    pub(crate) now: Option<ServiceTime>,
}

/// A record as it was read, before anything is made of it.
#[derive(Clone, Debug)]
pub(crate) struct RawRecord {
    pub(crate) data: Bytes,
    /// The service leaves it out where a stream distributes records by itself.
    pub(crate) partition_key: Option<String>,
    /// As the SDK allocated it. What is allocated for every record of a page at once, and freed at once, costs the
    /// allocator many times what comes and goes with each.
    pub(crate) sequence_number: String,
    /// When the record arrived, roughly, in Unix milliseconds.
    pub(crate) arrived_at: Option<i64>,
}

/// The answer of GetRecords.
#[derive(Clone, Debug)]
pub(crate) struct Fetched {
    pub(crate) records: Vec<RawRecord>,
    /// The iterator of the next read; none at the end of a closed shard.
    pub(crate) next: Option<String>,
    /// How far the answer is behind the tip of the shard, in milliseconds.
    pub(crate) behind: Option<i64>,
    /// With the end of a shard, its children, if the service tells them.
    pub(crate) children: Vec<ListedShard>,
}

/// A record as it goes out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) partition_key: String,
    /// Goes before the hash of the partition key.
    pub(crate) explicit_hash_key: Option<u128>,
    /// The envelope of its headers included.
    pub(crate) data: Bytes,
}

/// The answer of PutRecord, and of PutRecords for one entry.
#[derive(Clone, Debug)]
pub(crate) struct Put {
    pub(crate) shard: ShardId,
    pub(crate) sequence_number: SequenceNumber,
}

/// The calls. Each gives up by itself in bounded time; dropping a future abandons the call.
pub(crate) trait Service: fmt::Debug + Send + Sync + 'static {
    fn describe<'a>(&'a self, stream: &'a str) -> Call<'a, Described>;

    fn create<'a>(&'a self, stream: &'a str, shards: u32) -> Call<'a, ()>;

    fn list<'a>(&'a self, from: Listing<'a>) -> Call<'a, ListedPage>;

    /// GetShardIterator.
    fn place<'a>(&'a self, stream: &'a str, shard: &'a ShardId, origin: &'a Origin) -> Call<'a, Placed>;

    /// GetRecords, once: a throttled or failed call is never repeated below this seam.
    fn read<'a>(&'a self, iterator: &'a str, limit: u32) -> Call<'a, Fetched>;

    fn put<'a>(&'a self, stream: &'a str, entry: Entry) -> Call<'a, Put>;

    /// PutRecords, once, as [`read`](Self::read): a result for each entry, in their order.
    fn put_all<'a>(&'a self, stream: &'a str, entries: Vec<Entry>) -> Call<'a, Vec<Result<Put, ServiceFailure>>>;
}
