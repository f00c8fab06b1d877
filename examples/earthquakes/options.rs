//! The command line options, and the library settings that follow from them.

use std::{env, num::NonZeroUsize, path::PathBuf, process, time::Duration};

use clap::Parser;
use kinesis_stream::{EmbeddedLeaseStore, StoreError, prelude::*};
use kinesis_stream_support::Emulator;
use tracing_subscriber::EnvFilter;

const SHARDS: u32 = 4;

/// A week of earthquakes through Kinesis and into a file.
///
/// Without `--stream`, `--endpoint` and `--region`, an emulator in this process has the stream. With any of them the
/// stream is a real one, and the AWS settings of the environment and the profile supply the rest. If the stream is
/// missing, it is created with four shards. Records of other programs in it are read and skipped.
#[derive(Debug, Parser)]
pub(crate) struct Options {
    /// The file to write [default: earthquakes-<process id>.ndjson in the directory for temporary files]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Drop the subscription after N settled records, and subscribe again
    #[arg(long, value_name = "N")]
    pub(crate) restart_after: Option<NonZeroUsize>,
    /// Consume in a child process, kill it after N settled records, and start another
    #[arg(long, value_name = "N", conflicts_with = "restart_after")]
    pub(crate) kill_after: Option<NonZeroUsize>,
    /// Keep leases and checkpoints in this file, so that a killed run resumes at its checkpoints
    ///
    /// By default they are in memory; with `--kill-after`, in a temporary file.
    #[arg(long, value_name = "FILE")]
    pub(crate) leases: Option<PathBuf>,
    /// The name of the stream [default: earthquakes]
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// The endpoint, if not that of AWS; a plain http:// endpoint gets test credentials
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// The AWS region
    #[arg(long, value_name = "REGION")]
    pub(crate) region: Option<String>,
    /// Consume the records of this run, as the child process
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

    /// The lease file of a consumer in a child process.
    pub(crate) fn leases_of_consumer(&self) -> PathBuf {
        let default = || env::temp_dir().join(format!("earthquakes-{}.redb", process::id()));
        self.leases.clone().unwrap_or_else(default)
    }

    pub(crate) fn endpoint(&self, emulator: Option<&Emulator>) -> Option<String> {
        emulator.map(|emulator| emulator.endpoint()).or_else(|| self.endpoint.clone())
    }

    /// A broker that consumes.
    pub(crate) fn broker(&self, emulator: Option<&Emulator>) -> Result<KinesisBroker, StoreError> {
        let broker = self.producer(emulator);
        Ok(match &self.leases {
            // One process at a time opens the file, so it can use a fixed id. The next one gets its leases at once.
            Some(leases) => broker.lease_store(EmbeddedLeaseStore::open(leases)?).owner_id("earthquakes"),
            None => broker,
        })
    }

    /// A broker that only publishes, and needs no leases.
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

    /// Logs to stderr, at the level of `RUST_LOG`. With `--restart-after` the program drops deliveries on purpose, so
    /// the default level hides the warning about that.
    pub(crate) fn log(&self) {
        let default = if self.restart_after.is_some() { "error" } else { "warn" };
        let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(default));
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
}
