//! The life of a subscription: running, winding down, over.

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{types::close_report::CloseReport, util::watched::Watched};

/// How far it is.
#[derive(Clone, Debug)]
pub(crate) enum Stage {
    /// Reading.
    Running,
    /// No longer reading; what is in flight may be settled until then.
    Closing { until: Instant },
    /// Leases are released, nothing is valid any more.
    Over(Arc<CloseReport>),
}

/// See the module. Moves forward only.
#[derive(Debug)]
pub(crate) struct Lifecycle(Watched<Stage>);

impl Lifecycle {
    pub(crate) fn new() -> Self {
        Self(Watched::new(Stage::Running))
    }

    pub(crate) fn is_running(&self) -> bool {
        self.0.read(|stage| matches!(stage, Stage::Running))
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.read(|stage| matches!(stage, Stage::Over(_)))
    }

    /// Whether deliveries can no longer be settled.
    pub(crate) fn is_gone(&self) -> bool {
        self.0.read(|stage| match stage {
            Stage::Running => false,
            Stage::Closing { until } => *until <= Instant::now(),
            Stage::Over(_) => true,
        })
    }

    /// Begins to wind down, if that has not begun yet.
    pub(crate) fn close(&self, drain: Duration) {
        self.0.change(|stage| {
            if let Stage::Running = stage {
                *stage = Stage::Closing { until: Instant::now() + drain };
            }
        });
    }

    pub(crate) fn finish(&self, report: CloseReport) {
        self.0.change(|stage| *stage = Stage::Over(Arc::new(report)));
    }

    /// Waits until winding down begins and says until when deliveries may be settled.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only looks.
    pub(crate) async fn closing(&self) -> Instant {
        let closing = self.0.wait_for(|stage| match stage {
            Stage::Running => None,
            Stage::Closing { until } => Some(*until),
            Stage::Over(_) => Some(Instant::now()),
        });
        closing.await.unwrap_or_else(Instant::now)
    }

    /// Waits until it is over.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only looks.
    pub(crate) async fn over(&self) -> Arc<CloseReport> {
        let over = self.0.wait_for(|stage| match stage {
            Stage::Over(report) => Some(Arc::clone(report)),
            _ => None,
        });
        over.await.unwrap_or_default()
    }
}
