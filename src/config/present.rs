//! The present by the service's clock, and what it makes of a timestamp that is ahead of it.
//!
//! **Why the service's clock.** Kinesis refuses a time that lies in its future. The clock of a host is often seconds
//! wrong, and `now` is a frequent start. So a time that is slightly ahead means the service's present, and a time that
//! is far ahead is a mistake.
//!
//! **Why it is waited for.** The service tells whole seconds. A time within the current second may have passed or not.
//! Lowered to the second, it would select records that are older than it. So the caller keeps it and waits until it
//! has certainly come, for a second at most.

use std::time::Duration;

use crate::{
    config::position::{Plan, Position},
    error::KinesisError,
};

/// A timestamp that is ahead by this much, in milliseconds, is refused. The clock of a host is hardly this wrong, or
/// no signature would be accepted for much longer.
const REFUSED_MILLIS: i64 = 60_000;

/// The service tells its time without this fraction of a second.
const UNTOLD_MILLIS: i64 = 999;

/// Subtracted from this host's clock if the service does not tell its time: the clock may be ahead by as much.
const HOST_CLOCK_SLACK_MILLIS: i64 = 60_000;

/// How much is known of the service's clock, in Unix milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Present {
    /// The service shows this time, or a later one.
    pub(crate) at_least: i64,
    /// The time that the service most likely shows.
    about: i64,
    /// The latest time that is worth waiting for.
    at_most: i64,
}

impl Present {
    /// The time that the service tells, or else one from the clock of this host.
    pub(crate) fn new(service_millis: Option<i64>, host_millis: i64) -> Self {
        if let Some(told) = service_millis {
            return Self { at_least: told, about: told, at_most: told.saturating_add(UNTOLD_MILLIS) };
        }
        let at_least = host_millis.saturating_sub(HOST_CLOCK_SLACK_MILLIS);
        Self { at_least, about: host_millis, at_most: at_least }
    }

    /// The present after this time has passed.
    pub(crate) fn after(self, elapsed: Duration) -> Self {
        let millis = i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX);
        Self {
            at_least: self.at_least.saturating_add(millis),
            about: self.about.saturating_add(millis),
            at_most: self.at_most.saturating_add(millis),
        }
    }

    /// How long until the time of this position has certainly come. Zero for positions that are no time.
    pub(crate) fn until(self, position: &Position) -> Duration {
        match position {
            Position::Timestamp(millis) => {
                Duration::from_millis(u64::try_from(millis.saturating_sub(self.at_least)).unwrap_or(0))
            }
            Position::Horizon | Position::Latest | Position::Sequence(..) => Duration::ZERO,
        }
    }

    /// How long until the times of both positions of a plan have certainly come.
    pub(crate) fn until_plan(self, plan: &Plan) -> Duration {
        let positions = [&plan.forced, &plan.initial].into_iter().flatten();
        positions.map(|position| self.until(position)).max().unwrap_or(Duration::ZERO)
    }

    /// The position, with the present in place of a time that is slightly ahead of it. An error if it is far ahead.
    /// The caller waits for the result, see [`until`](Self::until). `what` is the setting's name in the API.
    pub(crate) fn settle(self, what: &'static str, position: Position) -> Result<Position, KinesisError> {
        match position {
            Position::Timestamp(millis) if millis.saturating_sub(self.about) >= REFUSED_MILLIS => {
                let now = self.about;
                Err(KinesisError::invalid(
                    what,
                    format!(
                        "a timestamp may be at most the present of the service, {now} (Unix milliseconds); {millis} \
                         is in the future"
                    ),
                ))
            }
            Position::Timestamp(millis) => Ok(Position::Timestamp(millis.min(self.at_most))),
            position => Ok(position),
        }
    }

    /// Does the same to both positions of a plan.
    pub(crate) fn settle_plan(self, plan: Plan) -> Result<Plan, KinesisError> {
        let Plan { forced, initial, latest } = plan;
        Ok(Plan {
            forced: forced.map(|position| self.settle("start_at", position)).transpose()?,
            initial: initial.map(|position| self.settle("initial_position", position)).transpose()?,
            latest,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::position::KinesisPosition;

    fn settled(present: Present, millis: i64) -> Result<Position, String> {
        present.settle("start_at", Position::Timestamp(millis)).map_err(|refused| refused.to_string())
    }

    // R6
    #[test]
    fn a_time_slightly_ahead_is_the_present_and_one_far_ahead_is_refused() {
        let refused = |now: i64, given: i64| {
            let words = "invalid start_at: a timestamp may be at most the present of the service";
            Err(format!("{words}, {now} (Unix milliseconds); {given} is in the future"))
        };
        let told = Present::new(Some(100_000), 0);
        let untold = Present::new(None, 100_000);
        let table = [
            (told, 99_999, Ok(99_999)),
            (told, 100_000, Ok(100_000)),
            (told, 100_999, Ok(100_999)),
            (told, 101_000, Ok(100_999)),
            (told, 159_999, Ok(100_999)),
            (told, 160_000, refused(100_000, 160_000)),
            (told, i64::MAX, refused(100_000, i64::MAX)),
            (told, i64::MIN, Ok(i64::MIN)),
            // The service may show 40 s only.
            (untold, 40_000, Ok(40_000)),
            (untold, 40_001, Ok(40_000)),
            (untold, 159_999, Ok(40_000)),
            (untold, 160_000, refused(100_000, 160_000)),
            (told.after(Duration::from_mins(1)), 160_000, Ok(160_000)),
        ];
        for (present, given, expected) in table {
            if let Ok(millis) = expected {
                assert!(present.until(&Position::Timestamp(millis)) <= Duration::from_millis(999), "{given}");
            }
            assert_eq!(settled(present, given), expected.map(Position::Timestamp), "{present:?}, {given}");
        }
    }

    // R6
    #[test]
    fn positions_that_are_no_times_stay_as_they_are() {
        for KinesisPosition(position) in
            [KinesisPosition::horizon(), KinesisPosition::latest(), KinesisPosition::sequence("a", "1")]
        {
            let present = Present::new(Some(0), 0);
            assert_eq!(present.until(&position), Duration::ZERO);
            assert_eq!(present.settle("position", position.clone()).unwrap(), position);
        }
    }

    // R6
    #[test]
    fn a_refusal_names_the_setting() {
        let plan = |forced, initial| Plan { forced, initial, latest: None };
        let (ahead, fine) = (Some(Position::Timestamp(60_000)), Some(Position::Timestamp(59_999)));
        let settle = |plan| Present::new(Some(0), 0).settle_plan(plan).map_err(|refused| refused.to_string());
        let present = Some(Position::Timestamp(999));
        let settled = settle(plan(fine.clone(), fine.clone())).unwrap();
        assert_eq!(settled, plan(present.clone(), present));
        assert_eq!(Present::new(Some(0), 0).until_plan(&settled), Duration::from_millis(999));
        assert!(settle(plan(ahead.clone(), fine.clone())).unwrap_err().starts_with("invalid start_at: "));
        assert!(settle(plan(fine, ahead)).unwrap_err().starts_with("invalid initial_position: "));
    }
}
