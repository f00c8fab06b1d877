//! The calls as a trait, and the values that they take.

use std::fmt;

use bytes::Bytes;
use futures::future::BoxFuture;

use crate::{
    config::position::Origin,
    error::service::ServiceFailure,
    kinesis::answers::{Described, Fetched, ListedPage, Placed, Put},
    types::id::ShardId,
};

/// The future of one call.
pub(crate) type Call<'a, T> = BoxFuture<'a, Result<T, ServiceFailure>>;

/// Which page of a listing to ask for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Listing<'a> {
    /// The first page of this stream.
    Stream(&'a str),
    /// The page that this token names. The request then names no stream.
    Token(&'a str),
}

/// One entry of PutRecords, or the record of a PutRecord.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PutEntry {
    pub(crate) partition_key: String,
    /// Takes precedence over the hash of the partition key.
    pub(crate) explicit_hash_key: Option<u128>,
    /// The payload, with the envelope of its headers if it has one.
    pub(crate) data: Bytes,
}

/// The calls. Each call ends within bounded time, because each attempt has a timeout. Dropping a future abandons its
/// call.
pub(crate) trait Service: fmt::Debug + Send + Sync + 'static {
    /// DescribeStreamSummary.
    fn describe<'a>(&'a self, stream: &'a str) -> Call<'a, Described>;

    /// CreateStream.
    fn create<'a>(&'a self, stream: &'a str, shards: u32) -> Call<'a, ()>;

    /// ListShards, one page.
    fn list<'a>(&'a self, from: Listing<'a>) -> Call<'a, ListedPage>;

    /// GetShardIterator.
    fn place<'a>(&'a self, stream: &'a str, shard: &'a ShardId, origin: &'a Origin) -> Call<'a, Placed>;

    /// GetRecords, one attempt: no implementation retries a throttled or failed call.
    fn read<'a>(&'a self, iterator: &'a str, limit: u32) -> Call<'a, Fetched>;

    /// PutRecord.
    fn put<'a>(&'a self, stream: &'a str, entry: PutEntry) -> Call<'a, Put>;

    /// PutRecords, one attempt as for [`read`](Self::read). Returns one result for each entry, in their order.
    fn put_all<'a>(&'a self, stream: &'a str, entries: Vec<PutEntry>) -> Call<'a, Vec<Result<Put, ServiceFailure>>>;
}
