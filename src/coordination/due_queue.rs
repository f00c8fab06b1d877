//! When the renewer must check which shard next. Pure, with the time passed in.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;

use crate::types::id::ShardId;

/// At most one due time per shard. Taking the shards that are due costs the same however many others there are.
#[derive(Debug, Default)]
pub(super) struct DueQueue {
    by_shard: HashMap<ShardId, Instant>,
    in_order: BTreeSet<(Instant, ShardId)>,
}

impl DueQueue {
    /// Sets when the shard is due, and forgets its earlier due time. With none it is not due at all.
    pub(super) fn set(&mut self, shard: &ShardId, at: Option<Instant>) {
        let before = match at {
            Some(at) if self.by_shard.get(shard) == Some(&at) => return,
            Some(at) => {
                self.in_order.insert((at, shard.clone()));
                self.by_shard.insert(shard.clone(), at)
            }
            None => self.by_shard.remove(shard),
        };
        if let Some(before) = before {
            self.in_order.remove(&(before, shard.clone()));
        }
    }

    /// The earliest due time.
    pub(super) fn next(&self) -> Option<Instant> {
        self.in_order.first().map(|(at, _)| *at)
    }

    /// Removes and returns the shards that are due by this time.
    pub(super) fn take_due(&mut self, by: Instant) -> Vec<ShardId> {
        let mut taken = Vec::new();
        while let Some(first) = self.in_order.pop_first() {
            if first.0 > by {
                self.in_order.insert(first);
                break;
            }
            self.by_shard.remove(&first.1);
            taken.push(first.1);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Duration;

    use super::*;

    // A4, E1
    #[test]
    fn each_shard_is_due_once_at_the_time_that_was_set_last() {
        let (mut due, start) = (DueQueue::default(), Instant::now());
        let at = |n| start + Duration::from_secs(n);
        for (shard, seconds) in [("a", 3), ("b", 1), ("c", 2), ("a", 1), ("b", 5), ("b", 5)] {
            due.set(&shard.into(), Some(at(seconds)));
        }
        due.set(&"c".into(), None);
        due.set(&"d".into(), None);
        assert_eq!((due.next(), due.take_due(at(0))), (Some(at(1)), vec![]));
        assert_eq!((due.take_due(at(4)), due.next()), (vec!["a".into()], Some(at(5))));
        assert_eq!((due.take_due(at(5)), due.next()), (vec!["b".into()], None));
        assert!(due.by_shard.is_empty());
    }
}
