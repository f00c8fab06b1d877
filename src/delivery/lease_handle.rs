//! A view of the lease under which a record was delivered, for work that takes long.

use std::{fmt, sync::Arc};

use tokio::{
    select,
    time::{Instant, sleep_until},
};

use crate::{state::shard::Shard, types::id::ShardId};

/// The lease under which a record was delivered: says whether the shard is still this instance's. Cheap to clone; may
/// outlive its delivery and the subscription. Made by [`Delivery::lease`](crate::Delivery::lease).
///
/// Work that takes longer than a lease lives can stop when its shard has moved to another instance, where the record
/// comes again. What it writes elsewhere can carry [`epoch`](Self::epoch) as a fencing token.
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

    /// The shard that is leased.
    #[must_use]
    pub fn shard(&self) -> &ShardId {
        &self.shard.id
    }

    /// One higher with every take of the lease, by whichever instance: of two holders of a shard the later one has the
    /// higher epoch.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether the lease is held at this moment: it was not given up or taken by another instance, and its last renewal
    /// was sent less than its [time to live](crate::KinesisStream::lease_ttl) ago. It stays held while the shard is being
    /// handed over and its deliveries may still be settled.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.shard.held_until(self.epoch).is_some_and(|until| Instant::now() < until)
    }

    /// Waits until the lease is no longer held: ready at once if it is not. Also when it could not be renewed for its time
    /// to live, as another instance may hold the shard from then on.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only looks.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime with its timers on.
    pub async fn lost(&self) {
        loop {
            let changed = self.shard.changed();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let Some(until) = self.shard.held_until(self.epoch).filter(|until| Instant::now() < *until) else {
                return;
            };
            select! {
                biased;
                () = changed => {}
                () = sleep_until(until) => {}
            }
        }
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
