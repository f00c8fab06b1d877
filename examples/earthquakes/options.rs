//! The command line, and what it means to the library.

use std::{env, num::NonZeroUsize, path::PathBuf, process, time::Duration};

use clap::Parser;
use kinesis_stream::{EmbeddedLeaseStore, StoreError, prelude::*};
use kinesis_stream_support::Emulator;
use tracing_subscriber::EnvFilter;

const SHARDS: u32 = 4;

/// A week of earthquakes through Kinesis and into a file.
///
/// Without `--stream`, `--endpoint` and `--region` the stream is one of an emulator in this process. With any of them it
/// is a real one, and what they leave open comes from the AWS settings of the environment and the profile. It is made
/// with four shards if it is missing. Records of others in it are read from its oldest one on, and left alone.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// The file to write [default: earthquakes-<process id>.ndjson in the directory for temporary files]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Drop the subscription whenever it has settled so many records, and subscribe again
    #[arg(long, value_name = "N")]
    pub(crate) restart_after: Option<NonZeroUsize>,
    /// Consume in a process of its own, kill it whenever it has settled so many records, and start another
    #[arg(long, value_name = "N", conflicts_with = "restart_after")]
    pub(crate) kill_after: Option<NonZeroUsize>,
    /// Keep leases and checkpoints in this file: a run that was killed goes on where it was
    ///
    /// By default they are in memory; with `--kill-after`, in a file for the time of the run.
    #[arg(long, value_name = "FILE")]
    pub(crate) leases: Option<PathBuf>,
    /// The name of the stream [default: earthquakes]
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Another endpoint than that of AWS; at a plain http:// one, requests are signed with test credentials
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// The AWS region
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Option<String>,
    /// Consume the records of this run, as the process that gets killed
    #[arg(long, value_name = "RUN", hide = true, requires = "leases", requires = "out")]
    pub(crate) consume: Option<String>,
}

impl Options {
    pub(crate) fn is_embedded(&self) -> bool {
        self.stream.is_none() && self.endpoint.is_none() && self.region.is_none()
    }

    pub(crate) fn stream(&self) -> &str {
        self.stream.as_deref().unwrap_or("earthquakes")
    }

    pub(crate) fn out(&self) -> PathBuf {
        let default = || env::temp_dir().join(format!("earthquakes-{}.ndjson", process::id()));
        self.out.clone().unwrap_or_else(default)
    }

    /// The leases of a consumer that gets killed.
    pub(crate) fn leases_of_consumer(&self) -> PathBuf {
        let default = || env::temp_dir().join(format!("earthquakes-{}.redb", process::id()));
        self.leases.clone().unwrap_or_else(default)
    }

    pub(crate) fn endpoint(&self, emulator: Option<&Emulator>) -> Option<String> {
        emulator.map(|emulator| emulator.endpoint()).or_else(|| self.endpoint.clone())
    }

    /// One that consumes.
    pub(crate) fn broker(&self, emulator: Option<&Emulator>) -> Result<KinesisBroker, StoreError> {
        let broker = self.producer(emulator);
        Ok(match &self.leases {
            // One process has the file, so the id is its own, and the next one takes its leases back at once.
            Some(leases) => broker.lease_store(EmbeddedLeaseStore::open(leases)?).owner_id("earthquakes"),
            None => broker,
        })
    }

    /// One that needs no leases.
    pub(crate) fn producer(&self, emulator: Option<&Emulator>) -> KinesisBroker {
        let mut broker = KinesisBroker::new();
        if let Some(endpoint) = self.endpoint(emulator) {
            if endpoint.starts_with("http://") {
                broker = broker.test_credentials();
            }
            broker = broker.endpoint(endpoint);
        }
        match &self.region {
            Some(region) => broker.region(region),
            None => broker,
        }
    }

    pub(crate) fn descriptor(&self) -> KinesisStream {
        KinesisStream::new(self.stream())
            .create_if_missing(SHARDS)
            .initial_position(KinesisPosition::horizon())
            .poll_interval(Duration::from_millis(250))
    }

    /// What the library has to say goes to stderr, as `RUST_LOG` asks. Where subscriptions are dropped on purpose, it
    /// need not warn of dropped deliveries.
    pub(crate) fn log(&self) {
        let default = if self.restart_after.is_some() { "error" } else { "warn" };
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
}
