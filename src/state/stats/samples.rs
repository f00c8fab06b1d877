//! Snapshots for tests.

use std::time::Duration;

use crate::state::stats::{ErrorCounts, LeaseCounts, ShardState, ShardStats, SubscriptionState, SubscriptionStats};

/// A shard that is read, with nothing to tell.
pub(crate) fn shard(name: &str) -> ShardStats {
    ShardStats {
        shard: name.into(),
        state: ShardState::Reading,
        owner: Some("me".into()),
        epoch: Some(1),
        behind: Some(Duration::ZERO),
        last_read: Some(Duration::from_secs(1)),
        unanswered: None,
        bytes_held: 0,
        in_flight: 0,
        oldest: None,
        checkpoint: None,
        records: 0,
        bytes: 0,
        acked: 0,
        given_back: 0,
        reads: 0,
        throttles: 0,
        expired_iterators: 0,
        redeliveries: 0,
        spent: 0,
        rejected: 0,
        dead_letters: 0,
        too_old: 0,
        batches: 0,
        halvings: 0,
        last_error: None,
    }
}

/// A subscription that holds the shards `a` and `b`, and with which all is well.
pub(crate) fn stats() -> SubscriptionStats {
    SubscriptionStats {
        stream: "s".into(),
        consumer: "c".into(),
        owner: "me".into(),
        state: SubscriptionState::Running,
        bytes_held: 0,
        awaited: 0,
        unowned: 0,
        leases: LeaseCounts::default(),
        failing: Vec::new(),
        errors: ErrorCounts::default(),
        last_loss: None,
        shards: vec![shard("a"), shard("b")],
    }
}
