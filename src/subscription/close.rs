//! Closing a subscription in good order.

use std::{fmt, sync::Arc};

use crate::{state::context::SubscriptionContext, types::close_report::CloseReport};

/// Closes a subscription from inside its pipeline, or from anywhere. Cheap to clone.
///
/// ```no_run
/// # use kinesis_stream::prelude::*;
/// # async fn example(quakes: Subscription) -> Result<(), KinesisError> {
/// let closer = quakes.closer();
/// let on_ctrl_c = tokio::spawn(async move {
///     tokio::signal::ctrl_c().await.expect("a signal handler");
///     closer.close().await
/// });
/// quakes.tolerant().try_for_each_concurrent(64, async |delivery| delivery.commit().await.map(drop)).await?;
/// let report = on_ctrl_c.await.expect("closing does not panic");
/// println!("clean: {}", report.is_clean());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Closer {
    context: Arc<SubscriptionContext>,
}

impl Closer {
    pub(crate) fn new(context: Arc<SubscriptionContext>) -> Self {
        Self { context }
    }

    /// Stops reading and ends the stream, waits for what is in flight, writes the checkpoints, releases the leases: in
    /// this order, and at most [`drain_timeout`](crate::KinesisStream::drain_timeout) for what is in flight. Reports what
    /// stayed open. Of several calls the first one begins; all get the report.
    ///
    /// Records that were read and not yet handed out, or that wait to be delivered again or to be written as dead letters,
    /// are left for the next subscription.
    ///
    /// # Cancel safety
    ///
    /// Closing goes on by itself once this was polled; the report is lost, and another call gets it.
    pub async fn close(&self) -> CloseReport {
        self.context.wind_down(self.context.settings.drain_timeout);
        let report = self.context.lifecycle.over().await;
        (*report).clone()
    }
}

impl fmt::Debug for Closer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closer").field("stream", &self.context.stream).finish_non_exhaustive()
    }
}
