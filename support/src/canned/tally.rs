//! Counts the calls on a canned service.

use std::{
    fmt,
    num::ParseIntError,
    str::FromStr,
    sync::atomic::{AtomicUsize, Ordering},
};

/// The calls on a canned service so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// `ListShards`; each page counts.
    pub listings: usize,
    /// `GetShardIterator`.
    pub iterators: usize,
    /// The highest number of these calls at the same time.
    pub iterators_at_once: usize,
    /// `GetRecords`.
    pub reads: usize,
    /// The highest number of these calls at the same time.
    pub reads_at_once: usize,
}

/// The numbers in the order of the fields.
impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { listings, iterators, iterators_at_once, reads, reads_at_once } = self;
        write!(f, "{listings} {iterators} {iterators_at_once} {reads} {reads_at_once}")
    }
}

/// Parses the numbers that `Display` writes.
impl FromStr for Tally {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        let mut numbers = text.split_whitespace();
        let mut number = || numbers.next().unwrap_or_default().parse();
        Ok(Self {
            listings: number()?,
            iterators: number()?,
            iterators_at_once: number()?,
            reads: number()?,
            reads_at_once: number()?,
        })
    }
}

/// Calls of one kind.
#[derive(Debug)]
pub(super) struct Count {
    all: AtomicUsize,
    now: AtomicUsize,
    most: AtomicUsize,
}

impl Count {
    pub(super) const fn new() -> Self {
        Self { all: AtomicUsize::new(0), now: AtomicUsize::new(0), most: AtomicUsize::new(0) }
    }

    /// Counts a call as in flight until the guard is dropped.
    pub(super) fn enter(&self) -> CallGuard<'_> {
        self.all.fetch_add(1, Ordering::Relaxed);
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.fetch_max(now, Ordering::Relaxed);
        CallGuard(self)
    }

    pub(super) fn all(&self) -> usize {
        self.all.load(Ordering::Relaxed)
    }

    pub(super) fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
}

pub(super) struct CallGuard<'a>(&'a Count);

impl Drop for CallGuard<'_> {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_round_trips_through_text() {
        let tally = Tally { listings: 1, iterators: 2, iterators_at_once: 3, reads: 4, reads_at_once: 5 };
        assert_eq!(tally.to_string().parse(), Ok(tally));
        assert!("1 2".parse::<Tally>().is_err());
    }

    #[test]
    fn a_count_keeps_the_total_and_the_peak_of_concurrent_calls() {
        let count = Count::new();
        let (one, two) = (count.enter(), count.enter());
        drop(one);
        let three = count.enter();
        drop((two, three));
        assert_eq!((count.all(), count.most()), (3, 2));
    }
}
