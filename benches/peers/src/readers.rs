//! The readers, each configured as a user would for unpaced reads.
//!
//! The settings of `ruststream-kinesis`, and the reasons:
//!
//! - **leases in memory**, its default, as with this library: with an external store, the bench would measure that
//!   store.
//! - **retries off**, in its SDK configuration, as with the bare loop. This library switches them off anyway.
//! - **records one by one**, by [`Subscriber::stream`]. It asks for 1,000 records per read, which is a page here, and
//!   this number is fixed. Its batches have a settable number, but deliver the same records through one more buffer:
//!   with `ack()` on each record, batches of a page took a tenth more CPU time.
//! - **no position**: the endpoint opens every iterator at the first record. Its default is therefore as good as the
//!   seek to the horizon that it would make after opening, and it avoids the pages that the seek discards.
//! - No pacing setting: it waits only after pages without records, and there are none.
//! - It has no other settings. It buffers 64 records between its readers and the consumer, and reads the next page only
//!   when all but these are consumed.

use std::{pin::pin, sync::Arc, time::Duration};

use aws_sdk_kinesis::{Client, config::retry::RetryConfig};
use clap::ValueEnum;
use futures::StreamExt;
use kinesis_stream::{ConnectedKinesisBroker, prelude::*};
use kinesis_stream_support::canned::Canned;
use ruststream::{Broker, IncomingMessage, Subscriber};
use ruststream_kinesis as peer;

use crate::{
    cost::{Result, clients, config},
    reading::{ack, bare, handle, look, records, subscribed},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reader {
    Bare,
    KinesisStream,
    #[value(name = "ruststream-kinesis")]
    Ruststream,
}

impl Reader {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Bare => "bare",
            Self::KinesisStream => "kinesis-stream",
            Self::Ruststream => "ruststream-kinesis",
        }
    }
}

/// A connected reader.
pub(crate) enum Connection {
    Bare(Client),
    KinesisStream(ConnectedKinesisBroker),
    Ruststream(peer::ConnectedKinesisBroker),
}

impl Connection {
    pub(crate) async fn open(reader: Reader, endpoint: &str) -> Result<Self> {
        Ok(match reader {
            Reader::Bare => Self::Bare(clients(endpoint).await?.0),
            Reader::KinesisStream => Self::KinesisStream(clients(endpoint).await?.1),
            Reader::Ruststream => {
                let once = config(endpoint).into_builder().retry_config(RetryConfig::disabled()).build();
                let leases = Arc::new(peer::MemoryLeaseStore::new());
                Self::Ruststream(peer::KinesisBroker::from_config(once).lease_store(leases).connect().await?)
            }
        })
    }

    /// Reads everything and handles each page for this time. Returns the number of records.
    pub(crate) async fn read(&self, stream: &'static str, canned: &Canned, handling: Duration) -> Result<u32> {
        let all = records(canned);
        match self {
            Self::Bare(client) => bare(client, stream, canned, handling).await,
            Self::KinesisStream(broker) if handling.is_zero() => {
                subscribed(broker, stream, canned, |subscription| ack(subscription, all)).await
            }
            Self::KinesisStream(broker) => {
                let canned = *canned;
                subscribed(broker, stream, &canned, |subscription| ahead(subscription, canned, handling)).await
            }
            Self::Ruststream(broker) => {
                let subscriber = broker.subscribe_stream(peer::KinesisStream::new(stream)).await?;
                tokio::spawn(consume(subscriber, all)).await?
            }
        }
    }
}

/// Handles as many pages at a time as there are shards.
async fn ahead(subscription: Subscription, canned: Canned, handling: Duration) -> Result<u32> {
    let batches = subscription.tolerant().batches_by_shard(canned.records_per_page)?;
    let handled = batches.map_ok(async |batch| {
        let seen = batch.payloads().map(|payload| look(payload)).sum::<u32>();
        handle(handling).await;
        batch.ack();
        Ok(seen)
    });
    let mut handled = pin!(handled.try_buffer_unordered(canned.shards));
    let mut read = 0;
    while read < records(&canned)
        && let Some(seen) = handled.try_next().await?
    {
        read += seen;
    }
    Ok(read)
}

async fn consume(mut subscriber: peer::KinesisSubscriber, records: u32) -> Result<u32> {
    let mut messages = pin!(subscriber.stream());
    let mut read = 0;
    while read < records
        && let Some(message) = messages.next().await
    {
        let message = message?;
        read += look(message.payload());
        message.ack().await?;
    }
    Ok(read)
}
