//! What a broker, its clones and its publishers share: the connection, and the subscriptions that live on it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use futures::future::join_all;
use tokio::time::{Duration, timeout};

use crate::{error::KinesisError, hub::Hub, lock::lock, service::Service};

/// How long shutting down waits for a subscription beyond its own time to drain, and for a store that fails.
const GRACE: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    state: Mutex<State>,
    /// By stream. Those that are over stay until another takes their place.
    subscriptions: Mutex<BTreeMap<Arc<str>, Arc<Hub>>>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    NotYet,
    Open(Arc<dyn Service>),
    Closed,
}

impl Connection {
    /// The service, while the connection is open.
    pub(crate) fn service(&self) -> Result<Arc<dyn Service>, KinesisError> {
        match &*lock(&self.state) {
            State::Open(service) => Ok(Arc::clone(service)),
            State::NotYet | State::Closed => Err(KinesisError::NotConnected),
        }
    }

    /// Whether it was never open so far.
    pub(crate) fn is_new(&self) -> bool {
        matches!(*lock(&self.state), State::NotYet)
    }

    /// Opens it. The first one to do so decides; a closed connection stays closed.
    pub(crate) fn open(&self, service: Arc<dyn Service>) {
        let mut state = lock(&self.state);
        if let State::NotYet = *state {
            *state = State::Open(service);
        }
    }

    /// Enters a subscription, once the one before it on the same stream is over.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is entered before it is ready.
    pub(crate) async fn enter(&self, hub: &Arc<Hub>) -> Result<(), KinesisError> {
        loop {
            let other = {
                let mut subscriptions = lock(&self.subscriptions);
                match subscriptions.get(&hub.stream) {
                    Some(other) if !other.life.is_over() => Arc::clone(other),
                    _ => {
                        subscriptions.insert(Arc::clone(&hub.stream), Arc::clone(hub));
                        return Ok(());
                    }
                }
            };
            if other.life.is_running() {
                return Err(KinesisError::AlreadySubscribed { stream: Arc::clone(&hub.stream) });
            }
            other.life.over().await;
        }
    }

    /// Closes it, and with it every subscription, each as it is set to drain.
    pub(crate) async fn close(&self) {
        *lock(&self.state) = State::Closed;
        let subscriptions: Vec<Arc<Hub>> = lock(&self.subscriptions).values().map(Arc::clone).collect();
        join_all(subscriptions.iter().map(|hub| async {
            let settings = &hub.settings;
            hub.wind_down(settings.drain_timeout);
            // A `subscribe` that nobody polls any more never ends its subscription's life.
            let _ = timeout(settings.drain_timeout + settings.lease_ttl + GRACE, hub.life.over()).await;
        }))
        .await;
    }
}
