//! What one shard counts, and what follows from it for [`ShardStats`](crate::ShardStats): pure, with the time passed in.

use tokio::time::{Duration, Instant};

use crate::{config::position::Checkpoint, error::KinesisError};

/// How long reads may stay without an answer before a warning says so (R9).
const UNANSWERED_WARNING: Duration = Duration::from_secs(30);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ShardCounts {
    /// Records and bytes of all pages that were read.
    pub(crate) records: u64,
    pub(crate) bytes: u64,
    /// Deliveries that the user settled, and that were given back.
    pub(crate) acked: u64,
    pub(crate) given_back: u64,
    pub(crate) reads: u64,
    pub(crate) throttles: u64,
    pub(crate) expired_iterators: u64,
    pub(crate) redeliveries: u64,
    pub(crate) spent: u64,
    pub(crate) rejected: u64,
    pub(crate) dead_letters: u64,
    /// Records that were too old to be delivered (A8).
    pub(crate) too_old: u64,
    /// Batches that a handler got, and how often one was halved (A8).
    pub(crate) batches: u64,
    pub(crate) halvings: u64,
    /// The checkpoint in the lease row and since when, as far as this process knows.
    pub(crate) checkpoint: Option<(Checkpoint, Instant)>,
    pub(crate) last_error: Option<(KinesisError, Instant)>,
    reading: ReadingState,
}

/// What the calls of the reader have shown in this opening.
#[derive(Debug, Default)]
struct ReadingState {
    /// When the last response arrived, and how far behind the tip it was.
    last_read: Option<(Instant, Option<Duration>)>,
    /// When the first call was sent that no response followed, and whether a warning told so.
    unanswered: Option<(Instant, bool)>,
}

impl ShardCounts {
    /// Notes that a new reader begins: what the last one saw is no longer true.
    pub(super) fn opened(&mut self) {
        self.reading = ReadingState::default();
    }

    /// Notes that a call of the reader is sent.
    pub(crate) fn asked(&mut self, now: Instant) {
        self.reading.unanswered.get_or_insert((now, false));
    }

    /// Notes the response of a read: how many records and bytes it had, and how far behind the tip it is.
    pub(crate) fn answered(&mut self, now: Instant, records: usize, bytes: usize, behind: Option<Duration>) {
        self.reads += 1;
        self.records += records as u64;
        self.bytes += bytes as u64;
        self.reading = ReadingState { last_read: Some((now, behind)), unanswered: None };
    }

    /// How far reading is behind the tip: what the last response said, and the time since then if that is more than
    /// `slack`.
    pub(super) fn behind(&self, now: Instant, slack: Duration) -> Option<Duration> {
        let (at, behind) = self.reading.last_read?;
        let age = now - at;
        Some(behind? + if age > slack { age } else { Duration::ZERO })
    }

    /// The time since the last response.
    pub(super) fn last_read(&self, now: Instant) -> Option<Duration> {
        self.reading.last_read.map(|(at, _)| now - at)
    }

    /// The time since the first call that no response followed.
    pub(super) fn unanswered(&self, now: Instant) -> Option<Duration> {
        self.reading.unanswered.map(|(since, _)| now - since)
    }

    /// Whether it is time to warn that the reads have no answer, once until the next one.
    pub(super) fn unanswered_warning(&mut self, now: Instant) -> Option<Duration> {
        let (since, is_told) = self.reading.unanswered.as_mut()?;
        let lasted = now - *since;
        if *is_told || lasted < UNANSWERED_WARNING {
            return None;
        }
        *is_told = true;
        Some(lasted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    // L8
    #[test]
    fn the_lag_grows_with_the_age_of_the_last_response() {
        let (mut counts, start) = (ShardCounts::default(), Instant::now());
        assert_eq!((counts.behind(start, seconds(2)), counts.last_read(start)), (None, None));
        counts.answered(start, 3, 300, Some(seconds(5)));
        for (second, behind) in [(0, 5), (1, 5), (2, 5), (3, 8), (60, 65)] {
            let now = start + seconds(second);
            assert_eq!(counts.behind(now, seconds(2)), Some(seconds(behind)), "{second} s");
            assert_eq!(counts.last_read(now), Some(seconds(second)));
        }
        counts.answered(start + seconds(60), 1, 100, None);
        assert_eq!(counts.behind(start + seconds(90), seconds(2)), None);
        assert_eq!((counts.reads, counts.records, counts.bytes), (2, 4, 400));
        counts.opened();
        assert_eq!((counts.last_read(start), counts.records), (None, 4));
    }

    // R9
    #[test]
    fn reads_without_an_answer_for_thirty_seconds_are_told_once() {
        let (mut counts, start) = (ShardCounts::default(), Instant::now());
        let at = |second| start + seconds(second);
        assert_eq!(counts.unanswered_warning(at(100)), None);
        for second in [0, 10, 20] {
            counts.asked(at(second));
        }
        assert_eq!((counts.unanswered(at(20)), counts.unanswered_warning(at(29))), (Some(seconds(20)), None));
        assert_eq!(counts.unanswered_warning(at(31)), Some(seconds(31)));
        assert_eq!(counts.unanswered_warning(at(90)), None);
        counts.answered(at(91), 0, 0, None);
        assert_eq!(counts.unanswered(at(91)), None);
        counts.asked(at(92));
        assert_eq!(counts.unanswered_warning(at(122)), Some(seconds(30)));
    }
}
