//! How long a stream that the service does not find may still appear. Pure, with the time passed in.
//!
//! After CreateStream, some hosts of the service do not know the stream for seconds. A producer that gave up at the
//! first `ResourceNotFoundException` would lose its first records.

use tokio::time::{Duration, Instant};

/// How long a stream may stay missing without a response between. Some seconds are enough for a new stream, and a
/// mistyped name is reported soon.
pub(super) const APPEARS_WITHIN: Duration = Duration::from_secs(5);

/// After this long without a request the count begins anew. It is longer than any pause between two attempts.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MissingStream {
    /// When it was not found first and last, without an answer between.
    missing: Option<(Instant, Instant)>,
}

impl MissingStream {
    /// Notes that the stream answered.
    pub(super) fn answered(&mut self) {
        self.missing = None;
    }

    /// Notes that the stream was not found. Returns whether it has been missing for too long to wait any longer.
    pub(super) fn stays_missing(&mut self, now: Instant) -> bool {
        let before = self.missing.filter(|(_, last)| now < *last + FORGOTTEN_AFTER);
        let since = before.map_or(now, |(since, _)| since);
        self.missing = Some((since, now));
        now >= since + APPEARS_WITHIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // P4
    #[test]
    fn a_stream_is_missing_once_it_was_not_found_for_some_seconds_without_an_answer() {
        let (start, mut stream) = (Instant::now(), MissingStream::default());
        // Seconds, whether the stream answered (or was not found), and whether it is given up.
        let table = [(0, false, false), (4, false, false), (4, true, false), (6, false, false), (10, false, false)];
        for (seconds, answers, gives_up) in table {
            let now = start + Duration::from_secs(seconds);
            if answers {
                stream.answered();
            } else {
                assert_eq!(stream.stays_missing(now), gives_up, "{seconds} s");
            }
        }
        assert!(stream.stays_missing(start + Duration::from_secs(11)));
        // After a while without a request, the stream gets its time again.
        assert!(!stream.stays_missing(start + Duration::from_secs(41)));
    }
}
