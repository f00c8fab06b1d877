//! When to list the shards next. Pure, with the time passed in.

use tokio::time::{Duration, Instant};

/// How soon to repeat a listing that failed before any shard was known, or that does not show the children of an ended
/// shard yet.
const EAGER_INTERVAL: Duration = Duration::from_secs(1);

/// The state of the listings.
#[derive(Debug)]
pub(super) struct ListingSchedule {
    /// Between two routine listings.
    interval: Duration,
    state: State,
    /// Until then, a listing that lacks the children of an ended shard is repeated after [`EAGER_INTERVAL`].
    eager_until: Instant,
    /// When the last complete listing was done.
    completed_at: Instant,
    /// A listing ended, complete or not, since the last pass.
    ended_since_pass: bool,
    /// The last pass left out shards that no recent listing shows.
    is_needed: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting {
        due: Instant,
    },
    InFlight {
        /// Another listing was requested meanwhile: this one was sent before the reason for it.
        again: bool,
    },
}

impl ListingSchedule {
    /// The first listing is due at once.
    pub(super) fn new(interval: Duration, now: Instant) -> Self {
        Self {
            interval,
            state: State::Waiting { due: now },
            eager_until: now,
            completed_at: now,
            ended_since_pass: false,
            is_needed: false,
        }
    }

    /// When the next listing is due. None while one is in flight.
    pub(super) fn due_at(&self) -> Option<Instant> {
        match self.state {
            State::Waiting { due } => Some(due),
            State::InFlight { .. } => None,
        }
    }

    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self.state, State::InFlight { .. })
    }

    /// A listing begins.
    pub(super) fn begin(&mut self) {
        self.state = State::InFlight { again: false };
    }

    /// A shard ended or was denied: lists at once, or again at once if a listing is in flight. Listings stay eager for
    /// one interval.
    pub(super) fn request(&mut self, now: Instant) {
        self.eager_until = now + self.interval;
        self.state = match self.state {
            State::Waiting { .. } => State::Waiting { due: now },
            State::InFlight { .. } => State::InFlight { again: true },
        };
    }

    /// Enters whether a pass left out shards that no recent listing shows. Then a listing is due at once, unless one is
    /// in flight or the pass followed one.
    pub(super) fn enter_stale_sightings(&mut self, is_needed: bool, after_listing: bool, now: Instant) {
        self.is_needed = is_needed;
        if is_needed && !after_listing && !self.is_in_flight() {
            self.state = State::Waiting { due: now };
        }
    }

    /// A complete listing was done.
    pub(super) fn completed(&mut self, now: Instant) {
        self.completed_at = now;
    }

    /// A listing ended, complete or not, and the next one is scheduled. `eagerly` says that this one showed no shard,
    /// or lacks the children of an ended shard.
    pub(super) fn end(&mut self, eagerly: bool, now: Instant) {
        let due = match self.state {
            State::InFlight { again: true } => now,
            _ if eagerly => now + self.interval.min(EAGER_INTERVAL),
            _ => now + self.interval,
        };
        self.state = State::Waiting { due };
        self.ended_since_pass = true;
    }

    /// Whether the children of an ended shard may be missing because it ended a short time ago.
    pub(super) fn is_eager(&self, now: Instant) -> bool {
        now < self.eager_until
    }

    /// Whether the next pass should follow the listing at once.
    pub(super) fn is_awaited(&self, now: Instant) -> bool {
        self.is_eager(now) || self.is_needed
    }

    /// When the last complete listing was done. Before any, it is the start.
    pub(super) fn completed_at(&self) -> Instant {
        self.completed_at
    }

    /// Whether a listing ended since the last call.
    pub(super) fn take_ended(&mut self) -> bool {
        std::mem::take(&mut self.ended_since_pass)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    /// One step of a schedule.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Begin,
        Request,
        /// A pass left out shards, and whether it followed a listing.
        Stale(bool),
        /// A listing ended, and whether the next one should follow eagerly.
        End(bool),
    }

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    /// A name, steps with their times in seconds, and when the next listing is due.
    type Case = (&'static str, &'static [(u64, Step)], Option<u64>);

    // H4, H6
    #[test]
    fn the_next_listing_is_due_as_the_last_one_and_the_requests_say() {
        use Step::{Begin, End, Request, Stale};
        // What it shows, the steps with their seconds, and the second at which the next listing is due.
        let table: [Case; 13] = [
            ("the first is due at once", &[], Some(0)),
            ("none is due while one is in flight", &[(0, Begin)], None),
            ("a routine listing follows after an interval", &[(0, Begin), (2, End(false))], Some(32)),
            ("an eager one follows after a second", &[(0, Begin), (2, End(true))], Some(3)),
            ("a request is due at once", &[(0, Begin), (2, End(false)), (9, Request)], Some(9)),
            ("a request does not start a second listing", &[(0, Begin), (1, Request)], None),
            ("a request during a listing repeats it", &[(0, Begin), (1, Request), (2, End(false))], Some(2)),
            ("also if it would be eager", &[(0, Begin), (1, Request), (2, End(true))], Some(2)),
            ("once", &[(0, Begin), (1, Request), (2, End(false)), (2, Begin), (3, End(false))], Some(33)),
            ("stale sightings are due at once", &[(0, Begin), (2, End(false)), (9, Stale(false))], Some(9)),
            ("but not right after a listing", &[(0, Begin), (2, End(false)), (2, Stale(true))], Some(32)),
            ("and not while one is in flight", &[(0, Begin), (1, Stale(false))], None),
            ("which is not repeated", &[(0, Begin), (1, Stale(false)), (2, End(false))], Some(32)),
        ];
        for (what, steps, due) in table {
            let start = Instant::now();
            let mut schedule = ListingSchedule::new(INTERVAL, start);
            for (seconds, step) in steps {
                let now = after(start, *seconds);
                match step {
                    Begin => schedule.begin(),
                    Request => schedule.request(now),
                    Stale(after_listing) => schedule.enter_stale_sightings(true, *after_listing, now),
                    End(eagerly) => schedule.end(*eagerly, now),
                }
            }
            assert_eq!(schedule.due_at(), due.map(|seconds| after(start, seconds)), "{what}");
            assert_eq!(schedule.is_in_flight(), due.is_none(), "{what}");
        }
    }

    #[test]
    fn an_interval_below_a_second_is_also_the_eager_one() {
        let (start, interval) = (Instant::now(), Duration::from_millis(200));
        let mut schedule = ListingSchedule::new(interval, start);
        schedule.begin();
        schedule.end(true, start);
        assert_eq!(schedule.due_at(), Some(start + interval));
    }

    #[test]
    fn a_listing_is_awaited_for_an_interval_after_a_request_and_while_sightings_are_stale() {
        let start = Instant::now();
        let mut schedule = ListingSchedule::new(INTERVAL, start);
        assert!(!schedule.is_awaited(start));
        schedule.request(start);
        assert!(schedule.is_eager(after(start, 29)) && schedule.is_awaited(after(start, 29)));
        assert!(!schedule.is_eager(after(start, 30)) && !schedule.is_awaited(after(start, 30)));
        schedule.enter_stale_sightings(true, true, after(start, 40));
        assert!(schedule.is_awaited(after(start, 40)) && !schedule.is_eager(after(start, 40)));
        schedule.enter_stale_sightings(false, true, after(start, 41));
        assert!(!schedule.is_awaited(after(start, 41)));
    }

    #[test]
    fn a_listing_that_failed_counts_as_ended_but_not_as_complete() {
        let start = Instant::now();
        let mut schedule = ListingSchedule::new(INTERVAL, start);
        assert!(!schedule.take_ended());
        schedule.begin();
        schedule.end(true, after(start, 5));
        assert_eq!((schedule.take_ended(), schedule.take_ended(), schedule.completed_at()), (true, false, start));
        schedule.begin();
        schedule.completed(after(start, 9));
        schedule.end(false, after(start, 9));
        assert_eq!((schedule.take_ended(), schedule.completed_at()), (true, after(start, 9)));
    }
}
