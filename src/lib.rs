//! Read Amazon Kinesis Data Streams as one stream of records.

mod ack;
mod aggregate;
mod budget;
mod clock;
mod coordinator;
mod envelope;
mod error;
mod failure;
mod hub;
mod id;
mod inbox;
mod keeper;
mod lease;
mod ledger;
mod life;
mod limits;
mod lineage;
mod lock;
mod outgoing;
mod pace;
mod page;
mod pages;
mod position;
mod reader;
mod record;
mod service;
mod settings;
mod stats;
mod witness;

#[cfg(any(test, feature = "contract"))]
pub use crate::lease::contract;
pub use crate::{
    error::{ErrorClass, KinesisError},
    failure::{Action, FailureKind, ServiceFailure, StoreError},
    id::{SequenceNumber, ShardId},
    lease::{Held, Lease, LeaseKey, LeaseStore, MemoryLeaseStore, Seen, StoreFuture, Take, Write},
    outgoing::{Outgoing, Published},
    position::{Checkpoint, KinesisPosition},
    record::{Headers, Record},
    settings::OnDrop,
};
