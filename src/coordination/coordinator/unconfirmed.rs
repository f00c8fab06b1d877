//! Takes without a response: the call failed or was abandoned, and the store may have applied it or not (L9).
//!
//! **Before closing, a take without a response is repeated once.** While the subscription runs, its next read of the
//! lease table shows what became of the take. On closing there is no next read, and a lease that was taken after all
//! would stand idle for its time to live. The second take is either applied, or refused with the row that shows the
//! first one. The instance releases the lease in both cases, and a write that is still on its way arrives too late.

use std::{mem, sync::Arc};

use futures::{StreamExt, stream};
use tokio::time::Instant;

use super::{CALLS_AT_ONCE, Coordinator};
use crate::{
    error::chain::Chain,
    lease::{Held, Lease, Take, Write},
    state::shard::Shard,
    util::clock::BothClocks,
};

/// A take without a response.
pub(super) type Unconfirmed = (Arc<Shard>, Take);

impl Coordinator {
    /// Repeats each take once, which shows who has the lease, and releases it.
    pub(super) async fn release_unconfirmed(&mut self) {
        let unconfirmed = mem::take(&mut self.unconfirmed);
        let this = &*self;
        stream::iter(unconfirmed).for_each_concurrent(CALLS_AT_ONCE, |unconfirmed| this.release(unconfirmed)).await;
    }

    async fn release(&self, (shard, take): Unconfirmed) {
        let sent = BothClocks::now();
        let lease = match self.context.answer("take", self.context.store.take(&take)).await {
            Ok(Write::Applied(lease)) => lease,
            // The first take was applied.
            Ok(Write::Refused(Some(row))) if was_left_by(&take, &row) => row,
            Ok(Write::Refused(_)) => return,
            Err(error) => {
                return tracing::warn!(
                    shard = %shard.id, error = %Chain(&error),
                    "the take has no response: if the store applied it, the lease expires after its time to live"
                );
            }
        };
        let held = Held { key: take.key, owner: take.owner, epoch: lease.epoch };
        shard.begin(&lease, held, lease.checkpoint.is_some(), sent.with_suspension());
        shard.leave(Instant::now());
    }
}

/// Whether the row is as this take leaves it.
fn was_left_by(take: &Take, row: &Lease) -> bool {
    let before = take.seen.map_or(0, |seen| seen.epoch);
    row.owner.as_ref() == Some(&take.owner) && before.checked_add(1) == Some(row.epoch)
}
