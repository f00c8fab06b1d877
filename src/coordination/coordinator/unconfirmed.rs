//! Takes of which nobody knows whether they were applied: the call failed, or was given up. While the subscription runs, the
//! next look at the leases shows a lease that was taken as this instance's own, and it is taken again. When the
//! subscription closes there is no such look, and the shard would stand still for the time to live of a lease (L9).

use std::{mem, sync::Arc};

use futures::{StreamExt, stream};
use tokio::time::Instant;

use super::{CALLS_AT_ONCE, Coordinator};
use crate::{
    error::{chain::Chain, service::StoreError},
    lease::{Held, Lease, Take, Write},
    state::shard::Ledger,
    util::mutex::lock,
};

/// A take without an answer.
pub(super) type Stray = (Arc<Ledger>, Take);

impl Coordinator {
    /// Notes a take that failed.
    pub(super) fn went_astray(&self, ledger: Arc<Ledger>, take: Take, error: StoreError) {
        ledger.report_store("taking the lease", error);
        lock(&self.strays).push((ledger, take));
    }

    /// The leases were looked at, and the takes that still should be are made again.
    pub(super) fn forget_strays(&self) {
        lock(&self.strays).clear();
    }

    /// Makes each of them once more, so that it is known who has the lease, and lets go of it.
    pub(super) async fn let_go_of_strays(&self) {
        let strays = mem::take(&mut *lock(&self.strays));
        stream::iter(strays).for_each_concurrent(CALLS_AT_ONCE, |stray| self.let_go(stray)).await;
    }

    async fn let_go(&self, (ledger, take): Stray) {
        let sent_at = Instant::now();
        let lease = match self.hub.answer(self.hub.store.take(&take)).await {
            Ok(Write::Applied(lease)) => lease,
            // The first one was applied.
            Ok(Write::Refused(Some(row))) if is_of(&take, &row) => row,
            Ok(Write::Refused(_)) => return,
            Err(error) => {
                let (stream, shard) = (&self.hub.stream, &ledger.shard);
                return tracing::warn!(%stream, %shard, error = %Chain(&error), "the lease may have been taken, and will run out by itself");
            }
        };
        let held = Held { key: take.key, owner: take.owner, epoch: lease.epoch };
        ledger.begin(&lease, held, sent_at);
        ledger.leave(Instant::now());
    }
}

/// Whether the row is as this take leaves it.
fn is_of(take: &Take, row: &Lease) -> bool {
    let before = take.seen.map_or(0, |seen| seen.epoch);
    row.owner.as_ref() == Some(&take.owner) && row.epoch == before + 1
}
