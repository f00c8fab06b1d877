//! A Kinesis to test against, wherever it runs, and the helpers that tests need.
//!
//! A helper that fails panics and names the call, so a failing harness fails the test. The helpers use HTTP with time
//! limits: call them in a runtime whose clock is not paused.

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

/// The environment variable that names a server for [`Harness::from_env`] to use instead of an emulator.
pub const ENDPOINT_VARIABLE: &str = "KINESIS_STREAM_ENDPOINT";

/// A Kinesis to test against. Clones share one server.
#[derive(Clone, Debug)]
pub struct Harness {
    endpoint: String,
    client: Client,
    /// Runs as long as any clone. `None` if the server is external.
    _server: Option<Arc<Server>>,
}

impl Harness {
    /// The server that `KINESIS_STREAM_ENDPOINT` names, which other tests may share, or else a new emulator.
    ///
    /// # Panics
    /// The emulator does not start.
    #[must_use]
    pub fn from_env() -> Self {
        match env::var(ENDPOINT_VARIABLE) {
            Ok(endpoint) => Self::at(endpoint),
            Err(_) => Emulator::start().into_harness(),
        }
    }

    /// A server that runs elsewhere.
    #[must_use]
    pub fn at(endpoint: impl Into<String>) -> Self {
        let endpoint = endpoint.into();
        Self { client: client(&endpoint), endpoint, _server: None }
    }

    /// A server that runs as long as this harness or any clone of it.
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

/// A name that begins with `name` and is unique among the tests on a shared server.
#[must_use]
pub fn unique(name: &str) -> String {
    // Each `RandomState` has different keys, and the first keys of the process are random.
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
