//! Read Amazon Kinesis Data Streams as one stream of records.
//!
//! The library merges all shards into one [`futures::Stream`]. It keeps the order of each shard, also through splits
//! and merges. You settle each record separately; the checkpoint of its shard follows, and never passes an unsettled
//! record.
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
//!     // Ctrl-C ends the stream. Handlers still settle the records in flight.
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
//! # Pages
//!
//! These pages are part of the package and of the repository:
//!
//! - `docs/cookbook.md`: recipes for batches, per-key order, retries, dead letters, replay, shutdown and more;
//! - `docs/semantics.md`: what the library promises, rule by rule;
//! - `docs/operations.md`: lease tables, permissions, cost, deploys, and what to watch.
//!
//! The [`prelude`] says which combinator to use for which job.
//!
//! # Batches
//!
//! [`Subscription::batches`] hands out many records at once, for sinks that write many. You settle a batch with one
//! write per shard. [`Batches`] says when a batch is complete, and [`Batch`] how to settle it or a part of it.
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
//! KinesisStream -> coordinator -> reader -> Subscription -> Delivery -> your combinators
//!                  lists shards,  reads     merges all                       |
//!                  takes leases   one page  shards                           | commit, ack,
//!                      ^          ahead                                      v nack, drop
//!                      |                    LeaseStore <- renewer <- state of the shard
//!                      |                        |
//!                      +-- the end of a shard, read back from the store
//! ```
//!
//! - The *coordinator* lists the shards, decides by their lineage which ones are ready (a child waits for its parents),
//!   and takes their leases.
//! - One *reader* per shard reads one page ahead, within the limits of the service and of the subscription.
//! - The *renewer* is the only task that writes to the lease store for leases that the instance holds: renewals,
//!   checkpoints and releases. Settling only marks a record and wakes the renewer. So it needs no I/O and no runtime,
//!   and neither leases nor checkpoints depend on polling the stream.
//! - If the descriptor names a stream of dead letters, a separate task writes them.
//!
//! # Parts
//!
//! | part | is |
//! |---|---|
//! | [`KinesisBroker`], [`ConnectedKinesisBroker`] | the configuration, and the connection made from it |
//! | [`KinesisStream`], [`KinesisPosition`], [`OnDrop`] | what to read, from where, and how |
//! | [`Subscription`], [`Tolerant`] | the stream of all shards |
//! | [`Batches`], [`Batch`] | the same stream in batches |
//! | [`Delivery`], [`Acker`], [`commit_all`], [`Commit`] | a record, the duty to settle it, and the result of a commit |
//! | [`LeaseToken`] | whether this instance still holds the shard of a delivery, for long work |
//! | [`Batches::process`], [`BatchFailures`] | a handler of batches: poison records are found by halving, and all is settled |
//! | [`DeliveryStreamExt`], [`BufferBy`] | batches, and parallel work that keeps the order of each partition key |
//! | [`ChunkStreamExt`], [`TryChunkStreamExt`] | chunks of any stream, with a time limit |
//! | [`KinesisStream::max_attempts`], [`KinesisStream::dead_letter`] | records that keep failing |
//! | [`KinesisStream::max_age`], [`TooOld`] | records that are too old |
//! | [`Closer`], [`CloseReport`] | graceful shutdown |
//! | [`Seeker`] | moving a running subscription to another position |
//! | [`StatsHandle`], [`SubscriptionStats`] | the state of every shard |
//! | [`KinesisError`], [`ErrorClass`] | what went wrong, and how much it matters |
//! | [`Publisher`], [`Outgoing`], [`Published`] | putting records into a stream |
//! | [`PublishSink`], [`PublishTo`], [`PublishOrder`], [`PublishError`], [`PublishStats`] | publishing many records |
//! | [`LeaseStore`], [`MemoryLeaseStore`], `EmbeddedLeaseStore`, `DynamoDbLeaseStore` | leases and checkpoints |
//! | [`prelude`] | everything that a pipeline needs, in one import |
//!
//! # Features
//!
//! On by default:
//!
//! - `default-https-client`, `sso`, `credentials-process`: what the SDK needs to reach AWS by its standard chain. A
//!   program that passes its own `SdkConfig` to [`KinesisBroker::from_config`] can switch them off and compile less.
//!
//! Off by default:
//!
//! - `embedded`: `EmbeddedLeaseStore`, leases in a file on this host, for one instance without DynamoDB. It adds the
//!   database redb.
//! - `dynamodb`: `DynamoDbLeaseStore`, leases in a DynamoDB table, which all instances of a consumer share and which
//!   outlives them.
//! - `kpl`: `PublishTo::aggregate`, which packs many small records of a key into one, in the format of the Kinesis
//!   Producer Library.
//! - `contract`: `contract::run`, the promises of a [`LeaseStore`] as a test suite, for your store.
//!
//! # Types of other crates
//!
//! The API shows these types of other crates. A major version of one of these crates is a major version of this one.
//!
//! | type | crate | re-exported as |
//! |---|---|---|
//! | `SdkConfig` | aws-types | [`SdkConfig`] |
//! | `Bytes` | bytes | [`Bytes`] |
//! | `Client` | aws-sdk-dynamodb, with the feature `dynamodb` | `DynamoDbClient` |
//! | `Stream`, `FusedStream`, `Sink`, `BoxFuture` | futures | [`prelude`] has the traits and modules of pipelines |

#![cfg_attr(docsrs, feature(doc_cfg))]

mod aws;
mod broker;
mod budget;
mod config;
mod connection;
mod coordination;
mod dead_letters;
mod delivery;
mod error;
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing;
mod kinesis;
mod lease;
mod metering;
pub mod prelude;
mod publishing;
mod reading;
#[cfg(test)]
mod simulation;
mod state;
mod subscription;
#[cfg(feature = "metrics")]
mod telemetry;
mod types;
mod util;
mod wire;

#[cfg(feature = "dynamodb")]
pub use aws_sdk_dynamodb::Client as DynamoDbClient;
pub use aws_types::SdkConfig;
pub use bytes::Bytes;

#[cfg(feature = "dynamodb")]
pub use crate::lease::DynamoDbLeaseStore;
#[cfg(feature = "embedded")]
pub use crate::lease::EmbeddedLeaseStore;
#[cfg(any(test, feature = "contract"))]
pub use crate::lease::contract;
pub use crate::{
    broker::{ConnectedKinesisBroker, KinesisBroker},
    config::{
        max_age::TooOld,
        position::{Checkpoint, KinesisPosition},
        redelivery::DeadLetterFormat,
        settings::OnDrop,
    },
    dead_letters::dead_letter::DeadLetter,
    delivery::{Acker, Delivery, TryMapError, commit_all, lease_handle::LeaseToken},
    error::{
        ErrorClass, KinesisError,
        service::{Action, FailureKind, ServiceFailure, StoreError, StoreErrorKind},
    },
    lease::{
        Held, Lease, LeaseKey, LeaseStore, Leases, MemoryLeaseStore, Seen, StoreFuture, Take, UnreadableLease, Write,
    },
    publishing::{
        error::PublishError,
        options::PublishTo,
        publisher::Publisher,
        record::{Outgoing, PublishOrder, Published},
        sink::PublishSink,
        stats::PublishStats,
    },
    state::{
        health::{Health, HealthLimits, Stall},
        stats::{
            ErrorCounts, LeaseCounts, OngoingFailure, ShardState, ShardStats, SubscriptionState, SubscriptionStats,
        },
    },
    subscription::{
        Subscription, Tolerant,
        batch::Batch,
        batch_failures::BatchFailures,
        batches::Batches,
        buffer_by::BufferBy,
        chunks::{ChunkStreamExt, ChunksTimeout, TryChunkStreamExt, TryChunksTimeout},
        close::Closer,
        delivery_stream_ext::DeliveryStreamExt,
        descriptor::KinesisStream,
        process::Process,
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

/// The programs in the rules, as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/semantics.md")]
struct Semantics;

/// The programs in the operations guide, as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/operations.md")]
struct Operations;

/// The programs in the page on dead letters, as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/dead-letters.md")]
struct DeadLetters;

/// The programs in the cookbook, as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/cookbook.md")]
struct Cookbook;
