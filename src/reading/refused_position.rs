//! Whether the service really does not accept the place of a new iterator: pure, with the time passed in.
//!
//! A checkpoint that is given up is read again from the oldest record, so one odd response must not be enough. A second
//! refusal, at least a second after the first one, confirms it.

use tokio::time::{Duration, Instant};

/// The least time between two refusals that confirm each other.
const APART: Duration = Duration::from_secs(1);

/// The refusals of one place.
#[derive(Debug, Default)]
pub(crate) struct RefusedPosition {
    /// From then on, a refusal confirms the first one.
    confirmed_from: Option<Instant>,
}

impl RefusedPosition {
    /// Notes that the service refused the place. True if that confirms an earlier refusal.
    pub(crate) fn is_confirmed(&mut self, now: Instant) -> bool {
        now >= *self.confirmed_from.get_or_insert(now + APART)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // H7
    #[test]
    fn a_refusal_is_confirmed_by_another_one_at_least_a_second_later() {
        let (mut refused, start) = (RefusedPosition::default(), Instant::now());
        let mut confirmed = |millis| refused.is_confirmed(start + Duration::from_millis(millis));
        assert_eq!([0, 1, 999, 1_000, 5_000].map(&mut confirmed), [false, false, false, true, true]);
    }
}
