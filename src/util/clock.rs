//! Wall time. Only this file reads it, for two uses that the monotonic clock cannot serve: as a last resort if the
//! service does not report its own time, and to notice that the host was suspended. It can only make a lease end
//! earlier, never later.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Wall time that is ahead of the monotonic clock by less than this is no suspension: a wall clock that is being
/// corrected runs a little faster.
const SLACK: Duration = Duration::from_secs(1);

/// Milliseconds since 1970 (UTC) by this host's clock, which may be wrong.
#[expect(clippy::disallowed_methods, reason = "the one place that reads wall time")]
pub(crate) fn unix_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Without the 128-bit division of `as_millis`: this is read once per delivery.
    i64::try_from(since.as_secs())
        .map_or(i64::MAX, |seconds| seconds.saturating_mul(1_000).saturating_add(i64::from(since.subsec_millis())))
}

/// The monotonic clock and the wall clock, read at one time. While a host is suspended, the monotonic clock of most
/// systems stands still, and wall time continues. A wall clock that is set forward looks the same.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BothClocks {
    monotonic: Instant,
    wall_millis: i64,
}

impl BothClocks {
    pub(crate) fn now() -> Self {
        Self::at(Instant::now())
    }

    /// The wall clock, read right after the monotonic clock.
    pub(crate) fn at(monotonic: Instant) -> Self {
        Self { monotonic, wall_millis: wall_millis(monotonic) }
    }

    pub(crate) fn monotonic(self) -> Instant {
        self.monotonic
    }

    /// How long the host was suspended between an earlier reading and this one. Zero if it was not.
    pub(crate) fn suspended_since(self, earlier: Self) -> Duration {
        let wall = u64::try_from(self.wall_millis.saturating_sub(earlier.wall_millis)).unwrap_or_default();
        let gap = Duration::from_millis(wall).saturating_sub(self.monotonic - earlier.monotonic);
        if gap >= SLACK { gap } else { Duration::ZERO }
    }

    /// This time on the monotonic clock, moved back by how long the host was suspended since.
    pub(crate) fn with_suspension(self) -> Instant {
        let gap = Self::now().suspended_since(self);
        self.monotonic.checked_sub(gap).unwrap_or(self.monotonic)
    }
}

#[cfg(not(test))]
fn wall_millis(_monotonic: Instant) -> i64 {
    unix_millis()
}

/// In tests, wall time follows the clock of the runtime, which they pause, and [`suspended::for_millis`].
#[cfg(test)]
fn wall_millis(monotonic: Instant) -> i64 {
    suspended::wall_millis(monotonic)
}

/// A host that is suspended, for tests on one thread.
#[cfg(test)]
pub(crate) mod suspended {
    use std::{cell::Cell, sync::OnceLock};

    use tokio::time::Instant;

    thread_local! {
        static SUSPENDED: Cell<i64> = const { Cell::new(0) };
    }

    static BEGAN: OnceLock<Instant> = OnceLock::new();

    /// Suspends the host: wall time advances by this much.
    pub(crate) fn for_millis(millis: i64) {
        SUSPENDED.set(SUSPENDED.get() + millis);
    }

    pub(super) fn wall_millis(monotonic: Instant) -> i64 {
        let since = monotonic.saturating_duration_since(*BEGAN.get_or_init(|| monotonic));
        i64::try_from(since.as_millis()).unwrap() + SUSPENDED.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // E3
    #[test]
    fn the_host_was_suspended_where_wall_time_ran_ahead() {
        let start = Instant::now();
        let at = |monotonic: u64, wall_millis| BothClocks {
            monotonic: start + Duration::from_millis(monotonic),
            wall_millis,
        };
        // The milliseconds that passed on the monotonic clock and on the wall clock, and the suspension.
        let table =
            [(0, 0, 0), (500, 500, 0), (500, 1_400, 0), (500, 1_500, 1_000), (100, 30_100, 30_000), (900, -5_000, 0)];
        for (monotonic, wall, suspended) in table {
            let gap = at(monotonic, 7_000 + wall).suspended_since(at(0, 7_000));
            assert_eq!(gap, Duration::from_millis(suspended), "{monotonic} ms, {wall} ms");
        }
    }
}
