//! The lifecycle of a subscription: running, closing, over.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{state::stats::SubscriptionState, types::close_report::CloseReport, util::watched::Watched};

/// The stage of a subscription.
#[derive(Clone, Debug)]
pub(crate) enum LifecycleStage {
    /// Reading.
    Running,
    /// No longer reading; deliveries in flight may be settled until then.
    Closing { until: Instant },
    /// The leases are released, and no delivery is valid.
    Over(Arc<CloseReport>),
}

/// See the module. It only moves forward.
#[derive(Debug)]
pub(crate) struct Lifecycle(Watched<LifecycleStage>);

impl Lifecycle {
    pub(crate) fn new() -> Self {
        Self(Watched::new(LifecycleStage::Running))
    }

    pub(crate) fn is_running(&self) -> bool {
        self.0.read(|stage| matches!(stage, LifecycleStage::Running))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.read(|stage| matches!(stage, LifecycleStage::Over(_)))
    }

    /// The stage, for statistics.
    pub(crate) fn state(&self) -> SubscriptionState {
        self.0.read(|stage| match stage {
            LifecycleStage::Running => SubscriptionState::Running,
            LifecycleStage::Closing { .. } => SubscriptionState::Closing,
            LifecycleStage::Over(_) => SubscriptionState::Ended,
        })
    }

    /// Whether deliveries can still be settled.
    pub(crate) fn can_settle(&self) -> bool {
        self.0.read(|stage| match stage {
            LifecycleStage::Running => true,
            LifecycleStage::Closing { until } => Instant::now() < *until,
            LifecycleStage::Over(_) => false,
        })
    }

    /// Begins closing, unless that has begun.
    pub(crate) fn close(&self, drain: Duration) {
        self.0.change(|stage| {
            if let LifecycleStage::Running = stage {
                *stage = LifecycleStage::Closing { until: Instant::now() + drain };
            }
        });
    }

    /// Ends the lifecycle with this report.
    pub(crate) fn finish(&self, report: CloseReport) {
        self.0.change(|stage| *stage = LifecycleStage::Over(Arc::new(report)));
    }

    /// Waits until closing begins. Returns the time until which deliveries may be settled.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub(crate) async fn closing(&self) -> Instant {
        let closing = self.0.wait_for(|stage| match stage {
            LifecycleStage::Running => None,
            LifecycleStage::Closing { until } => Some(*until),
            LifecycleStage::Over(_) => Some(Instant::now()),
        });
        closing.await.unwrap_or_else(Instant::now)
    }

    /// Waits until the subscription is over.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub(crate) async fn over(&self) -> Arc<CloseReport> {
        let over = self.0.wait_for(|stage| match stage {
            LifecycleStage::Over(report) => Some(Arc::clone(report)),
            _ => None,
        });
        over.await.unwrap_or_default()
    }
}
