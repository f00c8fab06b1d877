//! The command line options, and the library settings that follow from them.

use std::{io, time::Duration};

use clap::Parser;
use kinesis_stream::{DynamoDbLeaseStore, prelude::*};
use kinesis_stream_support::unique;
use tracing_subscriber::EnvFilter;

use crate::timings::{Timings, seconds};

const SHARDS: u32 = 4;

/// One of several instances of a consumer, with its leases in DynamoDB.
///
/// Without `--stream`, `--endpoint`, `--dynamodb-endpoint` and `--region`, emulators in this process have the stream
/// and the table. With any of them both are real ones, and the AWS settings of the environment and the profile supply
/// the rest. A missing stream or table is created. Instances with the same consumer, stream and table share the work.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// The name of the stream [default: earthquakes]
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// The endpoint of Kinesis, if not that of AWS; a plain http:// endpoint gets test credentials
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// The AWS region
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// The table of leases
    #[arg(long, value_name = "NAME", default_value = "kinesis-stream-leases")]
    table: String,
    /// The endpoint of DynamoDB, if not that of AWS; a plain http:// endpoint gets test credentials
    #[arg(long, value_name = "URL")]
    pub(crate) dynamodb_endpoint: Option<String>,
    /// The name of the consumer; all instances use the same
    #[arg(long, value_name = "NAME", default_value = "worker")]
    consumer: String,
    /// The name of this instance; no other instance may use it [default: a random one]
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// Stop after N records
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// How long the work on a record takes
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "0")]
    work: Duration,
    #[command(flatten)]
    timings: Timings,
}

impl Options {
    /// Whether emulators in this process have the stream and the table.
    pub(crate) fn is_demo(&self) -> bool {
        let places = [&self.stream, &self.endpoint, &self.dynamodb_endpoint, &self.region];
        places.iter().all(|place| place.is_none())
    }

    pub(crate) fn stream(&self) -> &str {
        self.stream.as_deref().unwrap_or("earthquakes")
    }

    pub(crate) fn owner(&self) -> String {
        self.owner.clone().unwrap_or_else(|| unique("worker"))
    }

    pub(crate) fn work(&self) -> Duration {
        self.work
    }

    pub(crate) fn broker(&self, owner: &str) -> Result<KinesisBroker, KinesisError> {
        let mut leases = DynamoDbLeaseStore::new(self.table.as_str())?.create_if_missing();
        if let Some(endpoint) = &self.dynamodb_endpoint {
            leases = leases.endpoint(endpoint);
            if is_local(endpoint) {
                leases = leases.test_credentials();
            }
        }
        let mut broker = KinesisBroker::new().consumer(&*self.consumer).owner_id(owner);
        if let Some(endpoint) = &self.endpoint {
            broker = broker.endpoint(endpoint);
            if is_local(endpoint) {
                broker = broker.test_credentials();
            }
        }
        if let Some(region) = &self.region {
            (leases, broker) = (leases.region(region), broker.region(region));
        }
        Ok(broker.lease_store(leases))
    }

    pub(crate) fn descriptor(&self) -> KinesisStream {
        let stream =
            KinesisStream::new(self.stream()).create_if_missing(SHARDS).initial_position(KinesisPosition::horizon());
        self.timings.set(stream)
    }
}

/// Logs to stderr, at the level of `RUST_LOG`. The default hides the emulator's warning that the table is missing.
pub(crate) fn log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,dynoxide=error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
}

fn is_local(endpoint: &str) -> bool {
    endpoint.starts_with("http://")
}
