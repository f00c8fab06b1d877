//! The settings of one subscription, once they were found valid: what workers read.

use std::time::Duration;

use crate::config::{position::Plan, redelivery::Retries};

/// What dropping a delivery without settling it means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDrop {
    /// It comes again after a pause. An early `?`, a panic or a cancelled future never loses a record.
    #[default]
    Redeliver,
    /// It is acknowledged, as by [`Delivery::ack`](crate::Delivery::ack), except while the thread is panicking or after
    /// the subscription is gone. A cancelled future acknowledges what it held, too.
    Ack,
}

/// The settings of a subscription. The setters of [`KinesisStream`](crate::KinesisStream) document each.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) plan: Plan,
    pub(crate) create_if_missing: Option<u32>,
    pub(crate) on_drop: OnDrop,
    pub(crate) retries: Retries,
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
    pub(crate) stop_at_tip: bool,
}

impl Settings {
    /// How often every lease is looked at.
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
            stop_at_tip: false,
        }
    }
}
