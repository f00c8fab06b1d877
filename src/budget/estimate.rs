//! How many bytes the next read of a shard may bring (A5): pure, with the time passed in.
//!
//! It is asked when the read is admitted, not when its reader begins to wait: meanwhile records arrive.

use std::cmp;

use tokio::time::{Duration, Instant};

/// The largest answer that there is.
const LARGEST: usize = 10 << 20;

/// The least that is reserved for a read of which nothing is known.
const LEAST_GUESS: usize = 1 << 20;

/// How many reads of which nothing is known may be under way before any of them is answered: in as many lie the largest
/// answers within the bound that there is by default.
const FIRST_READS: usize = 6;

/// What a shard takes in, in a second.
const BYTES_PER_SECOND: u128 = 1 << 20;

/// The parts in which a surprise is told.
const ALL: usize = 64;

/// For how long a surprise, or that there was none, says anything about the next reads.
const FRESH: Duration = Duration::from_secs(5);

/// The forecast of the next read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forecast {
    /// It is so large.
    Exactly(usize),
    /// Nothing yet.
    Unknown,
    /// At this moment, after an answer of so many bytes, the shard held no more.
    AtTip { since: Instant, answer: usize },
    /// The shard held more, after answers of up to so many bytes.
    Behind { page: usize },
}

impl Forecast {
    /// After an answer that came at `now`.
    pub(crate) fn after(self, bytes: usize, is_at_tip: bool, now: Instant) -> Self {
        let before = if let Self::Behind { page } = self { page } else { 0 };
        match is_at_tip {
            true => Self::AtTip { since: now, answer: bytes },
            // The service may give a short answer, or an empty one, where there is much to come.
            false if bytes > 0 || before > 1 => Self::Behind { page: bytes.max(before / 2) },
            false => Self::Unknown,
        }
    }

    /// The bytes, by what other reads of the stream have shown.
    pub(super) fn bytes(self, experience: Experience, now: Instant) -> usize {
        let bytes = match self {
            Self::Exactly(bytes) => return bytes,
            Self::Unknown => experience.first,
            Self::AtTip { since, answer } => answer.max(taken_in(since, now) * experience.surprise(now) / ALL),
            Self::Behind { page } => page,
        };
        bytes.min(LARGEST)
    }
}

/// The bytes that a shard can have accepted since then, at most one response.
fn taken_in(since: Instant, now: Instant) -> usize {
    let micros = now.saturating_duration_since(since).as_micros();
    usize::try_from(micros.saturating_mul(BYTES_PER_SECOND) / 1_000_000).unwrap_or(LARGEST).min(LARGEST)
}

/// What the reads of a stream have shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Experience {
    /// How much a read may bring of which nothing is known. It starts high, so that the first reads of a thousand
    /// shards are not all under way before one of them shows how large they are, and comes down within the first
    /// answers if these are small.
    first: usize,
    /// How much came of a shard at its tip beyond its answer before, in parts of what it may have taken in, and when
    /// that was learned.
    surprise: Option<(usize, Instant)>,
}

impl Experience {
    /// None yet, for a budget of this limit.
    pub(super) fn new(limit: usize) -> Self {
        Self { first: (limit / FIRST_READS).clamp(LEAST_GUESS, LARGEST), surprise: None }
    }

    /// Takes in what a read brought of which this was known. More than before counts at once, less bit by bit.
    pub(super) fn learn(&mut self, forecast: Forecast, bytes: usize, now: Instant) {
        match forecast {
            Forecast::Unknown => {
                self.first = cmp::max(bytes, self.first - self.first / 16).clamp(LEAST_GUESS, LARGEST);
            }
            Forecast::AtTip { since, answer } => {
                let most = taken_in(since, now).max(1);
                let beyond = bytes.saturating_sub(answer).min(most) * ALL / most;
                let before = self.surprise(now);
                self.surprise = Some((cmp::max(beyond, before - before.div_ceil(16)).max(1), now));
            }
            Forecast::Exactly(_) | Forecast::Behind { .. } => {}
        }
    }

    /// How much may come as a surprise: everything, where nothing was learned for some time. There was an outage then,
    /// or the user stood still.
    fn surprise(self, now: Instant) -> usize {
        self.surprise.filter(|(_, learned_at)| now < *learned_at + FRESH).map_or(ALL, |(parts, _)| parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const DEFAULT: usize = 64 * MIB;

    // A5
    #[test]
    fn what_is_known_says_how_much_may_come() {
        let now = Instant::now();
        let ago = |millis| now - Duration::from_millis(millis);
        let at_tip = |millis, answer| Forecast::AtTip { since: ago(millis), answer };
        let table = [
            ("a record of a sink", Forecast::Exactly(11 * MIB), 11 * MIB),
            ("nothing is known", Forecast::Unknown, 10 * MIB),
            ("it was at its tip just now", at_tip(0, 0), 0),
            ("it was at its tip a second ago", at_tip(1_000, 0), MIB),
            ("its tip brought more than what came since", at_tip(1_000, 3 * MIB), 3 * MIB),
            ("it was at its tip long ago", at_tip(10_000_000, 0), 10 * MIB),
            ("it has more of this kind", Forecast::Behind { page: 3 }, 3),
            ("a page that is larger than there are", Forecast::Behind { page: 11 * MIB }, 10 * MIB),
        ];
        for (name, forecast, bytes) in table {
            assert_eq!(forecast.bytes(Experience::new(DEFAULT), now), bytes, "{name}");
        }
    }

    // A5
    #[test]
    fn an_answer_says_what_comes_next() {
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
    fn a_first_read_is_taken_for_as_large_as_there_are_within_the_limit() {
        let table =
            [(0, MIB), (8 * MIB, 4 * MIB / 3), (60 * MIB, 10 * MIB), (DEFAULT, 10 * MIB), (usize::MAX, 10 * MIB)];
        for (limit, first) in table {
            assert_eq!(Forecast::Unknown.bytes(Experience::new(limit), Instant::now()), first, "{limit}");
        }
    }

    // A5
    #[test]
    fn a_first_read_is_taken_for_more_at_once_and_for_less_after_some_answers() {
        let (mut experience, now) = (Experience::new(DEFAULT), Instant::now());
        let mut answers = 0;
        while Forecast::Unknown.bytes(experience, now) != MIB {
            experience.learn(Forecast::Unknown, 100, now);
            answers += 1;
        }
        assert_eq!(answers, 36);
        for (bytes, first) in [(7 * MIB, 7 * MIB), (usize::MAX, 10 * MIB)] {
            experience.learn(Forecast::Unknown, bytes, now);
            assert_eq!(Forecast::Unknown.bytes(experience, now), first);
        }
    }

    // A5, R7
    #[test]
    fn a_shard_at_its_tip_may_surprise_as_much_as_others_did_lately() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let tip = |seconds, answer| Forecast::AtTip { since: at(seconds), answer };
        let mut experience = Experience::new(DEFAULT);
        let mut answers = 0;
        while tip(0, 0).bytes(experience, at(4)) != 4 * MIB / ALL {
            experience.learn(tip(0, 0), 100, at(4));
            answers += 1;
        }
        assert_eq!(answers, 32);
        // One that is as busy as it was is no surprise.
        experience.learn(tip(4, MIB), MIB, at(5));
        assert_eq!(tip(1, 0).bytes(experience, at(5)), 4 * MIB / ALL);
        assert_eq!(tip(1, MIB).bytes(experience, at(5)), MIB);
        // Half of what it may have taken in is.
        experience.learn(tip(1, 0), 2 * MIB, at(5));
        assert_eq!(tip(1, 0).bytes(experience, at(5)), 2 * MIB);
        experience.learn(tip(5, 0), usize::MAX, at(5));
        assert_eq!(tip(1, 0).bytes(experience, at(5)), 4 * MIB);
    }

    // A5
    #[test]
    fn where_nothing_was_learned_for_a_while_anything_may_come() {
        let (mut experience, start) = (Experience::new(DEFAULT), Instant::now());
        let tip = Forecast::AtTip { since: start, answer: 0 };
        let at = |millis| start + Duration::from_millis(millis);
        (0..40).for_each(|_| experience.learn(tip, 0, at(1_000)));
        assert_eq!(tip.bytes(experience, at(4_000)), 4 * MIB / ALL);
        assert_eq!(tip.bytes(experience, at(6_000)), 6 * MIB);
    }
}
