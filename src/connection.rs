//! What a broker, its clones and its publishers share: the connection, and the subscriptions that live on it.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex},
};

use futures::future::join_all;
use tokio::time::{Duration, timeout};

use crate::{error::KinesisError, kinesis::Service, state::context::SubscriptionContext, util::mutex::lock};

/// How long shutting down waits for a subscription beyond its own time to drain, and for a store that fails.
const GRACE: Duration = Duration::from_secs(5);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Connection(Mutex<State>);

#[derive(Debug, Default)]
enum State {
    #[default]
    NotYet,
    Open {
        service: Arc<dyn Service>,
        /// By consumer and stream. Those that are over stay until another takes their place.
        subscriptions: BTreeMap<(Arc<str>, Arc<str>), Arc<SubscriptionContext>>,
    },
    Closed,
}

impl Connection {
    /// The service, while the connection is open.
    pub(crate) fn service(&self) -> Result<Arc<dyn Service>, KinesisError> {
        match &*lock(&self.0) {
            State::Open { service, .. } => Ok(Arc::clone(service)),
            State::NotYet | State::Closed => Err(KinesisError::NotConnected),
        }
    }

    /// Whether it was never open so far.
    pub(crate) fn is_new(&self) -> bool {
        matches!(*lock(&self.0), State::NotYet)
    }

    /// Opens it. The first one to do so decides; a closed connection stays closed.
    pub(crate) fn open(&self, service: Arc<dyn Service>) {
        let mut state = lock(&self.0);
        if let State::NotYet = *state {
            *state = State::Open { service, subscriptions: BTreeMap::new() };
        }
    }

    /// Enters a subscription, once the one before it on the same stream is over.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is entered before it is ready.
    pub(crate) async fn enter(&self, context: &Arc<SubscriptionContext>) -> Result<(), KinesisError> {
        while let Some(other) = self.try_enter(context)? {
            if other.lifecycle.is_running() {
                return Err(KinesisError::AlreadySubscribed { stream: Arc::clone(&context.stream) });
            }
            other.lifecycle.over().await;
        }
        Ok(())
    }

    /// Enters a subscription, or gives the one whose place it would take.
    fn try_enter(&self, context: &Arc<SubscriptionContext>) -> Result<Option<Arc<SubscriptionContext>>, KinesisError> {
        let mut state = lock(&self.0);
        let State::Open { subscriptions, .. } = &mut *state else { return Err(KinesisError::NotConnected) };
        let key = (Arc::clone(&context.consumer), Arc::clone(&context.stream));
        match subscriptions.get(&key) {
            Some(other) if !other.lifecycle.is_over() => Ok(Some(Arc::clone(other))),
            _ => {
                subscriptions.insert(key, Arc::clone(context));
                Ok(None)
            }
        }
    }

    /// Closes it, and with it every subscription, each as it is set to drain.
    pub(crate) async fn close(&self) {
        let before = mem::replace(&mut *lock(&self.0), State::Closed);
        let State::Open { subscriptions, .. } = before else { return };
        join_all(subscriptions.values().map(|context| async {
            let settings = &context.settings;
            context.wind_down(settings.drain_timeout);
            // A `subscribe` that nobody polls any more never ends its subscription's life.
            let _ = timeout(settings.drain_timeout + settings.lease_ttl + GRACE, context.lifecycle.over()).await;
        }))
        .await;
    }
}
