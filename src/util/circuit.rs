//! A circuit breaker: after a failed call it stops further calls for a pause. Pure, with the time passed in.
//!
//! The caller decides which failures count and how long each pause is, because that depends on the calls.

use std::time::Duration;

use tokio::time::Instant;

/// See the module. It starts closed: calls may go out.
#[derive(Debug, Default)]
pub(crate) struct Circuit(Option<OpenCircuit>);

/// The last counted failure, with no success after it.
#[derive(Clone, Copy, Debug)]
struct OpenCircuit {
    since: Instant,
    retry_at: Instant,
    /// Failures in a row.
    failures: u32,
}

impl Circuit {
    /// Whether the last outcome was a success, or there is none yet.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_none()
    }

    /// When the next call may go out. None if nothing holds it back. The time may have passed.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.0.map(|open| open.retry_at)
    }

    /// Until when no call may go out. None if a call may go out now.
    pub(crate) fn open_until(&self, now: Instant) -> Option<Instant> {
        self.retry_at().filter(|retry_at| now < *retry_at)
    }

    /// Whether a failure was counted after this time.
    pub(crate) fn failed_since(&self, sent_at: Instant) -> bool {
        self.0.is_some_and(|open| sent_at < open.since)
    }

    /// Counts a failure. `pause` gets the number of failures in a row, this one included.
    pub(crate) fn fail(&mut self, now: Instant, pause: impl FnOnce(u32) -> Duration) {
        let failures = self.0.map_or(0, |open| open.failures).saturating_add(1);
        self.0 = Some(OpenCircuit { since: now, retry_at: now + pause(failures), failures });
    }

    /// Closes the circuit after a success.
    pub(crate) fn succeed(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_with_a_failure_and_closes_with_a_success() {
        let (mut circuit, start) = (Circuit::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(circuit.is_closed());
        for failures in 1..4 {
            circuit.fail(start, |count| Duration::from_secs(count.into()));
            assert_eq!(circuit.retry_at(), Some(at(failures)));
        }
        assert_eq!([2, 3].map(|seconds| circuit.open_until(at(seconds))), [Some(at(3)), None]);
        circuit.succeed();
        assert_eq!((circuit.is_closed(), circuit.retry_at()), (true, None));
    }

    #[test]
    fn a_call_sent_before_the_last_failure_is_known() {
        let (mut circuit, start) = (Circuit::default(), Instant::now());
        let later = start + Duration::from_millis(1);
        assert!(!circuit.failed_since(start));
        circuit.fail(later, |_| Duration::ZERO);
        assert_eq!((circuit.failed_since(start), circuit.failed_since(later)), (true, false));
    }
}
