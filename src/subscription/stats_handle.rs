//! The handle that takes snapshots of a subscription.

use std::{fmt, sync::Arc};

use crate::state::{context::SubscriptionContext, shard::Shards, snapshot::snapshot, stats::SubscriptionStats};

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
        snapshot(&self.context, &self.shards)
    }
}

impl fmt::Debug for StatsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatsHandle").field("stream", &self.context.stream).finish_non_exhaustive()
    }
}
