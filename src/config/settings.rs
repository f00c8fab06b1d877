//! The settings of one subscription, after they were validated. Its tasks read them; nothing changes them.

use std::time::Duration;

use crate::config::{max_age::MaxAge, position::Plan, redelivery::Retries};

/// What happens if a delivery is dropped before it is settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDrop {
    /// The record is redelivered after a pause. An early `?`, a panic or a cancelled future never loses a record.
    #[default]
    Redeliver,
    /// The record is acknowledged, as with [`Delivery::ack`](crate::Delivery::ack), unless the thread is panicking or
    /// the subscription is gone. A cancelled future also acknowledges the deliveries that it held.
    Ack,
}

/// The settings of a subscription. The setters of [`KinesisStream`](crate::KinesisStream) document each.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) plan: Plan,
    pub(crate) create_if_missing: Option<u32>,
    pub(crate) on_drop: OnDrop,
    pub(crate) retries: Retries,
    pub(crate) max_age: MaxAge,
    pub(crate) poll_interval: Duration,
    pub(crate) read_limit: u32,
    pub(crate) reads_per_second: u32,
    pub(crate) max_in_flight: usize,
    pub(crate) max_buffered_bytes: usize,
    pub(crate) checkpoint_interval: Duration,
    pub(crate) drain_timeout: Duration,
    pub(crate) lease_ttl: Duration,
    pub(crate) renew_interval: Duration,
    pub(crate) list_interval: Duration,
    pub(crate) max_leases: usize,
    pub(crate) patience: Duration,
    pub(crate) stop_at_tip: bool,
}

impl Settings {
    /// The interval at which the renewer checks every lease.
    pub(crate) fn round(&self) -> Duration {
        self.checkpoint_interval.min(self.renew_interval)
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            plan: Plan::default(),
            create_if_missing: None,
            on_drop: OnDrop::default(),
            retries: Retries::default(),
            max_age: MaxAge::default(),
            poll_interval: Duration::from_secs(1),
            read_limit: 1_000,
            reads_per_second: 5,
            max_in_flight: 10_000,
            max_buffered_bytes: 64 << 20,
            checkpoint_interval: Duration::from_secs(1),
            drain_timeout: Duration::from_secs(30),
            lease_ttl: Duration::from_secs(10),
            renew_interval: Duration::from_secs(3),
            list_interval: Duration::from_secs(10),
            max_leases: usize::MAX,
            patience: Duration::from_mins(2),
            stop_at_tip: false,
        }
    }
}
