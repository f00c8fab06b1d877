//! The front door: [`KinesisBroker`] is configuration, [`ConnectedKinesisBroker`] a connection.

use std::{fmt, sync::Arc, time::Duration};

use aws_config::SdkConfig;
use uuid::Uuid;

use crate::{
    aws::config::{self, Access},
    connection::Connection,
    error::KinesisError,
    kinesis::SdkService,
    lease::{LeaseStore, MemoryLeaseStore},
    publishing::Publisher,
    state::context::{Hub, Identity},
    subscription::{Subscription, descriptor::KinesisStream, start},
};

/// Where Kinesis is, who reads, and where leases are kept. Building one does no I/O; [`connect`](Self::connect) does.
///
/// A clone shares the connection: whichever of them connects first decides where it leads.
///
/// ```no_run
/// use kinesis_stream::prelude::*;
///
/// # async fn example() -> Result<(), KinesisError> {
/// let broker = KinesisBroker::new().consumer("quake-archive").connect().await?;
/// let quakes = broker.subscribe("quakes").await?;
/// # drop(quakes);
/// broker.shutdown().await;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a broker does nothing until it is connected"]
pub struct KinesisBroker {
    target: Target,
    call_timeout: Option<Duration>,
    identity: Owner,
    store: Arc<dyn LeaseStore>,
    connection: Arc<Connection>,
}

/// How the SDK is configured.
#[derive(Clone)]
enum Target {
    /// By its standard chain, with what was set here.
    Chain(Access),
    /// As the user made it.
    Given(Box<SdkConfig>),
}

/// Who reads.
#[derive(Clone)]
struct Owner {
    consumer: Arc<str>,
    owner: Arc<str>,
}

impl Default for KinesisBroker {
    fn default() -> Self {
        Self::new()
    }
}

impl KinesisBroker {
    /// A broker that is configured by the SDK's standard chain: environment, profile, web identity, container, instance.
    pub fn new() -> Self {
        Self::with(Target::Chain(Access::default()))
    }

    /// A broker that takes this configuration as it is. Its timeouts and retries are respected, except that GetRecords
    /// and PutRecords are never retried below this library, which paces and repeats them itself.
    ///
    /// [`endpoint`](Self::endpoint), [`region`](Self::region) and [`test_credentials`](Self::test_credentials) do not
    /// apply to it.
    pub fn from_config(config: SdkConfig) -> Self {
        Self::with(Target::Given(Box::new(config)))
    }

    fn with(target: Target) -> Self {
        Self {
            target,
            call_timeout: None,
            identity: Owner { consumer: "default".into(), owner: Uuid::new_v4().to_string().into() },
            store: Arc::new(MemoryLeaseStore::new()),
            connection: Arc::default(),
        }
    }

    /// Another place than AWS itself, as in `http://127.0.0.1:4567`.
    pub fn endpoint(self, url: impl Into<String>) -> Self {
        self.set(|access| access.endpoint = Some(url.into()))
    }

    /// The region. By default that of the standard chain.
    pub fn region(self, region: impl Into<String>) -> Self {
        self.set(|access| access.region = Some(region.into()))
    }

    /// Fixed credentials that mean nothing, for a local server; also sets the region `us-east-1` unless one is set.
    pub fn test_credentials(self) -> Self {
        self.set(|access| access.test_credentials = true)
    }

    /// How long one attempt of a call on Kinesis may take before it counts as failed: 30 s by default, from 1 ms to 1 h.
    /// The SDK itself sets no such limit, and without one a connection whose other end is gone would hold its shard up for
    /// ever. A page of 10 MiB takes 5 s at the pace of a shard, so much less than 10 s is too little for large records.
    ///
    /// An attempt timeout in the configuration that was given to [`from_config`](Self::from_config), also a disabled one,
    /// goes before it.
    pub fn call_timeout(mut self, limit: Duration) -> Self {
        self.call_timeout = Some(limit);
        self
    }

    /// Where leases and checkpoints are kept. By default in this process's memory, so they end with it: a start then
    /// begins at the initial position again, and instances do not share the shards. For one instance that is to go on where
    /// it was there is `EmbeddedLeaseStore`, behind the feature `embedded`.
    pub fn lease_store(mut self, store: impl LeaseStore) -> Self {
        self.store = Arc::new(store);
        self
    }

    /// What this instance calls itself in the lease table: 1 character at least, and unlike every other live instance.
    /// By default a new random id. An instance that is restarted under its old id takes its leases back at once, instead of
    /// waiting for them to run out; two live ones under one id fence each other, and one of them stops with
    /// [`KinesisError::DuplicateOwner`].
    pub fn owner_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.identity.owner = id.into();
        self
    }

    /// The name of the consumer: 1 character at least, `default` unless set. Every consumer of a stream sees all its
    /// records and has checkpoints of its own; the instances of one consumer share the work.
    pub fn consumer(mut self, name: impl Into<Arc<str>>) -> Self {
        self.identity.consumer = name.into();
        self
    }

    /// A publisher over the connection, which may be opened later.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        Publisher::new(Arc::clone(&self.connection))
    }

    /// Loads the configuration and opens the connection. No call is made on Kinesis yet, and credentials are fetched with
    /// the first one: wrong ones show when the first subscription starts.
    ///
    /// # Errors
    ///
    /// - [`KinesisError::Invalid`]: the configuration lacks a region, or something else that it needs; the endpoint is no
    ///   URL; the owner id or the consumer's name is empty; the call timeout is outside of its limits; the build has no
    ///   HTTP client, since the cargo feature `default-https-client` is off and the configuration names none.
    /// - [`KinesisError::NotConnected`]: the connection, shared with a clone, was shut down.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped future leaves the connection as it was.
    pub async fn connect(self) -> Result<ConnectedKinesisBroker, KinesisError> {
        for (what, name) in [("owner_id", &self.identity.owner), ("consumer", &self.identity.consumer)] {
            if name.is_empty() {
                return Err(KinesisError::invalid(what, "1 character at least; given: 0"));
            }
        }
        if let Some(limit) = self.call_timeout {
            config::check_call_timeout(limit)?;
        }
        if self.connection.is_new() {
            let config = match &self.target {
                Target::Chain(access) => config::load(access, config::KINESIS).await?,
                Target::Given(config) => (**config).clone(),
            };
            config::check(&config, config::KINESIS)?;
            let config = match self.call_timeout {
                Some(limit) => config::with_call_timeout(config, limit),
                None => config,
            };
            self.connection.open(Arc::new(SdkService::new(&config)));
        }
        self.connection.service()?;
        Ok(ConnectedKinesisBroker { identity: self.identity, store: self.store, connection: self.connection })
    }

    fn set(mut self, set: impl FnOnce(&mut Access)) -> Self {
        if let Target::Chain(access) = &mut self.target {
            set(access);
        }
        self
    }
}

impl fmt::Debug for KinesisBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KinesisBroker")
            .field("consumer", &self.identity.consumer)
            .field("owner", &self.identity.owner)
            .finish_non_exhaustive()
    }
}

/// A broker whose connection is open.
///
/// Dropping it leaves the connection to its subscriptions and publishers; [`shutdown`](Self::shutdown) closes it.
pub struct ConnectedKinesisBroker {
    identity: Owner,
    store: Arc<dyn LeaseStore>,
    connection: Arc<Connection>,
}

impl ConnectedKinesisBroker {
    /// Subscribes to a stream. When it returns, the subscription is reading: every shard whose lease could be taken has
    /// its first iterator, so a record that is published after this is read.
    ///
    /// Later troubles come out of the stream. A subscription to the same stream that is closing is waited for.
    ///
    /// # Errors
    ///
    /// - [`KinesisError::Invalid`]: a setting is outside of its limits; nothing was sent.
    /// - [`KinesisError::AlreadySubscribed`]: this consumer reads the stream over this connection already.
    /// - [`KinesisError::Stream`]: the stream does not exist, is being deleted, or did not become active within a minute.
    /// - [`KinesisError::Denied`]: the credentials are missing or wrong, or may not describe the stream.
    /// - [`KinesisError::Service`]: the endpoint cannot be reached, or fails otherwise.
    /// - [`KinesisError::NotConnected`]: the connection was shut down.
    ///
    /// # Cancel safety
    ///
    /// A dropped future releases the leases that it took.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub async fn subscribe(&self, stream: impl Into<KinesisStream>) -> Result<Subscription, KinesisError> {
        let (name, settings) = stream.into().checked()?;
        let service = self.connection.service()?;
        let identity = Identity {
            consumer: Arc::clone(&self.identity.consumer),
            stream: name.into(),
            owner: Arc::clone(&self.identity.owner),
        };
        let hub = Hub::new(identity, settings, service, Arc::clone(&self.store));
        self.connection.enter(&hub).await?;
        start::start(hub).await
    }

    /// A publisher over this connection.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        Publisher::new(Arc::clone(&self.connection))
    }

    /// Closes the connection and, all at once, every live subscription as [`Closer::close`](crate::Closer::close) does:
    /// their streams end, what is in flight may be settled for their drain time, checkpoints are written, and leases
    /// released. Publishers and sinks answer [`KinesisError::NotConnected`] from here on; what a sink has accepted before is
    /// still sent, and [`PublishSink::close`](crate::PublishSink::close) waits for it.
    ///
    /// # Cancel safety
    ///
    /// Closing goes on by itself once this was polled.
    pub async fn shutdown(self) {
        self.connection.close().await;
    }
}

impl fmt::Debug for ConnectedKinesisBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectedKinesisBroker")
            .field("consumer", &self.identity.consumer)
            .field("owner", &self.identity.owner)
            .finish_non_exhaustive()
    }
}
