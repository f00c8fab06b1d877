//! What becomes of a record that was given back: pure values, and the one decision about them.

use std::{
    fmt::{self, Write},
    sync::Arc,
    time::Duration,
};

use crate::util::backoff::doubled;

/// The most bytes of a reason that are kept: it travels in a header of the dead letter, whose size has a limit.
const LONGEST_REASON: usize = 1 << 10;

/// How a record is tried again, and what becomes of it when its attempts are spent.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Retries {
    pub(crate) first_pause: Duration,
    pub(crate) longest_pause: Duration,
    pub(crate) max_attempts: Option<u32>,
    /// The stream for records whose attempts are spent.
    pub(crate) dead_letter: Option<Arc<str>>,
}

/// What becomes of a record that was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// It is handed out again after this pause.
    Again(Duration),
    /// Its attempts are spent: it goes to the dead-letter stream.
    DeadLetter,
    /// Its attempts are spent: it is handed out as an error.
    Error,
}

impl Retries {
    /// What becomes of a record that was handed out so many times.
    pub(crate) fn next(&self, attempts: u32) -> Next {
        match (self.max_attempts, &self.dead_letter) {
            (Some(most), Some(_)) if attempts >= most => Next::DeadLetter,
            (Some(most), None) if attempts >= most => Next::Error,
            _ => Next::Again(doubled(self.first_pause, self.longest_pause, attempts)),
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
        }
    }
}

/// Why a record was given back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    GivenBack,
    Dropped,
    /// Dropped by a thread that was panicking.
    Panicked,
    /// In the user's words.
    Because(Arc<str>),
}

impl Reason {
    /// These words, cut where they are too long.
    pub(crate) fn because(words: impl fmt::Display) -> Self {
        let mut kept = Cut(String::new());
        // What does not fit any more ends the formatting as an error, and is meant to.
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

/// Takes text up to its limit.
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
        let pause = |attempts| match Retries::default().next(attempts) {
            Next::Again(pause) => pause.as_secs(),
            outcome => panic!("{outcome:?}"),
        };
        assert_eq!([1, 2, 3, 6, 7, 8, 40, u32::MAX].map(pause), [1, 2, 4, 32, 60, 60, 60, 60]);
    }

    // A7
    #[test]
    fn a_record_is_handed_out_as_often_as_is_allowed_and_then_goes_where_it_is_said() {
        let again = |millis| Next::Again(Duration::from_millis(millis));
        let table = [
            (None, None, [again(1_000), again(2_000), again(4_000)]),
            (Some(1), None, [Next::Error; 3]),
            (Some(3), None, [again(1_000), again(2_000), Next::Error]),
            (Some(2), Some("dead"), [again(1_000), Next::DeadLetter, Next::DeadLetter]),
            (Some(u32::MAX), Some("dead"), [again(1_000), again(2_000), again(4_000)]),
        ];
        for (most, to, fates) in table {
            assert_eq!([1, 2, 3].map(|attempts| retries(most, to).next(attempts)), fates, "{most:?}, {to:?}");
        }
    }

    // A7
    #[test]
    fn a_long_reason_is_cut_between_two_characters() {
        let told = |words: &str| Reason::because(words).to_string();
        assert_eq!(told("no such customer"), "no such customer");
        assert_eq!(told(&"x".repeat(1_024)).len(), 1_024);
        assert_eq!(told(&"x".repeat(1_025)), "x".repeat(1_024));
        assert_eq!(told(&"ß🦀".repeat(1_000)), "ß🦀".repeat(170) + "ß");
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
