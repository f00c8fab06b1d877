//! Takes of which nobody knows whether they were applied: the call failed, or was given up. While the subscription runs, the
//! next look at the leases shows a lease that was taken as this instance's own, and it is taken again. When the
//! subscription closes there is no such look, and the shard would stand still for the time to live of a lease (L9).

use std::{mem, sync::Arc};

use futures::{StreamExt, stream};
use tokio::time::Instant;

use super::task::{CALLS_AT_ONCE, Coordinator};
use crate::{
    error::service::StoreError,
    lease::{Held, Lease, Take, Write},
    state::shard::Shard,
    util::mutex::lock,
};

/// A take without an answer.
pub(super) type Unconfirmed = (Arc<Shard>, Take);

impl Coordinator {
    /// Notes a take that failed.
    pub(super) fn note_unconfirmed(&self, shard: Arc<Shard>, take: Take, error: StoreError) {
        shard.report_store("taking the lease", error);
        lock(&self.unconfirmed).push((shard, take));
    }

    /// The leases were looked at, and the takes that still should be are made again.
    pub(super) fn forget_unconfirmed(&self) {
        lock(&self.unconfirmed).clear();
    }

    /// Makes each of them once more, so that it is known who has the lease, and lets go of it.
    pub(super) async fn release_unconfirmed(&self) {
        let unconfirmed = mem::take(&mut *lock(&self.unconfirmed));
        stream::iter(unconfirmed).for_each_concurrent(CALLS_AT_ONCE, |unconfirmed| self.release(unconfirmed)).await;
    }

    async fn release(&self, (shard, take): Unconfirmed) {
        let sent_at = Instant::now();
        let lease = match self.context.answer(self.context.store.take(&take)).await {
            Ok(Write::Applied(lease)) => lease,
            // The first one was applied.
            Ok(Write::Refused(Some(row))) if was_left_by(&take, &row) => row,
            Ok(Write::Refused(_)) => return,
            Err(error) => {
                let (stream, shard_id) = (&self.context.stream, &shard.id);
                return tracing::warn!(%stream, shard = %shard_id, %error, "the lease may have been taken, and will run out by itself");
            }
        };
        let held = Held { key: take.key, owner: take.owner, epoch: lease.epoch };
        shard.begin(&lease, held, sent_at);
        shard.leave(Instant::now());
    }
}

/// Whether the row is as this take leaves it.
fn was_left_by(take: &Take, row: &Lease) -> bool {
    let before = take.seen.map_or(0, |seen| seen.epoch);
    row.owner.as_ref() == Some(&take.owner) && row.epoch == before + 1
}
