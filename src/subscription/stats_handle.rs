//! Looking at a subscription from inside its pipeline.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

use crate::state::{context::Hub, shard::Shards, stats::SubscriptionStats};

/// Takes snapshots of a subscription from anywhere. Cheap to clone; outlives the subscription.
#[derive(Clone)]
pub struct StatsHandle {
    hub: Arc<Hub>,
    shards: Arc<Shards>,
}

impl StatsHandle {
    pub(crate) fn new(hub: Arc<Hub>, shards: Arc<Shards>) -> Self {
        Self { hub, shards }
    }

    /// How every shard is doing at this moment. Costs a short lock for each.
    #[must_use]
    pub fn snapshot(&self) -> SubscriptionStats {
        let shards = self.shards.all().iter().map(|shard| shard.stats()).collect();
        SubscriptionStats {
            stream: Arc::clone(&self.hub.stream),
            bytes_held: self.hub.budget.held(),
            unowned: self.hub.unowned.load(Ordering::Relaxed),
            awaited: self.hub.awaited.load(Ordering::Relaxed),
            shards,
        }
    }
}

impl fmt::Debug for StatsHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatsHandle").field("stream", &self.hub.stream).finish_non_exhaustive()
    }
}
