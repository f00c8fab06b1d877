//! The client: given by the user, or made at the first call from the SDK's standard chain.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_config::{Region, SdkConfig, retry::RetryConfig};
use aws_credential_types::provider::SharedCredentialsProvider;
use aws_sdk_dynamodb::Client;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};

use crate::{
    aws::{
        config::{self, Access},
        credentials::{self, BackgroundCredentials, LoadError},
        proxy,
    },
    error::{
        KinesisError,
        service::{StoreError, StoreErrorKind},
    },
    util::mutex::lock,
};

/// The timeout of one attempt of a call. The library abandons a call after a renewal interval, 3 s by default, and a
/// second attempt is worth more than a long first one.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a call waits for credentials that are being loaded. The library abandons a call after a renewal interval, 3
/// s by default; before that, this returns an error that says what is missing.
const CREDENTIALS_WAIT: Duration = Duration::from_secs(2);

/// The SDK's first pause between attempts is a random part of this. DynamoDB recovers sooner than most services.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);

/// Where the client comes from.
#[derive(Clone)]
pub(super) enum ClientSource {
    /// The user made it. Settings make another client of its configuration.
    Given {
        given: Client,
        access: Access,
        client: Result<Client, StoreError>,
    },
    /// Made from the user's configuration, with settings on top.
    Configured {
        config: Box<SdkConfig>,
        access: Access,
        connected: Result<Connected, StoreError>,
    },
    StandardChain(StandardChain),
}

/// A client, and its credentials if it was made here.
#[derive(Clone)]
pub(super) struct Connected {
    client: Client,
    credentials: Option<BackgroundCredentials>,
}

/// The SDK's standard chain, with the user's settings on top.
#[derive(Clone, Default)]
pub(super) struct StandardChain {
    access: Access,
    /// An abandoned call leaves this, and the next call continues it.
    loading: Arc<Mutex<Option<Loading>>>,
}

type Loading = Shared<BoxFuture<'static, Result<Connected, StoreError>>>;

impl ClientSource {
    /// A client of this configuration, which the caller has checked.
    pub(super) fn of(config: SdkConfig) -> Self {
        let connected = Ok(Connected::new(config.clone()));
        Self::Configured { config: Box::new(config), access: Access::default(), connected }
    }

    /// This client.
    pub(super) fn given(client: Client) -> Self {
        Self::Given { given: client.clone(), access: Access::default(), client: Ok(client) }
    }

    /// Changes the settings that take precedence.
    pub(super) fn set(self, set: impl FnOnce(&mut Access)) -> Self {
        match self {
            Self::StandardChain(mut chain) => {
                set(&mut chain.access);
                Self::StandardChain(StandardChain { access: chain.access, loading: Arc::default() })
            }
            Self::Configured { config, mut access, .. } => {
                set(&mut access);
                let changed = config::with_access((*config).clone(), &access);
                let connected = changed.map(Connected::new).map_err(unusable);
                Self::Configured { config, access, connected }
            }
            Self::Given { given, mut access, .. } => {
                set(&mut access);
                let client = changed(&given, &access).map_err(unusable);
                Self::Given { given, access, client }
            }
        }
    }

    /// The client.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the next call continues loading the chain.
    pub(super) async fn client(&self) -> Result<Client, StoreError> {
        match self {
            Self::Given { client, .. } => client.clone(),
            Self::Configured { connected, .. } => connected.clone()?.ready().await,
            Self::StandardChain(chain) => chain.connected().await?.ready().await,
        }
    }
}

impl Connected {
    /// A client of this configuration, which loads its credentials in a task of their own.
    fn new(config: SdkConfig) -> Self {
        let endpoint = config::endpoint(&config, config::DYNAMODB);
        let config = proxy::past_for_this_host(config, endpoint.as_deref());
        let (config, credentials) = credentials::in_background(&config);
        Self { client: Client::new(&config::with_call_timeout(config, ATTEMPT_TIMEOUT)), credentials }
    }

    /// The client, once there are credentials.
    async fn ready(&self) -> Result<Client, StoreError> {
        if let Some(credentials) = &self.credentials {
            let unready = |error: LoadError| {
                let failed = StoreError::new("no credentials for DynamoDB").with_kind(StoreErrorKind::Credentials);
                failed.caused_by(error.cause())
            };
            credentials.ready(CREDENTIALS_WAIT).await.map_err(unready)?;
        }
        Ok(self.client.clone())
    }
}

impl StandardChain {
    async fn connected(&self) -> Result<Connected, StoreError> {
        let loading = lock(&self.loading).get_or_insert_with(|| load(self.access.clone()).boxed().shared()).clone();
        let loaded = loading.clone().await;
        if loaded.is_err() {
            // The next call starts over, unless another one has already done so.
            lock(&self.loading).take_if(|current| current.ptr_eq(&loading));
        }
        loaded
    }
}

/// A client like this one, with these settings.
fn changed(client: &Client, access: &Access) -> Result<Client, KinesisError> {
    let mut config = client.config().to_builder();
    if let Some(endpoint) = &access.endpoint {
        config::check_endpoint(endpoint)?;
        config.set_endpoint_url(Some(endpoint.clone()));
    }
    if let Some(region) = &access.region {
        config.set_region(Some(Region::new(region.clone())));
    }
    if access.test_credentials {
        config.set_credentials_provider(Some(SharedCredentialsProvider::new(config::test_keys())));
    }
    Ok(Client::from_conf(config.build()))
}

fn unusable(error: KinesisError) -> StoreError {
    let failed = StoreError::new("the configuration for DynamoDB cannot be used").with_kind(StoreErrorKind::Unusable);
    failed.caused_by(error)
}

async fn load(access: Access) -> Result<Connected, StoreError> {
    let loaded = config::load(&access, config::DYNAMODB).await.map_err(unusable)?;
    let retries = loaded.retry_config().cloned().unwrap_or_else(RetryConfig::standard);
    let retries = retries.with_initial_backoff(FIRST_BACKOFF);
    let config = loaded.into_builder().retry_config(retries).build();
    Ok(Connected::new(config))
}

impl fmt::Debug for ClientSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given { access, .. } => f.debug_tuple("Client").field(access).finish(),
            Self::Configured { access, .. } => f.debug_tuple("Config").field(access).finish(),
            Self::StandardChain(chain) => f.debug_tuple("StandardChain").field(&chain.access).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use aws_credential_types::{
        Credentials,
        provider::{ProvideCredentials, future},
    };
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::{
        aws::canned::Canned,
        error::chain::Chain,
        lease::{DynamoDbLeaseStore, LeaseStore},
    };

    /// Credentials that take this long to load.
    #[derive(Debug)]
    struct Slow(Duration);

    impl ProvideCredentials for Slow {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            future::ProvideCredentials::new(async {
                sleep(self.0).await;
                Ok(Credentials::new("key", "secret", None, None, "slow"))
            })
        }
    }

    fn store(takes: Duration) -> DynamoDbLeaseStore {
        let canned = Canned::new([(200, r#"{"Items":[],"Count":0,"ScannedCount":0}"#)]);
        let config = canned.config().credentials_provider(SharedCredentialsProvider::new(Slow(takes))).build();
        DynamoDbLeaseStore::from_config("leases", config).unwrap()
    }

    // X2
    #[tokio::test(start_paused = true)]
    async fn each_answer_has_the_kind_by_which_the_library_reacts() {
        let table = [
            ("AccessDeniedException", StoreErrorKind::Unusable),
            ("ResourceNotFoundException", StoreErrorKind::Unusable),
            ("UnrecognizedClientException", StoreErrorKind::Credentials),
            ("InvalidSignatureException", StoreErrorKind::Credentials),
            ("MissingAuthenticationTokenException", StoreErrorKind::Credentials),
            ("ExpiredTokenException", StoreErrorKind::Credentials),
            ("ItemCollectionSizeLimitExceededException", StoreErrorKind::Temporary),
        ];
        for (code, kind) in table {
            let answer = format!(r#"{{"__type":"{code}","message":"no"}}"#);
            let canned = Canned::new([(400, answer.as_str()); 9]);
            let store = DynamoDbLeaseStore::from_config("leases", canned.config().build()).unwrap();
            assert_eq!(store.leases("default", "orders").await.unwrap_err().kind(), kind, "{code}");
        }
    }

    // L3
    #[tokio::test(start_paused = true)]
    async fn credentials_that_load_slowly_delay_a_call_and_a_failure_names_them() {
        let (quick, start) = (store(Duration::from_millis(1_100)), Instant::now());
        assert!(quick.leases("default", "orders").await.unwrap().is_empty());
        assert_eq!(start.elapsed().as_millis(), 1_100);

        let (slow, start) = (store(Duration::from_millis(3_500)), Instant::now());
        let late = slow.leases("default", "orders").await.unwrap_err();
        assert_eq!(late.kind(), StoreErrorKind::Credentials);
        assert_eq!(
            Chain(&late).to_string(),
            "no credentials for DynamoDB: the credentials are still being loaded after 2s"
        );
        assert!(slow.leases("default", "orders").await.unwrap().is_empty());
        assert_eq!(start.elapsed().as_millis(), 3_500);
    }
}
