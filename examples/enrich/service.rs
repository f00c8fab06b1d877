//! Stands for a remote service.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use serde_json::Value;
use tokio::time::sleep;

/// The service, and how many calls it has.
#[derive(Debug, Default)]
pub(crate) struct Service {
    running: AtomicUsize,
    most: AtomicUsize,
}

/// Why a lookup failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ServiceError {
    /// Temporary.
    #[error("the service is busy")]
    Busy,
    /// Permanent.
    #[error("not an event: {0}")]
    NotAnEvent(#[from] serde_json::Error),
}

impl Service {
    /// Takes 1 to 10 ms. Fails the first attempt for a few of the events.
    pub(crate) async fn nearest_town(&self, event: &[u8], attempt: u32) -> Result<String, ServiceError> {
        let event: Value = serde_json::from_slice(event)?;
        let time = event["time"].as_u64().unwrap_or_default();
        self.most.fetch_max(self.running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        sleep(Duration::from_millis(1 + time / 10 % 10)).await;
        self.running.fetch_sub(1, Ordering::Relaxed);
        if time.is_multiple_of(53) && attempt == 1 {
            return Err(ServiceError::Busy);
        }
        let place = event["place"].as_str().unwrap_or_default();
        Ok(place.rsplit(" of ").next().unwrap_or_default().to_owned())
    }

    /// The largest number of concurrent calls.
    pub(crate) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
}
