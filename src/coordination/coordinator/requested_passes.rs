//! How soon a pass that an event asks for may follow the last one. Pure, with the time passed in.
//!
//! Each pass reads all lease rows. A few requested passes start at once, so that the children of an ended shard start
//! at once (H4). Where many shards ask again and again, for example because all their reads are refused, the passes
//! keep a distance.

use tokio::time::{Duration, Instant};

/// How many requested passes may follow each other at once.
const AT_ONCE: u32 = 4;

/// See the module.
#[derive(Debug)]
pub(super) struct RequestedPasses {
    /// The distance between two of many.
    distance: Duration,
    /// When as many passes will be due at this distance as were made.
    used_until: Instant,
}

impl RequestedPasses {
    pub(super) fn new(distance: Duration, now: Instant) -> Self {
        Self { distance, used_until: now }
    }

    /// Counts a pass that was asked for, if it may start now.
    ///
    /// # Errors
    ///
    /// When it may start, if not now.
    pub(super) fn admit(&mut self, now: Instant) -> Result<(), Instant> {
        let used_until = self.used_until.max(now);
        let at_once = self.distance * (AT_ONCE - 1);
        if used_until > now + at_once {
            return Err(used_until - at_once);
        }
        self.used_until = used_until + self.distance;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // E1, H4
    #[test]
    fn a_few_requested_passes_start_at_once_and_many_keep_a_distance() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut passes = RequestedPasses::new(Duration::from_millis(1_500), start);
        // The millisecond of the request, and when the pass may start.
        let table = [
            (0, 0),
            (0, 0),
            (10, 10),
            (20, 20),
            (30, 1_500),
            (1_499, 1_500),
            (1_500, 1_500),
            (1_501, 3_000),
            (20_000, 20_000),
            (20_000, 20_000),
            (20_000, 20_000),
            (20_000, 20_000),
            (20_000, 21_500),
        ];
        for (asked, starts) in table {
            let expected = if asked == starts { Ok(()) } else { Err(at(starts)) };
            assert_eq!(passes.admit(at(asked)), expected, "{asked} ms");
        }
    }
}
