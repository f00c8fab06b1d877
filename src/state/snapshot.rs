//! Takes the snapshot that the user and the metrics see.

use std::sync::{Arc, atomic::Ordering};

use crate::state::{
    context::SubscriptionContext,
    shard::Shards,
    stats::{LeaseCounts, SubscriptionStats},
};

/// A snapshot of a subscription and its shards. It takes one short lock for each shard.
pub(crate) fn snapshot(context: &SubscriptionContext, shards: &Shards) -> SubscriptionStats {
    let gauges = &context.gauges;
    SubscriptionStats {
        stream: Arc::clone(&context.stream),
        consumer: Arc::clone(&context.consumer),
        owner: Arc::clone(&context.owner),
        state: context.lifecycle.state(),
        bytes_held: context.budget.held(),
        unowned: gauges.unowned.load(Ordering::Relaxed),
        awaited: gauges.awaited.load(Ordering::Relaxed),
        leases: LeaseCounts {
            taken: context.leases_taken(),
            handed_over: gauges.handed_over.load(Ordering::Relaxed),
            lost: gauges.lost.load(Ordering::Relaxed),
        },
        failing: context.failing(),
        errors: context.errors(),
        last_loss: context.last_loss(),
        shards: shards.all().iter().map(|shard| shard.stats()).collect(),
    }
}
