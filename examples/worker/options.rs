//! The command line, and what it means to the library.

use std::{io, time::Duration};

use clap::Parser;
use kinesis_stream::{DynamoDbLeaseStore, prelude::*};
use kinesis_stream_support::unique;
use tracing_subscriber::EnvFilter;

use crate::times::{Times, seconds};

const SHARDS: u32 = 4;

/// One of several instances of a consumer, with its leases in DynamoDB.
///
/// Without `--stream`, `--endpoint`, `--dynamodb-endpoint` and `--region` stream and table are in this process. With any
/// of them they are real ones, and what they leave open comes from the AWS settings of the environment and the profile.
/// Both are made if they are missing. Instances that share consumer, stream and table share the work.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// The name of the stream [default: earthquakes]
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Another Kinesis than that of AWS; at a plain http:// one, requests are signed with test credentials
    #[arg(long, value_name = "URL")]
    pub(crate) endpoint: Option<String>,
    /// The AWS region
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// The table of leases
    #[arg(long, value_name = "NAME", default_value = "kinesis-stream-leases")]
    table: String,
    /// Another DynamoDB than that of AWS; at a plain http:// one, requests are signed with test credentials
    #[arg(long, value_name = "URL")]
    pub(crate) dynamodb_endpoint: Option<String>,
    /// The name of the consumer, of which this is one instance
    #[arg(long, value_name = "NAME", default_value = "worker")]
    consumer: String,
    /// The name of this instance, which no other one may have [default: a random one]
    #[arg(long, value_name = "NAME")]
    owner: Option<String>,
    /// End after so many records
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// How long the work on a record takes
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "0")]
    work: Duration,
    #[command(flatten)]
    times: Times,
}

impl Options {
    /// Whether stream and table are to be in this process.
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
        self.times.set(stream)
    }
}

/// What the library has to say goes to stderr, as `RUST_LOG` asks. The emulator need not tell that there is no table yet.
pub(crate) fn log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn,dynoxide=error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
}

fn is_local(endpoint: &str) -> bool {
    endpoint.starts_with("http://")
}
