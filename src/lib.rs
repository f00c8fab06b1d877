//! Read Amazon Kinesis Data Streams as one stream of records.
//!
//! Every shard is merged into one [`futures::Stream`], in the order of each shard and through splits and merges. Each
//! record is settled by itself; the checkpoint of its shard follows, and never passes one that is unsettled.
//!
//! ```no_run
//! use kinesis_stream::prelude::*;
//!
//! #[tokio::main]
//! async fn main() -> Result<(), KinesisError> {
//!     let broker = KinesisBroker::new().consumer("quake-archive").connect().await?;
//!     let quakes = broker
//!         .subscribe(KinesisStream::new("quakes").initial_position(KinesisPosition::horizon()))
//!         .await?;
//!
//!     // Ctrl-C ends the stream; what is in flight is still settled.
//!     let closer = quakes.closer();
//!     tokio::spawn(async move {
//!         tokio::signal::ctrl_c().await.expect("a signal handler");
//!         closer.close().await
//!     });
//!
//!     quakes
//!         .tolerant()
//!         .map_ok(async |delivery| {
//!             println!("{}: {} bytes", delivery.shard(), delivery.payload().len());
//!             delivery.commit().await
//!         })
//!         .try_buffered(64)
//!         .try_for_each(async |_| Ok(()))
//!         .await?;
//!     broker.shutdown().await;
//!     Ok(())
//! }
//! ```
//!
//! # Batches
//!
//! [`Subscription::batches`] hands out many records at once, for sinks that take many, and they are settled with one write
//! for each shard: see [`Batches`] for when one goes out, and [`Batch`] for the ways to settle it, or a part of it.
//!
//! ```no_run
//! # use kinesis_stream::prelude::*;
//! # async fn insert(rows: Vec<&[u8]>) {}
//! # async fn example(quakes: Subscription) -> Result<(), KinesisError> {
//! quakes
//!     .tolerant()
//!     .batches(500)?
//!     .try_for_each(async |batch| {
//!         insert(batch.payloads().map(|payload| payload.as_ref()).collect()).await;
//!         batch.commit().await.map(drop)
//!     })
//!     .await
//! # }
//! ```
//!
//! # How it works
//!
//! Data flows one way, and settlement flows back as data:
//!
//! ```text
//! KinesisStream -> coordinator -> lease -> shard -> merge -> Delivery -> the user's combinators
//!                  lists shards,  kept by  pages,   Subscription               |
//!                  lineage        a keeper one read                            |
//!                      ^                   ahead                               v
//!                      |                       LeaseStore <- checkpoint <- commit, ack
//!                      |                           |
//!                      +-- the end of a shard, read back from the store
//! ```
//!
//! - The *coordinator* lists the shards, asks their lineage which are ready (a child waits for its parents), and takes
//!   their leases.
//! - Each shard is read by a task of its own, one page ahead of whoever consumes it, within the limits of the service and
//!   of the subscription.
//! - The *keeper* is the one task that writes to the lease store for leases that are held. Settling only marks a record and
//!   wakes it, so acknowledging needs no I/O and no runtime, and neither leases nor checkpoints wait for the stream to be
//!   polled.
//! - Where records whose attempts are spent go to another stream, a task of its own writes them there.
//!
//! # Parts
//!
//! | part | is |
//! |---|---|
//! | [`KinesisBroker`], [`ConnectedKinesisBroker`] | configuration, and the connection made of it |
//! | [`KinesisStream`], [`KinesisPosition`], [`OnDrop`] | what to read, from where, and how |
//! | [`Subscription`], [`Tolerant`] | the stream of all shards |
//! | [`Batches`], [`Batch`] | the same in batches that are settled as one |
//! | [`Delivery`], [`Acker`], [`commit_all`], [`Commit`] | a record, the duty to settle it, and what settling came to |
//! | [`LeaseToken`] | whether the shard of a delivery is still held, for long work |
//! | [`DeliveryStreamExt`], [`BufferBy`] | parallel work that keeps the order of each partition key |
//! | [`KinesisStream::max_attempts`], [`KinesisStream::dead_letter`] | records that keep failing |
//! | [`Closer`], [`CloseReport`] | ending in good order |
//! | [`Seeker`] | moving a running subscription to another position |
//! | [`StatsHandle`], [`SubscriptionStats`] | how every shard is doing |
//! | [`KinesisError`], [`ErrorClass`] | what went wrong, and how much it matters |
//! | [`Publisher`], [`Outgoing`], [`Published`] | putting records into a stream |
//! | [`PublishSink`], [`PublishTo`], [`PublishOrder`], [`PublishError`], [`PublishStats`] | many records at speed, and what became of each |
//! | [`LeaseStore`], [`MemoryLeaseStore`], `EmbeddedLeaseStore`, `DynamoDbLeaseStore` | where leases and checkpoints are kept |
//! | [`prelude`] | what a pipeline needs, in one import |
//!
//! # Features
//!
//! - `embedded`: `EmbeddedLeaseStore`, leases in a file of this host, for one instance without DynamoDB. Off by default: it
//!   brings the database redb.
//! - `dynamodb`: `DynamoDbLeaseStore`, leases in a table of DynamoDB that the instances of a consumer share and that
//!   outlives them. Off by default.
//! - `kpl`: `PublishTo::aggregate`, many small records of a key as one, in the format of the Kinesis Producer Library. Off
//!   by default.
//! - `contract`: the promises of a [`LeaseStore`] as a suite of tests, `contract::run`, for those who write one. Off by
//!   default.

mod aws;
mod broker;
mod budget;
mod config;
mod connection;
mod coordination;
mod dead_letters;
mod delivery;
mod error;
mod kinesis;
mod lease;
pub mod prelude;
mod publishing;
mod reading;
#[cfg(test)]
mod simulation;
mod state;
mod subscription;
mod types;
mod util;
mod wire;

#[cfg(feature = "dynamodb")]
pub use crate::lease::DynamoDbLeaseStore;
#[cfg(feature = "embedded")]
pub use crate::lease::EmbeddedLeaseStore;
#[cfg(any(test, feature = "contract"))]
pub use crate::lease::contract;
pub use crate::{
    broker::{ConnectedKinesisBroker, KinesisBroker},
    config::{
        position::{Checkpoint, KinesisPosition},
        settings::OnDrop,
    },
    delivery::{Acker, Delivery, TryMapError, commit_all, lease_handle::LeaseToken},
    error::{
        ErrorClass, KinesisError,
        service::{Action, FailureKind, ServiceFailure, StoreError},
    },
    lease::{Held, Lease, LeaseKey, LeaseStore, MemoryLeaseStore, Seen, StoreFuture, Take, Write},
    publishing::{
        Publisher,
        error::PublishError,
        options::PublishTo,
        record::{Outgoing, PublishOrder, Published},
        sink::PublishSink,
        stats::PublishStats,
    },
    state::stats::{ShardState, ShardStats, SubscriptionStats},
    subscription::{
        Subscription, Tolerant,
        batch::Batch,
        batches::Batches,
        buffer_by::{BufferBy, DeliveryStreamExt},
        close::Closer,
        descriptor::KinesisStream,
        seek::Seeker,
        stats_handle::StatsHandle,
    },
    types::{
        close_report::{CloseReport, OpenShard},
        commit::Commit,
        id::{SequenceNumber, ShardId},
        record::{Headers, Record},
    },
};

/// The programs in the README, as tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
