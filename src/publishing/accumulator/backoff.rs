//! How long to wait before something is sent again.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

/// The first pause is one to two tenths of a second: a shard's second is spent by then, or part of it.
const SHORTEST: Duration = Duration::from_millis(100);

/// Pauses double up to this, and with the jitter to twice as much.
const LONGEST: Duration = Duration::from_secs(5);

/// Pauses that double, each with up to as much again by chance, so that producers that failed together do not come back
/// together. The chance depends on the seed alone.
#[derive(Debug)]
pub(super) struct Backoff {
    seed: u64,
}

impl Backoff {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The pause after so many attempts in a row, of which there was at least one.
    pub(super) fn pause(&mut self, attempts: u32) -> Duration {
        self.seed = self.seed.wrapping_add(1);
        let pauses = ExponentialBuilder::new()
            .with_min_delay(SHORTEST)
            .with_max_delay(LONGEST)
            .without_max_times()
            .with_jitter()
            .with_jitter_seed(self.seed);
        let before = attempts.clamp(1, 16) - 1;
        pauses.build().nth(before as usize).unwrap_or(LONGEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_a_tenth_of_a_second_to_five_with_up_to_as_much_again() {
        let mut backoff = Backoff::new(7);
        for (attempts, millis) in [(1, 100), (2, 200), (3, 400), (6, 3_200), (7, 5_000), (8, 5_000), (u32::MAX, 5_000)]
        {
            let pauses: Vec<_> = (0..100).map(|_| backoff.pause(attempts)).collect();
            let (least, most) = (Duration::from_millis(millis), Duration::from_millis(2 * millis));
            assert!(pauses.iter().all(|pause| (least..=most).contains(pause)), "{attempts}: {pauses:?}");
            assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{attempts}");
        }
    }

    #[test]
    fn no_attempt_at_all_waits_as_long_as_one() {
        assert!(Backoff::new(0).pause(0) < Duration::from_millis(201));
    }
}
