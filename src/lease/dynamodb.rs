//! Leases in a DynamoDB table, which the instances of a consumer share.
//!
//! Read in this order: `write` and `reading` (the calls), `expression` (a conditional write), `row`, `checkpoint` and
//! `attribute` (the format), `keys`, `counters`, `take_id`, `table` and `client`.
//!
//! **Each step is one conditional call,** and its refusal shows the row. The holder's writes are also conditional on
//! the counter, so a call that was abandoned cannot take effect after a later one. A take stores a random id; after a
//! lost response, the id tells this take from another instance's.
//!
//! **The rows have the attributes of the Kinesis Client Library,** so an application can move from it to this library
//! and back.

use std::{fmt, sync::Arc};

use aws_config::SdkConfig;
use aws_sdk_dynamodb::Client;

mod attribute;
mod checkpoint;
mod client;
mod counters;
mod expression;
mod keys;
mod reading;
mod row;
mod table;
mod take_id;
mod write;

use self::{
    attribute::{OWNER, WANTED_BY, text},
    client::{ClientSource, StandardChain},
    counters::Counters,
    keys::Keys,
    table::Table,
};
use crate::{
    aws::config::{self, Access},
    config::position::Checkpoint,
    error::KinesisError,
    lease::{Held, Lease, LeaseKey, LeaseStore, Leases, Seen, StoreFuture, Take, Write},
};

/// Leases in a DynamoDB table. They outlive the process, and the instances of a consumer share them.
///
/// Clones share one connection and one cache of counters. Behind the cargo feature `dynamodb`, off by default.
///
/// ```no_run
/// use kinesis_stream::{DynamoDbLeaseStore, prelude::*};
///
/// # async fn example() -> Result<(), KinesisError> {
/// let leases = DynamoDbLeaseStore::new("quake-leases")?.create_if_missing();
/// let broker = KinesisBroker::new().consumer("quake-archive").lease_store(leases).connect().await?;
/// let quakes = broker.subscribe("quakes").await?;
/// # drop(quakes);
/// # Ok(())
/// # }
/// ```
///
/// # The table
///
/// One table holds the leases of any number of consumers and streams. Its hash key is `leaseKey`, a string; it has no
/// range key, and this library uses no index. [`create_if_missing`](Self::create_if_missing) creates it, or you create
/// it:
///
/// ```text
/// aws dynamodb create-table --table-name quake-leases --billing-mode PAY_PER_REQUEST \
///     --key-schema AttributeName=leaseKey,KeyType=HASH \
///     --attribute-definitions AttributeName=leaseKey,AttributeType=S
/// ```
///
/// Do not set a time to live on it: a row that expires loses its checkpoint.
///
/// # Permissions
///
/// ```json
/// {
///   "Version": "2012-10-17",
///   "Statement": [{
///     "Effect": "Allow",
///     "Action": ["dynamodb:Scan", "dynamodb:GetItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"],
///     "Resource": "arn:aws:dynamodb:REGION:ACCOUNT:table/quake-leases"
///   }]
/// }
/// ```
///
/// [`create_if_missing`](Self::create_if_missing) also needs `dynamodb:CreateTable` and `dynamodb:DescribeTable` if the
/// table is missing. If it exists, neither is called.
///
/// # What it costs
///
/// This is for an instance that holds `s` shards, for one minute, with the default intervals. A row has about 400
/// bytes. A write of up to 1 KB is one write unit. A consistent scan is one read unit for each 4 KB of the *whole
/// table*, including the rows of other consumers, so give each consumer with many shards a separate table.
///
/// | | write units | read units |
/// |---|---|---|
/// | idle | `s` x 60 s / `renew_interval` = 20 `s` | 60 s / `renew_interval` = 20 scans of table / 4 KB, rounded up: 20 for up to 10 rows, 200 for 100, 20,000 for 10,000 |
/// | busy, with `ack` | at most `s` x 60 s / `checkpoint_interval` = 60 `s`; a checkpoint counts as a renewal | the same |
/// | busy, with `commit` | one for each write that commits wait for, at most one at a time for each shard | the same |
///
/// A take, a release, a request to hand over and a delete are one write each; a take from another owner is two. A
/// refused write costs a write as well. A held lease costs no other calls. A stream costs its scans: one in each
/// `renew_interval`, one more when a listing shows a change of the shards and when a lease expires, and up to two when
/// a shard ends.
///
/// # Rows
///
/// A row has the attributes of the Kinesis Client Library, the *KCL*, under its names and types: `leaseKey` (S),
/// `leaseOwner` (S, absent while free), `leaseCounter` (N), `checkpoint` (S), `checkpointSubSequenceNumber` (N),
/// `ownerSwitchesSinceCheckpoint` (N), `parentShardId` (SS, absent if there are none). This library adds `epoch` (N),
/// `streamCreated` (N), `wantedBy` (S), `leaseTtlMillis` (N), `takeId` (S), and at most one of these next to
/// `checkpoint = TRIM_HORIZON`:
///
/// | attribute | meaning |
/// |---|---|
/// | `openAtInitialPosition` (BOOL) | no checkpoint: nothing was read |
/// | `openAtSequenceNumber` (S) | [`Checkpoint::At`] |
/// | `openAtTimestamp` (N) | [`Checkpoint::Since`] |
///
/// The library keeps attributes that it does not know, and skips rows whose `entityType` is not `LEASE`.
///
/// # From the KCL and back
///
/// By default a key is `consumer/stream/shard`. With [`bare_shard_ids`](Self::bare_shard_ids) it is the shard alone, as
/// in the table that the KCL makes for an application with one stream. So an application can move to this library on
/// its existing table, and back: stop all instances of one, then start the other. Never run both at once.
///
/// From a checkpoint of the KCL this library continues without losing a record, with one exception: a checkpoint at
/// sub-sequence 0 looks the same for a plain record and for the first record inside an aggregated one, and counts as
/// the former. `TRIM_HORIZON` is the oldest record. `LATEST` and `AT_TIMESTAMP` are no checkpoint, so the
/// subscription's `initial_position` applies. A checkpoint inside an aggregated record starts at that record again.
///
/// On the way back, the KCL continues after the checkpoints it knows. Where it finds one of this library's attributes,
/// it reads from the horizon: it reads records again and skips none.
///
/// # Under the hood
///
/// Every write is one conditional call, and a refusal shows the row. The holder's writes are conditional on owner,
/// epoch and the counter of the last response, so an abandoned write that arrives late is refused. A take stores a
/// random id, so after a lost response the store recognizes its take, even between two processes with one owner id.
/// Reads are consistent. No clock of any host is written or compared.
///
/// The SDK retries throttling and short outages within a call, and the library retries beyond that. An error names the
/// table, the row, the operation and what to do, and keeps the SDK's error as its `source()`.
#[derive(Clone)]
#[must_use = "a store does nothing until a broker uses it"]
pub struct DynamoDbLeaseStore {
    table: Table,
    keys: Keys,
    counters: Arc<Counters>,
}

impl DynamoDbLeaseStore {
    /// Leases in this table, configured by the SDK's standard chain: environment, profile, web identity, container,
    /// instance. The first call loads the chain, so this does no I/O.
    ///
    /// The timeout of one attempt is 1 s, and the first pause between attempts is at most 50 ms, because the library
    /// abandons a call after a `renew_interval`, 3 s by default.
    ///
    /// # Errors
    ///
    /// [`KinesisError::Invalid`]: the name is not 3 to 255 letters, digits, `_`, `.` and `-`.
    pub fn new(table: impl Into<Arc<str>>) -> Result<Self, KinesisError> {
        Self::with(table.into(), ClientSource::StandardChain(StandardChain::default()))
    }

    /// Leases in this table, with this configuration and its retries and timeouts. If it sets no timeout of an attempt,
    /// that is 1 s.
    ///
    /// [`endpoint`](Self::endpoint), [`region`](Self::region) and [`test_credentials`](Self::test_credentials) take
    /// precedence over it.
    ///
    /// # Errors
    ///
    /// [`KinesisError::Invalid`]: the table's name, as for [`new`](Self::new), or the configuration lacks a region,
    /// credentials or another part that every call needs.
    pub fn from_config(table: impl Into<Arc<str>>, config: SdkConfig) -> Result<Self, KinesisError> {
        config::check(&config, config::DYNAMODB)?;
        Self::with(table.into(), ClientSource::of(config))
    }

    /// Leases in this table, through this client. Set its timeout of one attempt to about 1 s: the library abandons a
    /// call after a `renew_interval`, 3 s by default.
    ///
    /// [`endpoint`](Self::endpoint), [`region`](Self::region) and [`test_credentials`](Self::test_credentials) take
    /// precedence over it.
    ///
    /// # Errors
    ///
    /// [`KinesisError::Invalid`]: the table's name, as for [`new`](Self::new).
    pub fn from_client(table: impl Into<Arc<str>>, client: Client) -> Result<Self, KinesisError> {
        Self::with(table.into(), ClientSource::given(client))
    }

    fn with(table: Arc<str>, source: ClientSource) -> Result<Self, KinesisError> {
        Ok(Self { table: Table::new(table, source)?, keys: Keys::Joined, counters: Arc::default() })
    }

    /// Creates the table at the first call if it is missing, billed on demand. Several instances may do so at once.
    ///
    /// The table takes some seconds to become active. Until then calls fail with an error that says so; a subscription
    /// yields these errors and retries. A table that existed and is missing later is not created again.
    pub fn create_if_missing(mut self) -> Self {
        self.table.create_if_missing = true;
        self
    }

    /// Makes the shard alone the key of a row, as the KCL does for one stream. Use this for a table that the KCL wrote
    /// or will read.
    ///
    /// Such a table is for one consumer and one stream. The store refuses every consumer and stream other than the
    /// first that uses it. It cannot see other processes.
    pub fn bare_shard_ids(mut self) -> Self {
        self.keys = Keys::bare();
        self
    }

    /// The URL of a server other than AWS, for example `http://127.0.0.1:8000`. Not set by default.
    pub fn endpoint(self, url: impl Into<String>) -> Self {
        self.set(|access| access.endpoint = Some(url.into()))
    }

    /// The region of the table. By default the one that the standard chain finds.
    pub fn region(self, region: impl Into<String>) -> Self {
        self.set(|access| access.region = Some(region.into()))
    }

    /// Fixed fake credentials, for a local server. This also sets the region to `us-east-1` unless one is set.
    pub fn test_credentials(self) -> Self {
        self.set(|access| access.test_credentials = true)
    }

    fn set(mut self, set: impl FnOnce(&mut Access)) -> Self {
        self.table.source = self.table.source.set(set);
        self
    }
}

impl LeaseStore for DynamoDbLeaseStore {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Vec<Lease>> {
        Box::pin(async move { self.read_leases(consumer, stream).await?.into_rows() })
    }

    fn read_leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Leases> {
        Box::pin(self.scan(consumer, stream))
    }

    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
        Box::pin(self.take_lease(take))
    }

    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        Box::pin(self.write_as(held, |write| write))
    }

    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
        Box::pin(async move {
            checkpoint::check(checkpoint)?;
            let ends = *checkpoint == Checkpoint::ShardEnd;
            let write = |write| checkpoint::written(write, Some(checkpoint)).remove(ends.then_some(WANTED_BY));
            self.write_as(held, write).await
        })
    }

    fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        Box::pin(async move {
            let written = self.write_as(held, |write| write.remove([OWNER])).await?;
            self.counters.forget(held);
            Ok(written)
        })
    }

    fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write> {
        Box::pin(self.write_seen(key, seen, move |write| write.set(WANTED_BY, text(by))))
    }

    fn withdraw_ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        Box::pin(self.write_seen(key, seen, |write| write.remove([WANTED_BY])))
    }

    fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        Box::pin(self.delete_seen(key, seen))
    }
}

impl fmt::Debug for DynamoDbLeaseStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DynamoDbLeaseStore")
            .field("table", &self.table.name)
            .field("source", &self.table.source)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

/// Makes a row of the bytes: a name, a type and a short text for each attribute. See [`crate::fuzzing`].
#[cfg(fuzzing)]
pub(crate) fn fuzz_row(mut bytes: &[u8]) {
    use aws_sdk_dynamodb::types::AttributeValue;

    use self::{attribute as name, row::Row};

    let names = [
        name::OWNER,
        name::COUNTER,
        name::CHECKPOINT,
        name::SUB_SEQUENCE,
        name::PARENTS,
        name::ENTITY_TYPE,
        name::EPOCH,
        name::STREAM_CREATED,
        name::WANTED_BY,
        name::TAKE_ID,
        name::OPEN_AT_SEQUENCE,
        name::OPEN_AT_TIMESTAMP,
        name::OPEN_AT_INITIAL,
    ];
    let mut item = name::Item::new();
    while let [name, kind, length, rest @ ..] = bytes {
        let (text, rest) = rest.split_at(usize::from(*length).min(rest.len()));
        let text = String::from_utf8_lossy(text).into_owned();
        let value = match kind % 4 {
            0 => AttributeValue::S(text),
            1 => AttributeValue::N(text),
            2 => AttributeValue::Ss(text.split(' ').map(str::to_owned).collect()),
            _ => AttributeValue::Bool(text.is_empty()),
        };
        item.insert(names[usize::from(*name) % names.len()].to_owned(), value);
        bytes = rest;
    }
    let row = Row { table: "leases", item: &item };
    let _ = (row.is_lease(), row.was_taken_by("take"));
    let _ = row.lease(LeaseKey::new("consumer", "stream", "shard"));
}
