//! Looking at a subscription from inside its pipeline.

use std::{
    fmt,
    sync::{Arc, atomic::Ordering},
};

use crate::state::{context::Hub, shard::Ledgers, stats::SubscriptionStats};

/// Takes snapshots of a subscription from anywhere. Cheap to clone; outlives the subscription.
#[derive(Clone)]
pub struct StatsHandle {
    hub: Arc<Hub>,
    ledgers: Arc<Ledgers>,
}

impl StatsHandle {
    pub(crate) fn new(hub: Arc<Hub>, ledgers: Arc<Ledgers>) -> Self {
        Self { hub, ledgers }
    }

    /// How every shard is doing at this moment. Costs a short lock for each.
    #[must_use]
    pub fn snapshot(&self) -> SubscriptionStats {
        let shards = self.ledgers.all().iter().map(|ledger| ledger.stats()).collect();
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
