//! How long one read of all lease rows may take.
//!
//! A large or throttled table needs many round trips, so a fixed limit would make it unusable. A read that is abandoned
//! doubles the limit of the next one, and a good read sets it to twice its own time. A single round trip is bounded by
//! the store itself.

use std::{sync::Mutex, time::Duration};

use crate::util::mutex::lock;

/// The longest limit, so that a store that hangs for long is tried again in the end.
const LONGEST: Duration = Duration::from_mins(5);

/// See the module.
#[derive(Debug)]
pub(crate) struct LeaseReadLimit {
    least: Duration,
    current: Mutex<Duration>,
}

impl LeaseReadLimit {
    /// The first read may take `least`, and no read gets less.
    pub(crate) fn new(least: Duration) -> Self {
        Self { least, current: Mutex::new(least) }
    }

    pub(crate) fn current(&self) -> Duration {
        *lock(&self.current)
    }

    /// A read was answered after this time.
    pub(crate) fn answered(&self, after: Duration) {
        self.set(after);
    }

    /// A read was abandoned after this limit. Returns the next limit.
    pub(crate) fn abandoned(&self, limit: Duration) -> Duration {
        self.set(limit)
    }

    fn set(&self, took: Duration) -> Duration {
        let next = took.saturating_mul(2).min(LONGEST).max(self.least);
        *lock(&self.current) = next;
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // E1
    #[test]
    fn the_limit_follows_the_time_that_reads_take() {
        let seconds = Duration::from_secs;
        let limit = LeaseReadLimit::new(seconds(3));
        let mut limits = Vec::new();
        for _ in 0..9 {
            limits.push(limit.current().as_secs());
            limit.abandoned(limit.current());
        }
        assert_eq!(limits, [3, 6, 12, 24, 48, 96, 192, 300, 300]);
        for (took, next) in [(100, 200), (20, 40), (1, 3), (200, 300)] {
            limit.answered(seconds(took));
            assert_eq!(limit.current(), seconds(next), "after {took} s");
        }
        let limit = LeaseReadLimit::new(seconds(600));
        assert_eq!(limit.abandoned(seconds(600)), seconds(600));
    }
}
