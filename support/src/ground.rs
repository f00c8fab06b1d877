//! A Kinesis to test against, wherever it runs, and the plain helpers that tests need.
//!
//! The helpers do what they say or panic, naming the call: a ground that gives way is a failed test. They speak HTTP
//! under time limits, so they belong in a runtime whose clock is not paused.

use std::{
    env,
    hash::{BuildHasher, RandomState},
    sync::Arc,
};

use aws_sdk_kinesis::{
    Client,
    config::{BehaviorVersion, Config, Credentials, Region, retry::RetryConfig},
};

use crate::{emulator::Emulator, server::Server};

mod records;
mod streams;

pub use self::records::Stored;

/// Names the server that [`Ground::from_env`] takes instead of an emulator.
pub const ENDPOINT_VARIABLE: &str = "KINESIS_STREAM_ENDPOINT";

/// A Kinesis to test against. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Ground {
    endpoint: String,
    client: Client,
    /// Runs as long as any clone; none where the server is somebody else's.
    _server: Option<Arc<Server>>,
}

impl Ground {
    /// The server that `KINESIS_STREAM_ENDPOINT` names, which other tests share, or else an emulator of one's own.
    ///
    /// # Panics
    /// The emulator does not start.
    #[must_use]
    pub fn from_env() -> Self {
        match env::var(ENDPOINT_VARIABLE) {
            Ok(endpoint) => Self::at(endpoint),
            Err(_) => Emulator::start().into_ground(),
        }
    }

    /// A server that runs elsewhere.
    #[must_use]
    pub fn at(endpoint: impl Into<String>) -> Self {
        let endpoint = endpoint.into();
        Self { client: client(&endpoint), endpoint, _server: None }
    }

    /// A server that runs as long as this ground or a clone of it.
    pub(crate) fn on(server: Server) -> Self {
        let endpoint = server.endpoint();
        Self { client: client(&endpoint), endpoint, _server: Some(Arc::new(server)) }
    }

    /// Its address, as a URL.
    #[must_use]
    pub fn endpoint(&self) -> String {
        self.endpoint.clone()
    }

    /// A client of it: test credentials, us-east-1, no retries.
    #[must_use]
    pub fn client(&self) -> Client {
        self.client.clone()
    }
}

/// A name that begins with `name` and that no other test on a shared server has.
#[must_use]
pub fn unique(name: &str) -> String {
    // Each `RandomState` has keys of its own, and the process began with random ones.
    format!("{name}-{:016x}", RandomState::new().hash_one(name))
}

fn client(endpoint: &str) -> Client {
    let credentials = Credentials::builder()
        .access_key_id("test")
        .secret_access_key("test")
        .provider_name("kinesis-stream-support")
        .build();
    let config = Config::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(credentials)
        .endpoint_url(endpoint)
        .retry_config(RetryConfig::disabled())
        .build();
    Client::from_conf(config)
}
