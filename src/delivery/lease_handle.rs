//! The lease under which a record was delivered, for handlers that work for a long time.

use std::{fmt, sync::Arc};

use tokio::{
    select,
    time::{Instant, sleep_until},
};

use crate::{state::shard::Shard, types::id::ShardId};

/// The lease under which a record was delivered: tells whether this instance still holds the shard. Cheap to clone; may
/// outlive its delivery and the subscription. [`Delivery::lease`](crate::Delivery::lease) returns it.
///
/// A handler that works longer than the lease's time to live can stop when the shard has moved to another instance,
/// which redelivers the record. Writes to other systems can carry [`epoch`](Self::epoch) as a fencing token.
///
/// ```
/// use kinesis_stream::{Delivery, KinesisError};
///
/// # async fn transcode(_: &[u8]) {}
/// async fn work(delivery: Delivery) -> Result<(), KinesisError> {
///     let lease = delivery.lease();
///     tokio::select! {
///         () = transcode(delivery.payload()) => drop(delivery.commit().await?),
///         () = lease.lost() => eprintln!("{} has moved, epoch {} is over", lease.shard(), lease.epoch()),
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct LeaseToken {
    shard: Arc<Shard>,
    epoch: u64,
}

impl LeaseToken {
    pub(crate) fn new(shard: Arc<Shard>, epoch: u64) -> Self {
        Self { shard, epoch }
    }

    /// The leased shard.
    #[must_use]
    pub fn shard(&self) -> &ShardId {
        &self.shard.id
    }

    /// The epoch of the lease. Every take of the lease by any instance increases it by one, so of two holders of a
    /// shard the later one has the higher epoch. It begins again at 1 if the lease row is lost: see
    /// [`Delivery::epoch`](crate::Delivery::epoch).
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether this instance holds the lease now: it has not released the lease, no other instance has taken it, and
    /// the last renewal was sent less than the [time to live](crate::KinesisStream::lease_ttl) ago. During a hand-over,
    /// while deliveries may still be settled, the lease is held.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held_until().is_some()
    }

    /// Waits until this instance no longer holds the lease; returns at once if it does not hold it. A lease that was
    /// not renewed for its time to live counts as lost, because another instance may hold the shard from then on.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    ///
    /// # Panics
    ///
    /// Panics outside of a tokio runtime with timers enabled.
    pub async fn lost(&self) {
        loop {
            let changed = self.shard.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let Some(until) = self.held_until() else { return };
            select! {
                biased;
                () = changed => {}
                () = sleep_until(until) => {}
            }
        }
    }

    /// When the lease expires unless it is renewed. None if it is not held.
    fn held_until(&self) -> Option<Instant> {
        self.shard.view().held_until(self.epoch).filter(|until| Instant::now() < *until)
    }
}

impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseToken")
            .field("stream", &self.shard.context.stream)
            .field("shard", &self.shard.id)
            .field("epoch", &self.epoch)
            .finish_non_exhaustive()
    }
}
