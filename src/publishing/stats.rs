//! [`PublishStats`]: a snapshot of a sink for dashboards and health checks.

use std::{sync::Arc, time::Duration};

/// A snapshot of one sink. The counters start when the sink is made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PublishStats {
    /// The stream.
    pub stream: Arc<str>,
    /// Records that were stored.
    pub published: u64,
    /// Their bytes, data and keys together.
    pub bytes: u64,
    /// Records that failed after the sink had accepted them.
    pub failed: u64,
    /// Requests that were sent.
    pub requests: u64,
    /// How many times a record was queued for a retry.
    pub retries: u64,
    /// How many entries of requests were throttled.
    pub throttles: u64,
    /// Records that are accepted and not yet settled.
    pub in_flight: u64,
    /// The bytes that they hold of [`max_in_flight_bytes`](crate::PublishTo::max_in_flight_bytes), with 256 for each.
    pub in_flight_bytes: usize,
    /// The time since the oldest of them was accepted.
    pub oldest: Option<Duration>,
}
