//! The client: given by the user, or made at the first call from the SDK's standard chain.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use aws_config::{SdkConfig, retry::RetryConfig};
use aws_sdk_dynamodb::Client;
use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};

use crate::{
    aws::config::{self, Access},
    error::service::{StoreError, StoreErrorKind},
    util::mutex::lock,
};

/// The timeout of one attempt of a call. The library abandons a call after a renewal interval, 3 s by default, and a
/// second attempt is worth more than a long first one.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(1);

/// The SDK's first pause between attempts is a random part of this. DynamoDB recovers sooner than most services.
const FIRST_BACKOFF: Duration = Duration::from_millis(50);

/// Where the client comes from.
#[derive(Clone)]
pub(super) enum ClientSource {
    Given(Client),
    StandardChain(StandardChain),
}

/// The SDK's standard chain, with the user's settings on top.
#[derive(Clone, Default)]
pub(super) struct StandardChain {
    access: Access,
    /// An abandoned call leaves this, and the next call continues it.
    loading: Arc<Mutex<Option<Loading>>>,
}

type Loading = Shared<BoxFuture<'static, Result<Client, StoreError>>>;

impl ClientSource {
    /// A client of this configuration, which the caller has checked.
    pub(super) fn of(config: SdkConfig) -> Self {
        Self::Given(Client::new(&config::with_call_timeout(config, ATTEMPT_TIMEOUT)))
    }

    /// Changes the settings on top of the chain.
    pub(super) fn set(self, set: impl FnOnce(&mut Access)) -> Self {
        match self {
            Self::StandardChain(mut chain) => {
                set(&mut chain.access);
                Self::StandardChain(StandardChain { access: chain.access, loading: Arc::default() })
            }
            given @ Self::Given(_) => given,
        }
    }

    /// The client.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the next call continues loading the chain.
    pub(super) async fn client(&self) -> Result<Client, StoreError> {
        match self {
            Self::Given(client) => Ok(client.clone()),
            Self::StandardChain(chain) => chain.client().await,
        }
    }
}

impl StandardChain {
    async fn client(&self) -> Result<Client, StoreError> {
        let loading = lock(&self.loading).get_or_insert_with(|| load(self.access.clone()).boxed().shared()).clone();
        let loaded = loading.clone().await;
        if loaded.is_err() {
            // The next call starts over, unless another one has already done so.
            lock(&self.loading).take_if(|current| current.ptr_eq(&loading));
        }
        loaded
    }
}

async fn load(access: Access) -> Result<Client, StoreError> {
    let unusable = |error| {
        let failed =
            StoreError::new("the configuration for DynamoDB cannot be used").with_kind(StoreErrorKind::Unusable);
        failed.caused_by(error)
    };
    let loaded = config::load(&access, config::DYNAMODB).await.map_err(unusable)?;
    let retries = loaded.retry_config().cloned().unwrap_or_else(RetryConfig::standard);
    let retries = retries.with_initial_backoff(FIRST_BACKOFF);
    let config = loaded.into_builder().retry_config(retries).build();
    Ok(Client::new(&config::with_call_timeout(config, ATTEMPT_TIMEOUT)))
}

impl fmt::Debug for ClientSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Given(_) => f.write_str("Given"),
            Self::StandardChain(chain) => chain.access.fmt(f),
        }
    }
}
