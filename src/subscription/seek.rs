//! The handle that moves a running subscription.

use std::{fmt, sync::Arc};

use tokio::sync::{mpsc, oneshot};

use crate::{
    config::position::KinesisPosition, coordination::coordinator::Seek, error::KinesisError,
    state::context::SubscriptionContext, util::clock,
};

/// Moves a subscription while it runs: back to read again, or forward to skip. Cheap to clone; made by
/// [`Subscription::seeker`](crate::Subscription::seeker).
///
/// ```
/// use kinesis_stream::{KinesisError, KinesisPosition, Seeker};
///
/// /// Reads the last hour again, after a sink lost it.
/// async fn replay_an_hour(seeker: &Seeker, now_unix_millis: i64) -> Result<(), KinesisError> {
///     seeker.seek(KinesisPosition::timestamp(now_unix_millis - 3_600_000)).await
/// }
/// ```
#[derive(Clone)]
pub struct Seeker {
    context: Arc<SubscriptionContext>,
    seeks: mpsc::UnboundedSender<Seek>,
}

impl Seeker {
    pub(crate) fn new(context: Arc<SubscriptionContext>, seeks: mpsc::UnboundedSender<Seek>) -> Self {
        Self { context, seeks }
    }

    /// Goes on reading at this position. When it returns, every shard that moves has its new iterator, and the stream gives
    /// no record any more that was read before.
    ///
    /// - [`horizon`](KinesisPosition::horizon), [`latest`](KinesisPosition::latest) and
    ///   [`timestamp`](KinesisPosition::timestamp) move every shard that this subscription reads. The first and the last
    ///   also open those shards again that were read to their end and are still listed, parents before children: a child
    ///   that is being read stops, and begins at the position once its parents were read. Shards that start later without a
    ///   checkpoint begin at the position, too. The shards of other instances stay where they are.
    /// - [`sequence`](KinesisPosition::sequence) moves the one shard that it names.
    ///
    /// Deliveries from before no longer count: their [`commit`](crate::Delivery::commit) answers
    /// [`Superseded`](crate::Commit::Superseded), and they do not come again by themselves. The stored checkpoint stays
    /// until the first record after the seek is settled, and is then replaced, also by an earlier one. A process that dies
    /// before goes on where it was before the seek.
    ///
    /// It may be called from the task that consumes the stream, which does not have to be polled for it.
    ///
    /// # Errors
    ///
    /// - [`KinesisError::Invalid`]: the timestamp is in the future; nothing was moved.
    /// - [`KinesisError::NotConnected`]: the subscription is closed, or the broker was shut down.
    /// - [`KinesisError::NotHeld`]: the shard that the position names is not being read here.
    /// - [`KinesisError::Store`]: the leases could not be read; nothing was moved.
    /// - [`KinesisError::Seek`]: these shards could not be moved and go on where they were; all others moved.
    ///
    /// # Cancel safety
    ///
    /// Once it was polled, the move goes on by itself.
    pub async fn seek(&self, position: KinesisPosition) -> Result<(), KinesisError> {
        position.0.check("position", clock::unix_millis())?;
        if !self.context.lifecycle.is_running() {
            return Err(KinesisError::NotConnected);
        }
        let (done, outcome) = oneshot::channel();
        let seek = Seek { position: position.0, done };
        self.seeks.send(seek).map_err(|_| KinesisError::NotConnected)?;
        outcome.await.unwrap_or(Err(KinesisError::NotConnected))
    }
}

impl fmt::Debug for Seeker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seeker").field("stream", &self.context.stream).finish_non_exhaustive()
    }
}
