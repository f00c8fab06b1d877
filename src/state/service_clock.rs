//! The service's clock, as far as its responses have told it (A8).
//!
//! **It is a lower bound.** The service tells whole seconds, and a host that was suspended counts too little time since
//! then, until the next response tells it. So a record never seems older than it is.

use std::sync::atomic::{AtomicI64, Ordering};

use tokio::time::Instant;

/// No response has told it.
const UNKNOWN: i64 = i64::MIN;

/// See the module.
#[derive(Debug)]
pub(crate) struct ServiceClock {
    began: Instant,
    /// What it showed at `began`, in Unix milliseconds.
    at_began: AtomicI64,
}

impl ServiceClock {
    pub(crate) fn new() -> Self {
        Self { began: Instant::now(), at_began: AtomicI64::new(UNKNOWN) }
    }

    /// Notes that the service shows this time, in Unix milliseconds, or a later one. The newest response counts, so an
    /// error of one response does not last.
    pub(crate) fn note(&self, unix_millis: i64, now: Instant) {
        let at_began = unix_millis.saturating_sub(self.since_began(now)).max(UNKNOWN + 1);
        self.at_began.store(at_began, Ordering::Relaxed);
    }

    /// The time that it has certainly reached. None if it is not known.
    pub(crate) fn at_least(&self, now: Instant) -> Option<i64> {
        let at_began = self.at_began.load(Ordering::Relaxed);
        (at_began != UNKNOWN).then(|| at_began.saturating_add(self.since_began(now)))
    }

    fn since_began(&self, now: Instant) -> i64 {
        i64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    // A8
    #[tokio::test(start_paused = true)]
    async fn the_clock_goes_on_from_the_newest_time_that_was_told() {
        let (clock, start) = (ServiceClock::new(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(clock.at_least(at(5)), None);
        clock.note(1_000_000, at(5));
        assert_eq!([clock.at_least(at(5)), clock.at_least(at(65))], [Some(1_000_000), Some(1_060_000)]);
        clock.note(2_000_000, at(65));
        clock.note(1_500_000, at(70));
        assert_eq!(clock.at_least(at(70)), Some(1_500_000));
        for extreme in [i64::MIN, i64::MAX] {
            clock.note(extreme, at(70));
            assert!(clock.at_least(at(70)).is_some());
        }
    }
}
