//! The handle that moves a running subscription to another position.

use std::{fmt, sync::Arc};

use tokio::sync::{mpsc, oneshot};

use crate::{
    config::position::KinesisPosition, coordination::coordinator::Seek, error::KinesisError,
    state::context::SubscriptionContext,
};

/// Moves a subscription while it runs: back to read records again, or forward to skip some. Cheap to clone; made by
/// [`Subscription::seeker`](crate::Subscription::seeker).
///
/// ```
/// use kinesis_stream::{KinesisError, KinesisPosition, Seeker};
///
/// /// Reads the last hour again, because a sink lost it.
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

    /// Continues reading at this position. When this returns, every shard that moves has its new iterator, and the
    /// stream no longer yields records that were read before.
    ///
    /// - [`horizon`](KinesisPosition::horizon), [`latest`](KinesisPosition::latest) and
    ///   [`timestamp`](KinesisPosition::timestamp) move every shard that this subscription reads. Shards that start
    ///   later without a checkpoint begin at the position, too. The shards of other instances stay where they are.
    /// - `horizon` and `timestamp` also reopen shards that were read to their end and are still listed, parents before
    ///   children: a child that is being read stops, and begins at the position once its parents were read.
    /// - [`sequence`](KinesisPosition::sequence) moves the one shard that it names.
    ///
    /// Deliveries from before the seek no longer count: their [`commit`](crate::Delivery::commit) returns
    /// [`Superseded`](crate::Commit::Superseded), and they are not redelivered. The stored checkpoint stays until the
    /// first record after the seek is settled. Its checkpoint then replaces the old one, even if it is earlier. A
    /// process that dies before that continues from where it was before the seek.
    ///
    /// You may call this from the task that consumes the stream: a seek does not need the stream to be polled.
    ///
    /// # Errors
    ///
    /// - [`KinesisError::Invalid`]: the timestamp is ahead of the service's clock by a minute or more. Nothing moved.
    /// - [`KinesisError::NotConnected`]: the subscription is closed, or the broker was shut down.
    /// - [`KinesisError::NotHeld`]: this instance does not read the shard that the position names.
    /// - [`KinesisError::Store`]: the leases could not be read. Nothing moved.
    /// - [`KinesisError::Seek`]: the named shards could not be moved and continue where they were. All others moved.
    ///
    /// # Cancel safety
    ///
    /// Once this was polled, the seek continues without it.
    pub async fn seek(&self, position: KinesisPosition) -> Result<(), KinesisError> {
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
