//! Records that are too old to be delivered: whether one is, and what happens to it. Pure values.
//!
//! **A record counts as too old only if that is certain.** The caller passes a time that the service's clock has
//! certainly reached, so a host whose clock runs ahead passes no record over. A record whose arrival the service does
//! not tell is never too old.

use std::time::Duration;

use crate::{config::limits::within, error::KinesisError};

/// The limits of `max_age`: the arrival of records is not exact, and no stream keeps records for longer than a year.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_hours(365 * 24);

/// What happens to a record that is older than [`max_age`](crate::KinesisStream::max_age).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TooOld {
    /// It goes to the [`dead_letter`](crate::KinesisStream::dead_letter) stream, and is settled once it is written.
    DeadLetter,
    /// It is passed over: settled without being delivered. [`ShardStats::too_old`](crate::ShardStats::too_old) counts
    /// it.
    Skip,
}

/// The settings of old records.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct MaxAge {
    /// The age above which a record is too old.
    pub(crate) limit: Option<Duration>,
    /// None if the user has not chosen.
    pub(crate) too_old: Option<TooOld>,
}

impl MaxAge {
    /// Whether the settings are within their limits and fit together.
    pub(crate) fn check(&self, has_dead_letter: bool) -> Result<(), KinesisError> {
        let invalid = |problem| Err(KinesisError::invalid("too_old", problem));
        match (self.limit, self.too_old) {
            (None, Some(_)) => invalid("it needs max_age, which says what is too old; given: too_old alone"),
            (Some(_), Some(TooOld::DeadLetter)) if !has_dead_letter => {
                invalid("dead letters need dead_letter, which names their stream; given: TooOld::DeadLetter without it")
            }
            (limit, _) => within("max_age", limit.unwrap_or(SHORTEST), SHORTEST, LONGEST),
        }
    }

    /// What happens to a record that arrived at this time, if it is too old now. Both times are in Unix milliseconds by
    /// the service's clock.
    pub(crate) fn decide(&self, arrived_at: Option<i64>, now: Option<i64>, has_dead_letter: bool) -> Option<TooOld> {
        let (limit, age) = (self.limit?, now?.saturating_sub(arrived_at?));
        let is_too_old = u128::try_from(age).is_ok_and(|age| age > limit.as_millis());
        let usual = if has_dead_letter { TooOld::DeadLetter } else { TooOld::Skip };
        is_too_old.then_some(self.too_old.unwrap_or(usual))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn max_age(seconds: u64, too_old: Option<TooOld>) -> MaxAge {
        MaxAge { limit: Some(Duration::from_secs(seconds)), too_old }
    }

    // A8
    #[test]
    fn a_record_is_too_old_once_its_age_is_certainly_above_the_limit() {
        let minute = max_age(60, None);
        let table = [
            (&minute, Some(0), Some(60_000), None),
            (&minute, Some(0), Some(60_001), Some(TooOld::Skip)),
            (&minute, Some(1), Some(60_001), None),
            (&minute, Some(-60_001), Some(0), Some(TooOld::Skip)),
            // From the future, and the extremes.
            (&minute, Some(60_001), Some(0), None),
            (&minute, Some(i64::MIN), Some(i64::MAX), Some(TooOld::Skip)),
            (&minute, Some(i64::MAX), Some(i64::MIN), None),
            // Not known.
            (&minute, None, Some(60_001), None),
            (&minute, Some(0), None, None),
            (&MaxAge::default(), Some(0), Some(i64::MAX), None),
        ];
        for (max_age, arrived_at, now, expected) in table {
            assert_eq!(max_age.decide(arrived_at, now, false), expected, "{max_age:?}, {arrived_at:?}, {now:?}");
        }
    }

    // A8
    #[test]
    fn an_old_record_is_a_dead_letter_where_there_is_a_stream_for_it_unless_it_is_to_be_passed_over() {
        let old = |too_old, has_dead_letter| max_age(1, too_old).decide(Some(0), Some(2_000), has_dead_letter);
        assert_eq!([old(None, false), old(None, true)], [Some(TooOld::Skip), Some(TooOld::DeadLetter)]);
        assert_eq!([old(Some(TooOld::Skip), true), old(Some(TooOld::Skip), false)], [Some(TooOld::Skip); 2]);
        assert_eq!(old(Some(TooOld::DeadLetter), true), Some(TooOld::DeadLetter));
    }
}
