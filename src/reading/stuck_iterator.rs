//! Whether a checkpoint that the service accepted leads nowhere: pure, with the time passed in.
//!
//! Kinesis does not document how it treats a checkpoint older than the retention period. It has been seen to return an
//! iterator that never finds a record and stays behind the tip by the whole retention period. An iterator that works
//! may look like that for a while, but each response brings it closer to the tip.

use tokio::time::{Duration, Instant};

/// How close to the end of the retention period counts as at its end.
const MARGIN: Duration = Duration::from_mins(1);

/// How long an iterator has to find nothing there to count as stuck.
const PATIENCE: Duration = Duration::from_mins(1);

/// The empty responses of one iterator.
#[derive(Debug, Default)]
pub(crate) struct StuckIterator {
    since: Option<Instant>,
}

impl StuckIterator {
    /// Notes a response without records. True if the iterator is stuck.
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
    fn an_iterator_is_stuck_after_a_minute_without_records_at_the_end_of_the_retention() {
        let (mut iterator, start) = (StuckIterator::default(), Instant::now());
        for n in 0..60 {
            assert!(!iterator.is_stuck(Some(NEARLY), Some(DAY), start + seconds(n)));
        }
        assert!(iterator.is_stuck(Some(NEARLY), Some(DAY), start + seconds(60)));
    }

    // H7
    #[test]
    fn an_iterator_that_comes_closer_is_not_stuck() {
        let (mut iterator, start) = (StuckIterator::default(), Instant::now());
        assert!(!iterator.is_stuck(Some(DAY), Some(DAY), start));
        assert!(!iterator.is_stuck(Some(DAY / 2), Some(DAY), start + seconds(59)));
        assert!(!iterator.is_stuck(Some(DAY), Some(DAY), start + seconds(61)));
        assert!(!iterator.is_stuck(None, Some(DAY), start + seconds(200)));
        assert!(!iterator.is_stuck(Some(DAY), None, start + seconds(300)));
    }
}
