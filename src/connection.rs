//! What a broker, its clones and its publishers share: the connection, and the register of its subscriptions.
//!
//! The register holds one live subscription for each consumer and stream: two would fence each other's leases.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex},
};

use futures::future::join_all;
use tokio::time::{Duration, timeout};

use crate::{error::KinesisError, kinesis::Service, state::context::SubscriptionContext, util::mutex::lock};

/// How much longer than its drain time and its lease time to live a shutdown waits for a subscription whose store
/// fails.
const GRACE: Duration = Duration::from_secs(5);

/// A connection: new, open or closed.
#[derive(Debug, Default)]
pub(crate) struct Connection(Mutex<ConnectionState>);

#[derive(Debug, Default)]
enum ConnectionState {
    #[default]
    New,
    Open {
        service: Arc<dyn Service>,
        /// By consumer and stream. A finished subscription stays until another one replaces it.
        subscriptions: BTreeMap<(Arc<str>, Arc<str>), Arc<SubscriptionContext>>,
    },
    Closed,
}

impl Connection {
    /// The service, while the connection is open.
    pub(crate) fn service(&self) -> Result<Arc<dyn Service>, KinesisError> {
        match &*lock(&self.0) {
            ConnectionState::Open { service, .. } => Ok(Arc::clone(service)),
            ConnectionState::New | ConnectionState::Closed => Err(KinesisError::NotConnected),
        }
    }

    /// Whether it was never opened.
    pub(crate) fn is_new(&self) -> bool {
        matches!(*lock(&self.0), ConnectionState::New)
    }

    /// Opens a new connection with this service. An open one keeps its service, and a closed one stays closed.
    pub(crate) fn open(&self, service: Arc<dyn Service>) {
        let mut state = lock(&self.0);
        if let ConnectionState::New = *state {
            *state = ConnectionState::Open { service, subscriptions: BTreeMap::new() };
        }
    }

    /// Registers a subscription, once the one before it of the same consumer and stream has finished closing. It is an
    /// error if that one still runs.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a dropped future registers nothing.
    pub(crate) async fn enter(&self, context: &Arc<SubscriptionContext>) -> Result<(), KinesisError> {
        while let Some(other) = self.try_enter(context)? {
            if other.lifecycle.is_running() {
                return Err(KinesisError::AlreadySubscribed { stream: Arc::clone(&context.stream) });
            }
            other.lifecycle.over().await;
        }
        Ok(())
    }

    /// Registers a subscription, or returns the one that still has its place.
    fn try_enter(&self, context: &Arc<SubscriptionContext>) -> Result<Option<Arc<SubscriptionContext>>, KinesisError> {
        let mut state = lock(&self.0);
        let ConnectionState::Open { subscriptions, .. } = &mut *state else { return Err(KinesisError::NotConnected) };
        let key = (Arc::clone(&context.consumer), Arc::clone(&context.stream));
        match subscriptions.get(&key) {
            Some(other) if !other.lifecycle.is_over() => Ok(Some(Arc::clone(other))),
            _ => {
                subscriptions.insert(key, Arc::clone(context));
                Ok(None)
            }
        }
    }

    /// Closes the connection and every subscription, each within its drain time.
    pub(crate) async fn close(&self) {
        let before = mem::replace(&mut *lock(&self.0), ConnectionState::Closed);
        let ConnectionState::Open { subscriptions, .. } = before else { return };
        join_all(subscriptions.values().map(|context| async {
            let settings = &context.settings;
            context.wind_down(settings.drain_timeout);
            // The timeout is for a `subscribe` that is no longer polled: its subscription never finishes.
            let _ = timeout(settings.drain_timeout + settings.lease_ttl + GRACE, context.lifecycle.over()).await;
        }))
        .await;
    }
}
