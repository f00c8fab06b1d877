//! How many bytes the next read of a shard may bring (A5): pure, with the time passed in.
//!
//! **A read reserves the bytes that it may bring when it is admitted, not when its reader starts to wait.** The size of
//! the last response is no measure: a shard at its tip brings nothing with every other response, and a whole page after
//! an outage or after its user stood still. A shard accepts 1 MiB and 1,000 records a second, which bounds what it can have received
//! since it was at its tip.
//!
//! **Why not all of that.** If every read reserved all of it, a thousand idle shards would wait for each other, and
//! longer the longer they wait. So a read reserves the fraction by which such reads have lately been a surprise, and
//! all of it if no read was answered for five seconds. For a shard that lags, its last pages tell. For a shard that has
//! not been read yet, only the sizes of other responses tell, so few such reads are under way at first, and more with
//! each response that is small.
//!
//! **A read that hangs is late after five seconds.** If all are, one more may start; otherwise six of them would block
//! all others.

use std::cmp;

use tokio::time::{Duration, Instant};

use crate::budget::RECORD_OVERHEAD;

/// The largest response that GetRecords returns to a read of the usual 1,000 records, in held bytes.
const LARGEST: usize = (10 << 20) + 1_000 * RECORD_OVERHEAD;

/// The least reservation for a first read of a shard, in bytes.
const LEAST_GUESS: usize = 1 << 20;

/// How many first reads may be under way before any of them is answered, if the limit has no room for so many of the
/// largest responses.
const FIRST_READS: usize = 3;

/// The held bytes of what a shard accepts in a second: 1 MiB, as 1,000 records.
const BYTES_PER_SECOND: usize = (1 << 20) + 1_000 * RECORD_OVERHEAD;

/// A surprise is a fraction with this denominator.
const ALL: usize = 64;

/// How long a measured surprise, also one of zero, applies to later reads.
const SURPRISE_LIFETIME: Duration = Duration::from_secs(5);

/// How many bytes the next read may bring, from what is known about its shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forecast {
    /// Exactly this number of bytes.
    Exactly(usize),
    /// Nothing is known yet.
    Unknown,
    /// At the time `since`, the shard was read to its tip, with a response of `answer` bytes.
    AtTip { since: Instant, answer: usize },
    /// The shard lags. Its last responses had up to `page` bytes.
    Behind { page: usize },
}

impl Forecast {
    /// The forecast after a response that arrived at `now`.
    pub(crate) fn after(self, bytes: usize, is_at_tip: bool, now: Instant) -> Self {
        let before = if let Self::Behind { page } = self { page } else { 0 };
        match is_at_tip {
            true => Self::AtTip { since: now, answer: bytes },
            // The service may return a short or an empty response although many records remain.
            false if bytes > 0 || before > 1 => Self::Behind { page: bytes.max(before / 2) },
            false => Self::Unknown,
        }
    }

    /// The bytes to reserve, also from the responses to other reads of the stream.
    pub(super) fn bytes(self, experience: Experience, now: Instant) -> usize {
        let bytes = match self {
            Self::Exactly(bytes) => return bytes,
            Self::Unknown => experience.first,
            Self::AtTip { since, answer } => answer.max(received(since, now) * experience.surprise(now) / ALL),
            // What came before is no guess.
            Self::Behind { page } => return page,
        };
        bytes.min(LARGEST)
    }
}

/// The bytes that a shard can have received since then, at most as many as one response holds.
fn received(since: Instant, now: Instant) -> usize {
    let micros = now.saturating_duration_since(since).as_micros();
    let bytes = micros.saturating_mul(BYTES_PER_SECOND as u128) / 1_000_000;
    usize::try_from(bytes).unwrap_or(LARGEST).min(LARGEST)
}

/// What the responses of a stream have shown so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Experience {
    /// How many bytes a first read may bring. It starts high, so that the first reads of a thousand shards are not all
    /// under way before one of them shows their size. It falls within the first responses if these are small.
    first: usize,
    /// By how much the response of a shard at its tip exceeded its previous response, as a fraction of the bytes that
    /// the shard can have received, and when this was measured.
    surprise: Option<(usize, Instant)>,
}

impl Experience {
    /// The state before any response, for a budget with this limit.
    pub(super) fn new(limit: usize) -> Self {
        Self { first: (limit / FIRST_READS).clamp(LEAST_GUESS, LARGEST), surprise: None }
    }

    /// Records the size of the response to a read with this forecast. A larger size counts at once, a smaller one bit
    /// by bit.
    pub(super) fn learn(&mut self, forecast: Forecast, bytes: usize, now: Instant) {
        match forecast {
            Forecast::Unknown => {
                self.first = cmp::max(bytes, self.first - self.first / 16).clamp(LEAST_GUESS, LARGEST);
            }
            Forecast::AtTip { since, answer } => {
                let most = received(since, now).max(1);
                let beyond = bytes.saturating_sub(answer).min(most) * ALL / most;
                let before = self.surprise(now);
                self.surprise = Some((cmp::max(beyond, before - before.div_ceil(16)).max(1), now));
            }
            Forecast::Exactly(_) | Forecast::Behind { .. } => {}
        }
    }

    /// The fraction to reserve. All of it, if no response was measured lately: there was an outage then, or the user
    /// stood still.
    fn surprise(self, now: Instant) -> usize {
        self.surprise.filter(|(_, learned_at)| now < *learned_at + SURPRISE_LIFETIME).map_or(ALL, |(parts, _)| parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const SECOND: usize = BYTES_PER_SECOND;

    // A5
    #[test]
    fn the_forecast_says_how_many_bytes_may_arrive() {
        let now = Instant::now();
        let ago = |millis| now - Duration::from_millis(millis);
        let at_tip = |millis, answer| Forecast::AtTip { since: ago(millis), answer };
        let table = [
            ("a record of a sink", Forecast::Exactly(11 * MIB), 11 * MIB),
            ("nothing is known", Forecast::Unknown, LARGEST),
            ("it was at its tip just now", at_tip(0, 0), 0),
            ("it was at its tip a second ago", at_tip(1_000, 0), SECOND),
            ("its tip brought more than what came since", at_tip(1_000, 3 * MIB), 3 * MIB),
            ("it was at its tip long ago", at_tip(10_000_000, 0), LARGEST),
            ("it has more of this kind", Forecast::Behind { page: 3 }, 3),
            ("pages of many records", Forecast::Behind { page: LARGEST + 1 }, LARGEST + 1),
        ];
        for (name, forecast, bytes) in table {
            assert_eq!(forecast.bytes(Experience::new(64 * MIB), now), bytes, "{name}");
        }
    }

    // A5
    #[test]
    fn a_response_decides_the_next_forecast() {
        let now = Instant::now();
        let behind = |page| Forecast::Behind { page };
        let table = [
            ("a first page, and more", Forecast::Unknown, 5, false, behind(5)),
            ("an empty one, and more", Forecast::Unknown, 0, false, Forecast::Unknown),
            ("a short one among larger ones", behind(80), 5, false, behind(40)),
            ("a larger one", behind(80), 90, false, behind(90)),
            ("empty ones for a long time", behind(1), 0, false, Forecast::Unknown),
            ("the tip", behind(80), 5, true, Forecast::AtTip { since: now, answer: 5 }),
            ("more again", Forecast::AtTip { since: now, answer: 80 }, 5, false, behind(5)),
        ];
        for (name, before, bytes, is_at_tip, after) in table {
            assert_eq!(before.after(bytes, is_at_tip, now), after, "{name}");
        }
    }

    // A5
    #[test]
    fn a_first_read_reserves_more_at_once_and_less_after_some_responses() {
        let (mut experience, now) = (Experience::new(64 * MIB), Instant::now());
        let mut answers = 0;
        while Forecast::Unknown.bytes(experience, now) != MIB {
            experience.learn(Forecast::Unknown, 100, now);
            answers += 1;
        }
        assert_eq!(answers, 36);
        for (bytes, first) in [(7 * MIB, 7 * MIB), (usize::MAX, LARGEST)] {
            experience.learn(Forecast::Unknown, bytes, now);
            assert_eq!(Forecast::Unknown.bytes(experience, now), first);
        }
    }

    // A5, R7
    #[test]
    fn a_shard_at_its_tip_reserves_the_surprise_that_others_showed_lately() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let tip = |seconds, answer| Forecast::AtTip { since: at(seconds), answer };
        let mut experience = Experience::new(64 * MIB);
        let mut answers = 0;
        while tip(0, 0).bytes(experience, at(4)) != 4 * SECOND / ALL {
            experience.learn(tip(0, 0), 100, at(4));
            answers += 1;
        }
        assert_eq!(answers, 32);
        // A shard that is as busy as before is no surprise.
        experience.learn(tip(4, SECOND), SECOND, at(5));
        assert_eq!(tip(1, 0).bytes(experience, at(5)), 4 * SECOND / ALL);
        assert_eq!(tip(1, SECOND).bytes(experience, at(5)), SECOND);
        // Half of the bytes that it can have received is one.
        experience.learn(tip(1, 0), 2 * SECOND, at(5));
        assert_eq!(tip(1, 0).bytes(experience, at(5)), 2 * SECOND);
        experience.learn(tip(5, 0), usize::MAX, at(5));
        assert_eq!(tip(1, 0).bytes(experience, at(5)), 4 * SECOND);
    }

    // A5
    #[test]
    fn without_a_recent_response_a_read_reserves_all_that_may_have_arrived() {
        let (mut experience, start) = (Experience::new(64 * MIB), Instant::now());
        let tip = Forecast::AtTip { since: start, answer: 0 };
        let at = |millis| start + Duration::from_millis(millis);
        (0..40).for_each(|_| experience.learn(tip, 0, at(1_000)));
        assert_eq!(tip.bytes(experience, at(4_000)), 4 * SECOND / ALL);
        assert_eq!(tip.bytes(experience, at(6_000)), 6 * SECOND);
    }
}
