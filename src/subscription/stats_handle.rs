//! The handle that takes snapshots of a subscription.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

use crate::state::{context::SubscriptionContext, shard::Shards, stats::SubscriptionStats};

/// Takes snapshots of a subscription from any place. Cheap to clone; it outlives the subscription.
#[derive(Clone)]
pub struct StatsHandle {
    context: Arc<SubscriptionContext>,
    shards: Arc<Shards>,
}

impl StatsHandle {
    pub(crate) fn new(context: Arc<SubscriptionContext>, shards: Arc<Shards>) -> Self {
        Self { context, shards }
    }

    /// A snapshot of every shard. It takes one short lock for each.
    #[must_use]
    pub fn snapshot(&self) -> SubscriptionStats {
        let shards = self.shards.all().iter().map(|shard| shard.stats()).collect();
        SubscriptionStats {
            stream: Arc::clone(&self.context.stream),
            consumer: Arc::clone(&self.context.consumer),
            owner: Arc::clone(&self.context.owner),
            state: self.context.lifecycle.state(),
            bytes_held: self.context.budget.held(),
            unowned: self.context.gauges.unowned.load(Ordering::Relaxed),
            awaited: self.context.gauges.awaited.load(Ordering::Relaxed),
            failing: self.context.failing(),
            errors: self.context.errors(),
            last_loss: self.context.last_loss(),
            shards,
        }
    }
}

impl fmt::Debug for StatsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatsHandle").field("stream", &self.context.stream).finish_non_exhaustive()
    }
}
