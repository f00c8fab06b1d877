//! When dead letters may be written, after writes that failed: pure, with the time passed in.
//!
//! A failed write says more about the stream than about its record, so all of them wait. After the pause a single one
//! goes first, to see.

use std::time::Duration;

use tokio::time::Instant;

use crate::{config::redelivery::doubled, error::service::FailureKind};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Writes under way at the same time: a shard takes a thousand records a second, and a write some ten milliseconds.
const WRITES_AT_ONCE: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Circuit {
    shut: Option<OpenCircuit>,
}

/// Writes failed, the last one in this state after all others.
#[derive(Clone, Copy, Debug)]
struct OpenCircuit {
    since: Instant,
    opens_at: Instant,
    failures: u32,
}

impl Circuit {
    /// How many writes may be under way now.
    pub(super) fn width(&self, now: Instant) -> usize {
        match self.shut {
            None => WRITES_AT_ONCE,
            Some(shut) => usize::from(now >= shut.opens_at),
        }
    }

    /// When it opens for the next attempt, if it is shut.
    pub(super) fn opens_at(&self) -> Option<Instant> {
        self.shut.map(|shut| shut.opens_at)
    }

    /// A write succeeded.
    pub(super) fn passed(&mut self) {
        self.shut = None;
    }

    /// A write that was sent at `sent_at` failed. Several that were under way together count as one.
    pub(super) fn failed(&mut self, kind: FailureKind, sent_at: Instant, now: Instant) {
        let failures = match self.shut {
            Some(shut) if sent_at < shut.since => return,
            Some(shut) => shut.failures.saturating_add(1),
            None => 1,
        };
        let pause = match kind {
            // Somebody has to create the stream, or to give the permission.
            FailureKind::NotFound | FailureKind::Denied => LONGEST_PAUSE,
            _ => doubled(FIRST_PAUSE, LONGEST_PAUSE, failures),
        };
        self.shut = Some(OpenCircuit { since: now, opens_at: now + pause, failures });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(kinds: &[FailureKind]) -> Vec<u64> {
        let (mut circuit, mut now) = (Circuit::default(), Instant::now());
        let fail = |kind: &FailureKind| {
            circuit.failed(*kind, now, now);
            let pause = circuit.opens_at().unwrap() - now;
            now += pause;
            pause.as_secs()
        };
        kinds.iter().map(fail).collect()
    }

    // A7
    #[test]
    fn the_pause_between_writes_that_fail_doubles_from_a_second_to_a_minute() {
        assert_eq!(pauses(&[FailureKind::Throttled; 8]), [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pauses(&[FailureKind::Unreachable, FailureKind::Other, FailureKind::NotReady]), [1, 2, 4]);
    }

    // A7
    #[test]
    fn what_somebody_has_to_repair_first_waits_the_longest_at_once() {
        assert_eq!(pauses(&[FailureKind::NotFound, FailureKind::Denied, FailureKind::Other]), [60, 60, 4]);
    }

    // A7
    #[test]
    fn writes_that_fail_together_count_as_one_and_then_a_single_one_goes_first() {
        let (mut circuit, start) = (Circuit::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!((circuit.width(start), circuit.opens_at()), (16, None));
        for answer in 10..26 {
            circuit.failed(FailureKind::Throttled, start, at(answer));
        }
        assert_eq!(circuit.opens_at(), Some(at(1_010)));
        assert_eq!([1_009, 1_010, 5_000].map(|millis| circuit.width(at(millis))), [0, 1, 1]);
        circuit.failed(FailureKind::Throttled, at(1_010), at(1_020));
        assert_eq!(circuit.opens_at(), Some(at(3_020)));
        circuit.passed();
        assert_eq!((circuit.width(at(1_030)), circuit.opens_at()), (16, None));
    }
}
