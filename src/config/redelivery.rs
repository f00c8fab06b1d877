//! Decides what happens to a record that was given back: redeliver it, write it as a dead letter, or yield an error.
//! Pure values.
//!
//! **A record counts as attempted only once the handler has received it.** A record that stood in a key queue or in an
//! unfinished batch when that was dropped keeps the attempts it had before, so it never becomes a dead letter that no
//! handler saw. The same holds for records given back after the subscription began to close.
//!
//! **A rejected record has one rule with a record whose attempts are spent,** also if its attempts have no limit.

use std::{
    fmt::{self, Write},
    sync::Arc,
    time::Duration,
};

use crate::util::backoff::doubled;

/// The most bytes of a reason that are kept: it travels in a header of the dead letter, whose size has a limit.
const LONGEST_REASON: usize = 1 << 10;

/// The longest pause that a user may ask for, also by `retry_backoff`: the shortest time that Kinesis keeps a record.
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_hours(24);

/// How a record is redelivered, and what happens once its attempts are spent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Retries {
    pub(crate) first_pause: Duration,
    pub(crate) longest_pause: Duration,
    pub(crate) max_attempts: Option<u32>,
    /// The stream that receives records whose attempts are spent.
    pub(crate) dead_letter: Option<Arc<str>>,
    /// How many shards that stream gets if it does not exist. None if it must exist.
    pub(crate) create_dead_letter: Option<u32>,
    pub(crate) format: DeadLetterFormat,
}

/// How the library writes a record to the [`dead_letter`](crate::KinesisStream::dead_letter) stream. The page
/// `docs/dead-letters.md` of the repository describes both formats for other programs.
/// [`DeadLetter`](crate::DeadLetter) reads both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DeadLetterFormat {
    /// One JSON object in one line. A payload or a header value is text if it is UTF-8, otherwise Base64, in a field
    /// whose name says so. Every tool reads it. A record whose JSON would exceed 10 MiB is written as
    /// [`Envelope`](Self::Envelope).
    #[default]
    Json,
    /// The original record with headers in front of its own, in the envelope that
    /// [`Outgoing::header`](crate::Outgoing::header) makes. Its payload follows unchanged, so it takes a few hundred
    /// bytes more than the original. Consumers that use this library read it like the original.
    Envelope,
}

/// What the user wants for a record that is given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Another attempt, if one is left, after the usual pause.
    Retry,
    /// Another attempt, if one is left, after this pause.
    RetryAfter(Duration),
    /// No other attempt.
    Reject,
}

/// What happens to a record that was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RedeliveryDecision {
    /// Redeliver it after this pause.
    Redeliver(Duration),
    /// Its attempts are spent: write it to the dead-letter stream.
    DeadLetter,
    /// Its attempts are spent: the stream yields an error that carries it.
    Error,
}

impl Retries {
    /// What happens to a record after this number of attempts.
    pub(crate) fn next(&self, wish: Wish, attempts: u32) -> RedeliveryDecision {
        let spent = self.max_attempts.is_some_and(|most| attempts >= most);
        match wish {
            Wish::Retry if !spent => {
                RedeliveryDecision::Redeliver(doubled(self.first_pause, self.longest_pause, attempts))
            }
            Wish::RetryAfter(pause) if !spent => RedeliveryDecision::Redeliver(pause.min(LONGEST_PAUSE)),
            _ if self.dead_letter.is_some() => RedeliveryDecision::DeadLetter,
            _ => RedeliveryDecision::Error,
        }
    }
}

impl Default for Retries {
    fn default() -> Self {
        Self {
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_mins(1),
            max_attempts: None,
            dead_letter: None,
            create_dead_letter: None,
            format: DeadLetterFormat::default(),
        }
    }
}

/// Why a record was given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// By a nack without a reason.
    GivenBack,
    /// Its delivery was dropped.
    Dropped,
    /// Its delivery was dropped by a thread that was panicking.
    Panicked,
    /// By a nack or a reject with a reason, in the user's words.
    Because(Arc<str>),
}

impl Reason {
    /// A reason in these words, cut to [`LONGEST_REASON`].
    pub(crate) fn because(words: impl fmt::Display) -> Self {
        let mut kept = Cut(String::new());
        // Text beyond the limit ends the formatting with an error, as intended.
        let _ = write!(kept, "{words}");
        Self::Because(kept.0.into())
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::GivenBack => "given back",
            Self::Dropped => "dropped",
            Self::Panicked => "dropped by a panic",
            Self::Because(words) => words,
        })
    }
}

/// Keeps text up to [`LONGEST_REASON`].
struct Cut(String);

impl Write for Cut {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let fits = text.floor_char_boundary(LONGEST_REASON - self.0.len());
        self.0.push_str(&text[..fits]);
        if fits == text.len() { Ok(()) } else { Err(fmt::Error) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn retries(max_attempts: Option<u32>, dead_letter: Option<&str>) -> Retries {
        Retries { max_attempts, dead_letter: dead_letter.map(Arc::from), ..Retries::default() }
    }

    // A7
    #[test]
    fn the_pause_doubles_from_one_second_to_a_minute() {
        let pause = |attempts| match Retries::default().next(Wish::Retry, attempts) {
            RedeliveryDecision::Redeliver(pause) => pause.as_secs(),
            outcome => panic!("{outcome:?}"),
        };
        assert_eq!([1, 2, 3, 6, 7, 8, 40, u32::MAX].map(pause), [1, 2, 4, 32, 60, 60, 60, 60]);
    }

    // A7
    #[test]
    fn a_record_is_redelivered_until_its_attempts_are_spent_and_then_becomes_a_dead_letter_or_an_error() {
        let again = |millis| RedeliveryDecision::Redeliver(Duration::from_millis(millis));
        let table = [
            (None, None, [again(1_000), again(2_000), again(4_000)]),
            (Some(1), None, [RedeliveryDecision::Error; 3]),
            (Some(3), None, [again(1_000), again(2_000), RedeliveryDecision::Error]),
            (Some(2), Some("dead"), [again(1_000), RedeliveryDecision::DeadLetter, RedeliveryDecision::DeadLetter]),
            (Some(u32::MAX), Some("dead"), [again(1_000), again(2_000), again(4_000)]),
        ];
        for (most, to, decisions) in table {
            assert_eq!(
                [1, 2, 3].map(|attempts| retries(most, to).next(Wish::Retry, attempts)),
                decisions,
                "{most:?}, {to:?}"
            );
        }
    }

    // A7
    #[test]
    fn a_rejected_record_has_no_other_attempt_whatever_the_limit() {
        for most in [None, Some(1), Some(3)] {
            let decision = |to| retries(most, to).next(Wish::Reject, 1);
            assert_eq!(
                [decision(None), decision(Some("dead"))],
                [RedeliveryDecision::Error, RedeliveryDecision::DeadLetter]
            );
        }
    }

    // A7
    #[test]
    fn a_pause_of_the_user_replaces_the_usual_one_up_to_a_day_and_gives_no_attempt_beyond_the_limit() {
        let after = |secs| Wish::RetryAfter(Duration::from_secs(secs));
        let pause = |secs| RedeliveryDecision::Redeliver(Duration::from_secs(secs));
        let table = [(0, 0), (90, 90), (86_400, 86_400), (86_401, 86_400), (u64::MAX, 86_400)];
        for (asked, given) in table {
            assert_eq!(retries(None, None).next(after(asked), 7), pause(given), "{asked} s");
        }
        assert_eq!(retries(Some(2), None).next(after(90), 1), pause(90));
        assert_eq!(retries(Some(2), None).next(after(90), 2), RedeliveryDecision::Error);
        assert_eq!(retries(Some(2), Some("dead")).next(after(90), 2), RedeliveryDecision::DeadLetter);
    }

    // A7
    #[test]
    fn a_long_reason_is_cut_between_two_characters() {
        let reason = |words: &str| Reason::because(words).to_string();
        assert_eq!(reason("no such customer"), "no such customer");
        assert_eq!(reason(&"x".repeat(1_024)).len(), 1_024);
        assert_eq!(reason(&"x".repeat(1_025)), "x".repeat(1_024));
        assert_eq!(reason(&"ß🦀".repeat(1_000)), "ß🦀".repeat(170) + "ß");
        assert_eq!(Reason::because(format_args!("{}{}", "x".repeat(2_000), "y")).to_string(), "x".repeat(1_024));
    }

    proptest! {
        // A7
        #[test]
        fn any_pause_lies_within_its_limits_and_never_shrinks(first in 1_u64..100_000, more in 0_u64..100_000_000, nth: u32) {
            let (first, longest) = (Duration::from_millis(first), Duration::from_millis(first + more));
            let pause = |nth| doubled(first, longest, nth);
            prop_assert_eq!(pause(1), first);
            prop_assert!(first <= pause(nth) && pause(nth) <= pause(nth.saturating_add(1)) && pause(nth) <= longest);
            prop_assert_eq!(pause(nth.max(2)), longest.min(pause(nth.max(2) - 1) * 2));
        }
    }
}
