//! Whether a checkpoint that the service accepted leads nowhere: pure, with the time passed in.
//!
//! What a service does with a checkpoint older than its retention is not documented, and one thing that was seen is that
//! it gives an iterator which finds nothing, for ever, as far behind the tip as records are kept. An iterator that works
//! may look like that for a while, too: it comes closer to the tip with each answer.

use tokio::time::{Duration, Instant};

/// How near to the end of the retention counts as at its end.
const MARGIN: Duration = Duration::from_mins(1);

/// How long an iterator has to find nothing there.
const PATIENCE: Duration = Duration::from_mins(1);

/// The empty answers of one iterator.
#[derive(Debug, Default)]
pub(crate) struct Stall {
    since: Option<Instant>,
}

impl Stall {
    /// Takes in an answer without records. True if the iterator is stuck.
    pub(crate) fn is_stuck(&mut self, behind: Option<Duration>, retention: Option<Duration>, now: Instant) -> bool {
        let pinned = behind.zip(retention).is_some_and(|(behind, retention)| behind + MARGIN >= retention);
        if !pinned {
            self.since = None;
            return false;
        }
        now >= *self.since.get_or_insert(now) + PATIENCE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = Duration::from_hours(24);
    const NEARLY: Duration = Duration::from_secs(24 * 60 * 60 - 1);

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    // H7
    #[test]
    fn an_iterator_is_stuck_after_a_minute_of_nothing_at_the_end_of_the_retention() {
        let (mut stall, start) = (Stall::default(), Instant::now());
        for n in 0..60 {
            assert!(!stall.is_stuck(Some(NEARLY), Some(DAY), start + seconds(n)));
        }
        assert!(stall.is_stuck(Some(NEARLY), Some(DAY), start + seconds(60)));
    }

    // H7
    #[test]
    fn an_iterator_that_comes_closer_is_not_stuck() {
        let (mut stall, start) = (Stall::default(), Instant::now());
        assert!(!stall.is_stuck(Some(DAY), Some(DAY), start));
        assert!(!stall.is_stuck(Some(DAY / 2), Some(DAY), start + seconds(59)));
        assert!(!stall.is_stuck(Some(DAY), Some(DAY), start + seconds(61)));
        assert!(!stall.is_stuck(None, Some(DAY), start + seconds(200)));
        assert!(!stall.is_stuck(Some(DAY), None, start + seconds(300)));
    }
}
