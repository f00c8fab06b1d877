//! The handle that closes a subscription in order.

use std::{fmt, sync::Arc};

use crate::{state::context::SubscriptionContext, types::close_report::CloseReport};

/// Closes a subscription from inside its pipeline or from any other place. Cheap to clone.
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

    /// Closes the subscription, in this order: it stops reading and ends the stream, waits at most
    /// [`drain_timeout`](crate::KinesisStream::drain_timeout) for deliveries in flight, writes the checkpoints and
    /// releases the leases. The report names what stayed open. The first of several calls starts this; all of them get
    /// the report.
    ///
    /// The next subscription delivers the records that were read but not handed out, and those that wait for a
    /// redelivery or for their dead letter.
    ///
    /// # Cancel safety
    ///
    /// Once this was polled, closing continues without it. A dropped future loses the report; another call gets it.
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
