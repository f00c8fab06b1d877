//! Whether a reader whose calls fail continues or gives up (R10): pure, with the time passed in.
//!
//! **A reader gives up only for the sake of another instance.** Giving up costs: the deliveries in flight are read
//! again. It helps if another instance can read what this one cannot. So a reader that sees no other instance waits
//! the outage out under its lease.
//!
//! **An instance without a lease cannot be seen.** Instances see each other in the lease rows. So after some minutes a
//! reader gives up even if it sees nobody, once it costs nothing: no delivery is open.

use tokio::time::{Duration, Instant};

use crate::util::backoff::doubled;

/// The number of failures in a row, and the time of nothing but failures, after which a reader gives up.
const MOST_FAILURES: u32 = 11;
const LONGEST: Duration = Duration::from_mins(1);

/// After this time a reader that sees no other instance gives up, too, if it holds no open delivery.
const LONGEST_ALONE: Duration = Duration::from_mins(5);

/// The pause after a failure. Where giving up helps nobody, it doubles from there on.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// Failed calls in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct FailedCalls {
    count: u32,
    /// When the first of them was sent.
    since: Option<Instant>,
}

/// What a reader does after a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// Repeat the call after this pause.
    Retry(Duration),
    GiveUp,
}

/// What decides whether giving up helps or costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Surroundings {
    /// Another instance holds a live lease of this consumer and stream.
    pub(crate) others_in_sight: bool,
    /// Deliveries of the shard are not settled.
    pub(crate) open_deliveries: bool,
}

impl FailedCalls {
    /// How many calls failed in a row.
    pub(crate) fn count(self) -> u32 {
        self.count
    }

    /// Counts a call that was sent at `sent_at` and failed now.
    pub(crate) fn fail(&mut self, sent_at: Instant, now: Instant, surroundings: Surroundings) -> AfterFailure {
        self.count = self.count.saturating_add(1);
        let lasted = now - *self.since.get_or_insert(sent_at);
        if self.count < MOST_FAILURES && lasted < LONGEST {
            return AfterFailure::Retry(PAUSE);
        }
        let Surroundings { others_in_sight, open_deliveries } = surroundings;
        if others_in_sight || lasted >= LONGEST_ALONE && !open_deliveries {
            return AfterFailure::GiveUp;
        }
        AfterFailure::Retry(doubled(PAUSE, LONGEST_PAUSE, self.count.saturating_sub(MOST_FAILURES - 1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEEN: Surroundings = Surroundings { others_in_sight: true, open_deliveries: true };
    const ALONE: Surroundings = Surroundings { others_in_sight: false, open_deliveries: false };
    const ALONE_AND_BUSY: Surroundings = Surroundings { others_in_sight: false, open_deliveries: true };

    /// The failures of calls that each take this many seconds, until the reader gives up or for an hour: the pauses in
    /// seconds, and the second in which it gave up.
    fn fails(latency: u64, surroundings: Surroundings) -> (Vec<u64>, Option<u64>) {
        let (mut calls, start) = (FailedCalls::default(), Instant::now());
        let (mut pauses, mut second) = (Vec::new(), 0);
        while second < 3_600 {
            let at = |second| start + Duration::from_secs(second);
            let sent = second;
            second += latency;
            match calls.fail(at(sent), at(second), surroundings) {
                AfterFailure::GiveUp => return (pauses, Some(second)),
                AfterFailure::Retry(pause) => {
                    pauses.push(pause.as_secs());
                    second += pause.as_secs();
                }
            }
        }
        (pauses, None)
    }

    // R10
    #[test]
    fn where_another_instance_is_in_sight_a_reader_gives_up_after_eleven_failures_or_a_minute() {
        assert_eq!(fails(0, SEEN), (vec![1; 10], Some(10)));
        assert_eq!(fails(5, SEEN), (vec![1; 10], Some(11 * 5 + 10)));
        assert_eq!(fails(6, SEEN), (vec![1; 8], Some(9 * 6 + 8)));
        assert_eq!(fails(30, SEEN), (vec![1], Some(61)));
        assert_eq!(fails(90, SEEN), (vec![], Some(90)));
    }

    // R10
    #[test]
    fn a_reader_alone_goes_on_with_growing_pauses() {
        let (pauses, gave_up) = fails(0, ALONE_AND_BUSY);
        assert_eq!(pauses[..10], [1; 10]);
        assert_eq!(pauses[10..16], [1, 2, 4, 8, 10, 10]);
        assert_eq!(gave_up, None);
        assert_eq!(fails(30, ALONE_AND_BUSY).0[..14], [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 4, 8]);
    }

    // R10
    #[test]
    fn a_reader_alone_gives_up_after_five_minutes_if_no_delivery_is_open() {
        assert_eq!(fails(0, ALONE).1, Some(305));
        assert_eq!(fails(30, ALONE).1, Some(10 * 31 - 1));
    }

    // R10
    #[test]
    fn a_reader_that_another_instance_joins_gives_up_at_its_next_failure() {
        let (mut calls, start) = (FailedCalls::default(), Instant::now());
        for second in 0..20 {
            let at = start + Duration::from_secs(second);
            assert_ne!(calls.fail(at, at, ALONE), AfterFailure::GiveUp);
        }
        let at = start + Duration::from_secs(20);
        assert_eq!(calls.fail(at, at, SEEN), AfterFailure::GiveUp);
        assert_eq!(calls.count(), 21);
    }
}
