//! Read Amazon Kinesis Data Streams as one stream of records.

mod ack;
mod aggregate;
mod board;
mod broker;
mod budget;
mod catalogue;
mod clock;
mod close;
mod connection;
mod coordinator;
mod delivery;
mod envelope;
mod error;
mod failure;
mod hub;
mod id;
mod inbox;
#[cfg(test)]
#[path = "../tests/inside/mod.rs"]
mod inside;
mod keeper;
mod lease;
mod ledger;
mod life;
mod limits;
mod lineage;
mod lock;
mod monitor;
mod outgoing;
mod pace;
mod page;
mod pages;
mod position;
pub mod prelude;
mod publish;
mod reader;
mod record;
mod service;
mod settings;
mod stall;
mod start;
mod stats;
mod stream;
mod subscription;
mod witness;

#[cfg(any(test, feature = "contract"))]
pub use crate::lease::contract;
pub use crate::{
    ack::Commit,
    broker::{ConnectedKinesisBroker, KinesisBroker},
    close::Closer,
    delivery::{Acker, Delivery, TryMapError, commit_all},
    error::{ErrorClass, KinesisError},
    failure::{Action, FailureKind, ServiceFailure, StoreError},
    id::{SequenceNumber, ShardId},
    lease::{Held, Lease, LeaseKey, LeaseStore, MemoryLeaseStore, Seen, StoreFuture, Take, Write},
    life::{CloseReport, OpenShard},
    monitor::StatsHandle,
    outgoing::{Outgoing, Published},
    position::{Checkpoint, KinesisPosition},
    publish::Publisher,
    record::{Headers, Record},
    settings::OnDrop,
    stats::{ShardState, ShardStats, SubscriptionStats},
    stream::KinesisStream,
    subscription::{Subscription, Tolerant},
};
