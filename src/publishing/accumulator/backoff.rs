//! How long to wait before a retry.
//!
//! **Entries that failed back off together.** One pause covers all entries that failed in one response; otherwise five
//! hundred of them would return as five hundred requests.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

/// The first pause, before jitter. It is a part of the second for which a shard's limits count.
const SHORTEST: Duration = Duration::from_millis(100);

/// Pauses double up to this, before jitter.
const LONGEST: Duration = Duration::from_secs(5);

/// Pauses that double, each with up to as much again as jitter, so that producers that failed together do not retry
/// together. The jitter depends on the seed alone.
#[derive(Debug)]
pub(super) struct Backoff {
    seed: u64,
}

impl Backoff {
    pub(super) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// The pause after this number of attempts in a row, at least one.
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
    fn pauses_double_from_100_ms_to_5_s_with_jitter_up_to_the_same_length() {
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
    fn zero_attempts_wait_as_long_as_one() {
        assert!(Backoff::new(0).pause(0) < Duration::from_millis(201));
    }
}
