//! Whether a checkpoint that the service accepted leads nowhere: pure, with the time passed in.
//!
//! Kinesis does not document how it treats a checkpoint older than the retention period. It has been seen to return an
//! iterator that never finds a record and stays behind the tip by the whole retention period. An iterator that works
//! may look like that for a while, but its responses bring it closer to the tip.
//!
//! **The retention decides, and it is read only then.** It may have been raised since, so that a checkpoint that looks
//! too old still leads to records, or lowered, so that a checkpoint that looks young enough does not.

use tokio::time::{Duration, Instant};

/// How close to the end of the retention period counts as at its end.
const MARGIN: Duration = Duration::from_mins(1);

/// How long an iterator has to find nothing and come no closer to the tip to be suspect.
const PATIENCE: Duration = Duration::from_mins(1);

/// When the retention is read again after that failed.
const RETRY: Duration = Duration::from_secs(10);

/// By how much the lag has to fall to count as coming closer.
const STEP: Duration = Duration::from_secs(1);

/// The shortest retention, in the unit of the service. No iterator that lags less is at its end.
const LEAST_RETENTION: Duration = Duration::from_hours(1);

/// The empty responses of one iterator that do not come closer to the tip.
#[derive(Clone, Copy, Debug)]
struct EmptyRun {
    /// The least lag of these responses.
    least: Duration,
    judge_at: Instant,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct StuckIterator {
    run: Option<EmptyRun>,
}

impl StuckIterator {
    /// Notes a response without records. True if the retention has to be read now to judge the iterator.
    pub(crate) fn is_suspect(&mut self, behind: Option<Duration>, now: Instant) -> bool {
        let Some(behind) = behind.filter(|behind| *behind + MARGIN >= LEAST_RETENTION) else {
            self.run = None;
            return false;
        };
        match &mut self.run {
            Some(run) if behind + STEP > run.least => {
                run.least = run.least.min(behind);
                now >= run.judge_at
            }
            _ => {
                self.run = Some(EmptyRun { least: behind, judge_at: now + PATIENCE });
                false
            }
        }
    }

    /// Judges a suspect iterator by this retention. True if it is stuck. If not, it has another minute.
    pub(crate) fn is_stuck(&mut self, retention: Option<Duration>, now: Instant) -> bool {
        let Some(run) = &mut self.run else { return false };
        run.judge_at = now + PATIENCE;
        retention.is_some_and(|retention| run.least + MARGIN >= retention)
    }

    /// Notes that the retention could not be read: a suspect iterator is judged a little later.
    pub(crate) fn postpone(&mut self, now: Instant) {
        if let Some(run) = &mut self.run {
            run.judge_at = now + RETRY;
        }
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

    /// Empty responses, one a second, with these lags. Returns the seconds at which the iterator is suspect.
    fn suspect(lags: impl IntoIterator<Item = Option<Duration>>) -> Vec<u64> {
        let (mut iterator, start) = (StuckIterator::default(), Instant::now());
        let mut suspect = Vec::new();
        for (second, behind) in (0..).zip(lags) {
            if iterator.is_suspect(behind, start + seconds(second)) {
                iterator.is_stuck(None, start + seconds(second));
                suspect.push(second);
            }
        }
        suspect
    }

    // H7
    #[test]
    fn an_iterator_is_suspect_after_each_minute_without_records_in_which_it_comes_no_closer() {
        assert_eq!(suspect([Some(NEARLY); 130]), [60, 120]);
        let nearer = (0..130).map(|second| DAY.checked_sub(seconds(second)));
        assert_eq!(suspect(nearer), [0; 0]);
        let once = (0..130).map(|second| Some(if second < 30 { DAY } else { DAY / 2 }));
        assert_eq!(suspect(once), [90]);
        let further = (0..130).map(|second| Some(DAY + seconds(second)));
        assert_eq!(suspect(further), [60, 120]);
        let unsteady = (0..130).map(|second| Some(DAY + Duration::from_millis(900 * (second % 2))));
        assert_eq!(suspect(unsteady), [60, 120]);
    }

    // H7
    #[test]
    fn an_iterator_that_lags_little_or_by_an_unknown_time_is_not_suspect() {
        assert_eq!(suspect([None; 130]), [0; 0]);
        assert_eq!(suspect([Some(Duration::ZERO); 130]), [0; 0]);
        assert_eq!(suspect([Some(seconds(58 * 60)); 130]), [0; 0]);
        let unknown_once = (0..130).map(|second| Some(DAY).filter(|_| second != 30));
        assert_eq!(suspect(unknown_once), [91]);
    }

    // H7
    #[test]
    fn a_suspect_iterator_is_stuck_if_it_is_at_the_end_of_the_retention() {
        let table = [
            (NEARLY, Some(DAY), true),
            (2 * DAY, Some(DAY), true),
            (NEARLY, Some(7 * DAY), false),
            (DAY / 2, Some(DAY), false),
            (DAY, None, false),
        ];
        for (behind, retention, is_stuck) in table {
            let (mut iterator, start) = (StuckIterator::default(), Instant::now());
            iterator.is_suspect(Some(behind), start);
            assert_eq!(iterator.is_stuck(retention, start + seconds(60)), is_stuck, "{behind:?} of {retention:?}");
            assert!(!iterator.is_suspect(Some(behind), start + seconds(119)));
            assert!(iterator.is_suspect(Some(behind), start + seconds(120)));
        }
    }

    // H7
    #[test]
    fn without_the_retention_a_suspect_iterator_is_judged_ten_seconds_later() {
        let (mut iterator, start) = (StuckIterator::default(), Instant::now());
        iterator.is_suspect(Some(DAY), start);
        iterator.postpone(start + seconds(60));
        assert!(!iterator.is_suspect(Some(DAY), start + seconds(69)));
        assert!(iterator.is_suspect(Some(DAY), start + seconds(70)));
    }
}
