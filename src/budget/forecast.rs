//! How many bytes the next read of a shard may bring (A5): pure, with the time passed in.
//!
//! It is asked when the read is admitted, not when its reader begins to wait: meanwhile records arrive.

use std::cmp;

use tokio::time::Instant;

/// The largest answer that there is.
const LARGEST: usize = 10 << 20;

/// The least that is reserved for a read of which nothing is known.
const LEAST_GUESS: usize = 1 << 20;

/// How many reads of which nothing is known may be under way before any of them is answered: in as many lie the largest
/// answers within the bound that there is by default.
const FIRST_READS: usize = 6;

/// What a shard takes in, in a second.
const BYTES_PER_SECOND: u128 = 1 << 20;

/// What is known of the next read.
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

    /// The bytes, where a read of which nothing is known may bring as many as the guess says.
    pub(super) fn bytes(self, guess: Guess, now: Instant) -> usize {
        let bytes = match self {
            Self::Exactly(bytes) => return bytes,
            Self::Unknown => guess.0,
            Self::AtTip { since, answer } => answer.max(taken_in(now.saturating_duration_since(since).as_micros())),
            Self::Behind { page } => page,
        };
        bytes.min(LARGEST)
    }
}

/// What a shard takes in within so many microseconds.
fn taken_in(micros: u128) -> usize {
    usize::try_from(micros.saturating_mul(BYTES_PER_SECOND) / 1_000_000).unwrap_or(usize::MAX)
}

/// How much a read may bring of which nothing is known, by what such reads brought. It starts high, so that the first reads
/// of a thousand shards are not all under way before one of them shows how large they are, and comes down within the first
/// answers if these are small.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Guess(usize);

impl Guess {
    /// For a budget of this limit.
    pub(super) fn new(limit: usize) -> Self {
        Self((limit / FIRST_READS).clamp(LEAST_GUESS, LARGEST))
    }

    /// Takes in what such a read brought.
    pub(super) fn learn(&mut self, bytes: usize) {
        self.0 = cmp::max(bytes, self.0 - self.0 / 16).clamp(LEAST_GUESS, LARGEST);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Duration;

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
            assert_eq!(forecast.bytes(Guess::new(DEFAULT), now), bytes, "{name}");
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
    fn a_guess_begins_as_large_as_there_are_and_within_the_limit() {
        let table =
            [(0, MIB), (8 * MIB, 4 * MIB / 3), (60 * MIB, 10 * MIB), (DEFAULT, 10 * MIB), (usize::MAX, 10 * MIB)];
        for (limit, guess) in table {
            assert_eq!(Guess::new(limit), Guess(guess), "{limit}");
        }
    }

    // A5
    #[test]
    fn a_guess_grows_at_once_and_shrinks_within_some_answers() {
        let mut guess = Guess::new(DEFAULT);
        let mut answers = 0;
        while guess != Guess(MIB) {
            guess.learn(100);
            answers += 1;
        }
        assert_eq!(answers, 36);
        guess.learn(7 * MIB);
        assert_eq!(guess, Guess(7 * MIB));
        guess.learn(usize::MAX);
        assert_eq!(guess, Guess(10 * MIB));
    }
}
