//! Where a user starts: [`KinesisBroker`] holds the configuration, [`ConnectedKinesisBroker`] the open connection.

use std::{
    fmt,
    sync::{Arc, Once},
    time::Duration,
};

use aws_config::SdkConfig;
use uuid::Uuid;

use crate::{
    aws::config::{self, Access},
    connection::Connection,
    error::KinesisError,
    kinesis::SdkService,
    lease::{LeaseStore, MemoryLeaseStore},
    publishing::publisher::Publisher,
    state::context::{Identity, SubscriptionContext},
    subscription::{Subscription, descriptor::KinesisStream, start},
};

/// The endpoint and credentials of Kinesis, the names of the consumer and of this instance, and the lease store.
/// Building a broker does no I/O; [`connect`](Self::connect) may.
///
/// A clone shares the connection: the configuration of the first clone that connects decides where it leads.
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
    /// The configuration that the user brought. None means the SDK's standard chain.
    config: Option<Box<SdkConfig>>,
    /// Settings that take precedence over it.
    access: Access,
    call_timeout: Option<Duration>,
    names: Names,
    store: Store,
    connection: Arc<Connection>,
}

/// The lease store of a broker.
#[derive(Clone)]
enum Store {
    /// The user named none. The first subscription warns, once, that progress ends with the process.
    Default(MemoryLeaseStore, Arc<Once>),
    Named(Arc<dyn LeaseStore>),
}

impl Store {
    fn for_subscription(&self) -> Arc<dyn LeaseStore> {
        match self {
            Self::Named(store) => Arc::clone(store),
            Self::Default(store, warning) => {
                warning.call_once(|| {
                    tracing::warn!(
                        "checkpoints end with this process, so the next start does not resume; set a lease_store to \
                         keep them, or name MemoryLeaseStore if this is what you want"
                    );
                });
                Arc::new(store.clone())
            }
        }
    }
}

/// The name of the consumer, and the id under which this instance owns leases.
#[derive(Clone)]
struct Names {
    consumer: Arc<str>,
    owner: Arc<str>,
}

impl Default for KinesisBroker {
    fn default() -> Self {
        Self::new()
    }
}

impl KinesisBroker {
    /// A broker that takes its configuration from the SDK's standard chain: environment, profile, web identity,
    /// container, instance.
    pub fn new() -> Self {
        Self::with(None)
    }

    /// A broker that uses this configuration. Its timeouts and retries apply, with one exception: the SDK never retries
    /// GetRecords and PutRecords, because this library paces and retries them.
    ///
    /// [`endpoint`](Self::endpoint), [`region`](Self::region) and [`test_credentials`](Self::test_credentials)
    /// take precedence over it.
    pub fn from_config(config: SdkConfig) -> Self {
        Self::with(Some(Box::new(config)))
    }

    fn with(config: Option<Box<SdkConfig>>) -> Self {
        Self {
            config,
            access: Access::default(),
            call_timeout: None,
            names: Names { consumer: "default".into(), owner: Uuid::new_v4().to_string().into() },
            store: Store::Default(MemoryLeaseStore::new(), Arc::new(Once::new())),
            connection: Arc::default(),
        }
    }

    /// The URL of a server other than AWS, for example `http://127.0.0.1:4567`. Not set by default.
    pub fn endpoint(self, url: impl Into<String>) -> Self {
        self.set(|access| access.endpoint = Some(url.into()))
    }

    /// The region, for example `eu-central-1`. By default the one that the standard chain finds.
    pub fn region(self, region: impl Into<String>) -> Self {
        self.set(|access| access.region = Some(region.into()))
    }

    /// Fixed fake credentials, for a local server. This also sets the region to `us-east-1` unless one is set.
    pub fn test_credentials(self) -> Self {
        self.set(|access| access.test_credentials = true)
    }

    /// The timeout of one attempt of a call on Kinesis: 1 ms to 1 h, 30 s by default. The SDK sets no such limit, and
    /// without one a connection to a server that is gone would block its shard without an end. A page of 10 MiB takes 5
    /// s at the 2 MiB a second of a shard, so much less than 10 s is too short for large records.
    ///
    /// If the configuration of [`from_config`](Self::from_config) has an attempt timeout, also a disabled one, that one
    /// applies instead.
    pub fn call_timeout(mut self, limit: Duration) -> Self {
        self.call_timeout = Some(limit);
        self
    }

    /// The store of leases and checkpoints. The default is a [`MemoryLeaseStore`], which ends with the process: every
    /// start then begins at the initial position, and instances do not share the shards. The first subscription logs a
    /// warning that says so, unless you name that store here.
    ///
    /// For one instance that continues where it stopped, use `EmbeddedLeaseStore` (feature `embedded`). For several
    /// instances that share the shards, use `DynamoDbLeaseStore` (feature `dynamodb`).
    pub fn lease_store(mut self, store: impl LeaseStore) -> Self {
        self.store = Store::Named(Arc::new(store));
        self
    }

    /// The id of this instance in the lease table: at least 1 character, and different from that of every other live
    /// instance. The default is a new random id.
    ///
    /// An instance that restarts under its old id takes its leases back at once instead of waiting until they expire.
    /// Two live instances with one id fence each other, and one of them stops with [`KinesisError::DuplicateOwner`].
    pub fn owner_id(mut self, id: impl Into<Arc<str>>) -> Self {
        self.names.owner = id.into();
        self
    }

    /// The name of the consumer: at least 1 character, `default` by default. Every consumer of a stream gets all its
    /// records and has separate checkpoints; the instances of one consumer share the shards.
    pub fn consumer(mut self, name: impl Into<Arc<str>>) -> Self {
        self.names.consumer = name.into();
        self
    }

    /// A publisher over this broker's connection, which may be opened later.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        Publisher::new(Arc::clone(&self.connection))
    }

    /// Loads the configuration and opens the connection. This does not call Kinesis yet, and the first call
    /// fetches the credentials: wrong ones show when the first subscription starts.
    ///
    /// # Errors
    ///
    /// - [`KinesisError::Invalid`]: the configuration lacks a region or another required part, the endpoint is no URL,
    ///   the owner id or the name of the consumer is empty, the call timeout is outside its limits, or the build has no
    ///   HTTP client: the cargo feature `default-https-client` is off and the configuration names none.
    /// - [`KinesisError::NotConnected`]: the connection, which clones share, was shut down.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped future does not change the connection.
    pub async fn connect(self) -> Result<ConnectedKinesisBroker, KinesisError> {
        for (what, name) in [("owner_id", &self.names.owner), ("consumer", &self.names.consumer)] {
            if name.is_empty() {
                return Err(KinesisError::invalid(what, "1 character at least; given: 0"));
            }
        }
        if let Some(limit) = self.call_timeout {
            config::check_call_timeout(limit)?;
        }
        if self.connection.is_new() {
            let config = match &self.config {
                None => config::load(&self.access, config::KINESIS).await?,
                Some(config) => config::with_access((**config).clone(), &self.access)?,
            };
            config::check(&config, config::KINESIS)?;
            let config = match self.call_timeout {
                Some(limit) => config::with_call_timeout(config, limit),
                None => config,
            };
            self.connection.open(Arc::new(SdkService::new(&config)));
        }
        self.connection.service()?;
        Ok(ConnectedKinesisBroker { names: self.names, store: self.store, connection: self.connection })
    }

    fn set(mut self, set: impl FnOnce(&mut Access)) -> Self {
        set(&mut self.access);
        self
    }
}

impl fmt::Debug for KinesisBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KinesisBroker")
            .field("consumer", &self.names.consumer)
            .field("owner", &self.names.owner)
            .finish_non_exhaustive()
    }
}

/// A broker whose connection is open.
///
/// Dropping it keeps the connection open for its subscriptions and publishers; [`shutdown`](Self::shutdown) closes it.
pub struct ConnectedKinesisBroker {
    names: Names,
    store: Store,
    connection: Arc<Connection>,
}

impl ConnectedKinesisBroker {
    /// Subscribes to a stream. When this returns, the subscription is reading: every shard whose lease this instance
    /// could take has its first iterator, so records that are published from then on are read.
    ///
    /// Calls that are throttled, an outage of the service and credentials that do not load yet are waited for, up to a
    /// minute. Later failures are errors of the stream. If another subscription of this consumer to the same stream is
    /// closing, this waits for it to finish.
    ///
    /// # Errors
    ///
    /// - [`KinesisError::Invalid`]: a setting is outside of its limits. Nothing was sent.
    /// - [`KinesisError::AlreadySubscribed`]: this consumer already reads the stream over this connection.
    /// - [`KinesisError::Stream`]: the stream does not exist, is being deleted, or did not become active within a
    ///   minute.
    /// - [`KinesisError::Denied`]: the credentials are wrong, do not allow to describe the stream, or could not be
    ///   loaded for a minute.
    /// - [`KinesisError::Service`]: the endpoint cannot be reached or fails in another way.
    /// - [`KinesisError::Store`]: the lease store cannot work as it is set up (no table, no permission, a table with
    ///   another key), or its leases could not be read for a minute.
    /// - [`KinesisError::NotConnected`]: the connection was shut down.
    ///
    /// # Cancel safety
    ///
    /// A dropped future releases the leases that it took.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime.
    pub async fn subscribe(&self, stream: impl Into<KinesisStream>) -> Result<Subscription, KinesisError> {
        let (name, settings) = stream.into().checked()?;
        let service = self.connection.service()?;
        let identity = Identity {
            consumer: Arc::clone(&self.names.consumer),
            stream: name.into(),
            owner: Arc::clone(&self.names.owner),
        };
        let context = SubscriptionContext::new(identity, settings, service, self.store.for_subscription());
        self.connection.enter(&context).await?;
        start::start(context).await
    }

    /// A publisher over this connection.
    #[must_use]
    pub fn publisher(&self) -> Publisher {
        Publisher::new(Arc::clone(&self.connection))
    }

    /// Closes the connection and, in parallel, every live subscription as [`Closer::close`](crate::Closer::close) does:
    /// the streams end, deliveries in flight can be settled for the drain time, checkpoints are written and leases
    /// released.
    ///
    /// Publishers and sinks return [`KinesisError::NotConnected`] from then on. Records that a sink has accepted before
    /// are still sent, and [`PublishSink::close`](crate::PublishSink::close) waits for them.
    ///
    /// # Cancel safety
    ///
    /// Once this was polled, closing continues without it.
    pub async fn shutdown(self) {
        self.connection.close().await;
    }
}

impl fmt::Debug for ConnectedKinesisBroker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectedKinesisBroker")
            .field("consumer", &self.names.consumer)
            .field("owner", &self.names.owner)
            .finish_non_exhaustive()
    }
}
