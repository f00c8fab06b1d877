//! When dead letters may be written, after failed writes: pure, with the time passed in.
//!
//! **A dead letter that fails says more about its stream than about itself.** All of them wait; after the pause a
//! single one goes first, and one that failed goes to the end of the queue, so that none blocks the others. A missing
//! stream or a missing permission is retried once a minute. A record that the service rejects would be rejected every
//! time, so the stream yields an error that carries it.

use std::time::Duration;

use tokio::time::Instant;

use crate::{
    error::service::FailureKind,
    util::{backoff::doubled, circuit::Circuit},
};

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Writes under way at the same time: a shard takes a thousand records a second, and a write about ten milliseconds.
const WRITES_AT_ONCE: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct WriteCircuit(Circuit);

impl WriteCircuit {
    /// How many writes may be under way now.
    pub(super) fn allowed(&self, now: Instant) -> usize {
        if self.0.is_closed() { WRITES_AT_ONCE } else { usize::from(self.0.open_until(now).is_none()) }
    }

    /// When the next attempt may be sent. None if no failure holds it back.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.0.retry_at()
    }

    /// A write succeeded.
    pub(super) fn succeeded(&mut self) {
        self.0.succeed();
    }

    /// A write that was sent at `sent_at` failed. Several that were under way together count once.
    pub(super) fn failed(&mut self, kind: FailureKind, sent_at: Instant, now: Instant) {
        if self.0.failed_since(sent_at) {
            return;
        }
        self.0.fail(now, |failures| match kind {
            // An operator has to create the stream or to grant the permission.
            FailureKind::NotFound | FailureKind::Denied => LONGEST_PAUSE,
            _ => doubled(FIRST_PAUSE, LONGEST_PAUSE, failures),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(kinds: &[FailureKind]) -> Vec<u64> {
        let (mut circuit, mut now) = (WriteCircuit::default(), Instant::now());
        let fail = |kind: &FailureKind| {
            circuit.failed(*kind, now, now);
            let pause = circuit.retry_at().unwrap() - now;
            now += pause;
            pause.as_secs()
        };
        kinds.iter().map(fail).collect()
    }

    // A7
    #[test]
    fn the_pause_after_failed_writes_doubles_from_a_second_to_a_minute() {
        assert_eq!(pauses(&[FailureKind::Throttled; 8]), [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pauses(&[FailureKind::Unreachable, FailureKind::Other, FailureKind::NotReady]), [1, 2, 4]);
    }

    // A7
    #[test]
    fn a_missing_stream_or_permission_is_retried_once_a_minute() {
        assert_eq!(pauses(&[FailureKind::NotFound, FailureKind::Denied, FailureKind::Other]), [60, 60, 4]);
    }

    // A7
    #[test]
    fn concurrent_failures_count_once_and_a_single_write_goes_first() {
        let (mut circuit, start) = (WriteCircuit::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!((circuit.allowed(start), circuit.retry_at()), (16, None));
        for failed_at in 10..26 {
            circuit.failed(FailureKind::Throttled, start, at(failed_at));
        }
        assert_eq!(circuit.retry_at(), Some(at(1_010)));
        assert_eq!([1_009, 1_010, 5_000].map(|millis| circuit.allowed(at(millis))), [0, 1, 1]);
        circuit.failed(FailureKind::Throttled, at(1_010), at(1_020));
        assert_eq!(circuit.retry_at(), Some(at(3_020)));
        circuit.succeeded();
        assert_eq!((circuit.allowed(at(1_030)), circuit.retry_at()), (16, None));
    }
}
