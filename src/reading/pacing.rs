//! When the next read of a shard may be sent (R7, R9, R10): pure, with the time passed in.
//!
//! A shard allows five reads per second. The service counts a read when it arrives, which the client does not see, but
//! always before it responds. So a read is sent one second after the *response* to the read that is a whole allowance
//! before it. This is strict whatever the latency, and still allows a burst of one allowance.
//!
//! **Bytes are paced together with reads.** At up to five reads a second, a page of n bytes is followed by a pause of
//! n / 2 MiB seconds. A user who allows more reads than Kinesis does reads from another server, so the byte rate grows
//! in proportion.
//!
//! **A burst of five reads is allowed; six reads within a second are not.** The limit counts from the response to the
//! fifth-last read. This is as strict as the server's own count, whatever the latency. For a shard that lags, even
//! spacing would be slower and no safer.
//!
//! **An empty response from a shard that lags is progress.** The service looks only at a part of the shard for each
//! read, so a long stretch without records takes many reads. They follow each other at the allowed rate.
//!
//! **A shard at its tip is polled at a fixed interval.** After a page that reached the tip, the reader pauses for half
//! a poll interval, or a fifth of a second if that is longer. Reading at once would find nothing and then wait a whole
//! interval, or would find a record or two five times within milliseconds and then nothing for the rest of the second.
//! Half an interval is the shortest pause that never costs more reads: two per interval where records arrive steadily,
//! one where none arrive. It halves the latency at 20 records a second. At 500 records a second it also halves it, with
//! less than half of the reads (`benches/latency.rs`).

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// The limits of a shard per second: reads, and bytes.
const READS_PER_SECOND: u64 = 5;
const BYTES_PER_SECOND: u64 = 2 << 20;

/// Longer than any process runs, and short enough to be added to any instant.
const LONGEST: Duration = Duration::from_hours(30 * 365 * 24);

/// The outcome of a read. Each outcome costs one of the shard's reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOutcome {
    /// A page with records: their bytes, and whether the read reached the tip of the shard.
    Page { bytes: usize, at_tip: bool },
    /// No records, and the shard does not lag or the service does not say how far.
    Empty,
    /// No records, although the shard lags: they are further on.
    Gap,
    /// Too many reads, or too many bytes.
    Throttled,
    /// Another error, or a timeout, after which the reader pauses for this long.
    Failed(Duration),
    /// No reason to pause: the iterator had expired, or the read was abandoned.
    Void,
}

/// The pace of one shard's reads. One read is under way at a time.
#[derive(Debug)]
pub(crate) struct Pace {
    reads_per_second: usize,
    poll_interval: Duration,
    /// The response times of the last second's reads, at most one allowance of them, oldest first.
    responses: VecDeque<Instant>,
    /// The end of the pause after the last outcome.
    pause_until: Option<Instant>,
}

impl Pace {
    /// `reads_per_second` of 0 counts as 1.
    pub(crate) fn new(reads_per_second: u32, poll_interval: Duration) -> Self {
        Self {
            reads_per_second: usize::try_from(reads_per_second).unwrap_or(usize::MAX).max(1),
            poll_interval,
            responses: VecDeque::new(),
            pause_until: None,
        }
    }

    /// The earliest time of the next read. None if nothing holds it back. The time may have passed.
    pub(crate) fn next_read(&self) -> Option<Instant> {
        let is_used_up = self.responses.len() == self.reads_per_second;
        let allowed = self.responses.front().filter(|_| is_used_up).map(|oldest| *oldest + SECOND);
        allowed.max(self.pause_until)
    }

    /// Notes the outcome of the read under way.
    pub(crate) fn read_done(&mut self, at: Instant, outcome: ReadOutcome) {
        self.responses.push_back(at);
        while self.responses.len() > self.reads_per_second || self.responses.front().is_some_and(|a| *a + SECOND <= at)
        {
            self.responses.pop_front();
        }
        self.pause_until = Some(at + self.pause(outcome).min(LONGEST));
    }

    fn pause(&self, outcome: ReadOutcome) -> Duration {
        match outcome {
            ReadOutcome::Page { bytes, at_tip: false } => self.pause_for(bytes),
            ReadOutcome::Page { bytes, at_tip: true } => self.pause_for(bytes).max(self.pause_at_tip()),
            ReadOutcome::Empty | ReadOutcome::Throttled => self.poll_interval,
            ReadOutcome::Failed(pause) => pause,
            ReadOutcome::Gap | ReadOutcome::Void => Duration::ZERO,
        }
    }

    fn pause_for(&self, bytes: usize) -> Duration {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        Duration::from_nanos(bytes.saturating_mul(1_000_000_000).div_ceil(self.bytes_per_second()))
    }

    /// Reading at once would find almost nothing and then wait for a whole interval. Two pauses of half an interval
    /// cost the same number of reads.
    fn pause_at_tip(&self) -> Duration {
        let even = SECOND / u32::try_from(self.reads_per_second).unwrap_or(u32::MAX);
        even.max(self.poll_interval / 2)
    }

    fn bytes_per_second(&self) -> u64 {
        let reads = u64::try_from(self.reads_per_second).unwrap_or(u64::MAX).max(READS_PER_SECOND);
        reads.saturating_mul(BYTES_PER_SECOND) / READS_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    const POLL: Duration = Duration::from_millis(700);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn behind(bytes: usize) -> ReadOutcome {
        ReadOutcome::Page { bytes, at_tip: false }
    }

    fn at_tip(bytes: usize) -> ReadOutcome {
        ReadOutcome::Page { bytes, at_tip: true }
    }

    /// Reads as early as the pace allows. Each read takes `latency`. Returns the time of each read after the start.
    fn sent(pace: &mut Pace, latency: Duration, outcomes: &[ReadOutcome]) -> Vec<Duration> {
        let start = Instant::now();
        let mut now = start;
        let mut read = |outcome: &ReadOutcome| {
            now = pace.next_read().map_or(now, |earliest| earliest.max(now));
            let sent = now;
            now += latency;
            pace.read_done(now, *outcome);
            sent - start
        };
        outcomes.iter().map(&mut read).collect()
    }

    // R7
    #[test]
    fn a_burst_of_one_allowance_is_sent_at_once_and_the_next_a_second_after_the_responses() {
        let table = [
            (0, [0, 0, 0, 0, 0, 1_000, 1_000, 1_000, 1_000, 1_000, 2_000]),
            (50, [0, 50, 100, 150, 200, 1_050, 1_100, 1_150, 1_200, 1_250, 2_100]),
            (300, [0, 300, 600, 900, 1_200, 1_500, 1_800, 2_100, 2_400, 2_700, 3_000]),
        ];
        for (latency, expected) in table {
            let sent = sent(&mut Pace::new(5, POLL), millis(latency), &[behind(1); 11]);
            let sent = sent.iter().map(Duration::as_millis).collect::<Vec<_>>();
            assert_eq!(sent, expected, "{latency} ms a read");
        }
    }

    // R7, R9, R10
    #[test]
    fn the_outcome_decides_the_pause() {
        let table = [
            ("a byte costs its fraction of a second, rounded up", behind(1), Duration::from_nanos(477)),
            ("2 MiB", behind(2 << 20), millis(1_000)),
            ("the largest page", behind(10 << 20), millis(5_000)),
            ("records without a byte", behind(0), millis(0)),
            ("a small page up to the tip", at_tip(0), millis(350)),
            ("a large page up to the tip", at_tip(1 << 20), millis(500)),
            ("no records", ReadOutcome::Empty, POLL),
            ("no records yet", ReadOutcome::Gap, millis(0)),
            ("throttled", ReadOutcome::Throttled, POLL),
            ("failed", ReadOutcome::Failed(millis(8_000)), millis(8_000)),
            ("an expired iterator", ReadOutcome::Void, millis(0)),
        ];
        for (name, outcome, pause) in table {
            let sent = sent(&mut Pace::new(5, POLL), millis(20), &[outcome, ReadOutcome::Empty]);
            assert_eq!(sent[1], millis(20) + pause, "{name}");
        }
    }

    // R7
    #[test]
    fn a_shard_at_its_tip_is_read_evenly() {
        let table = [
            ("twice in an interval", 5, 1_000, [0, 510, 1_020, 1_530, 2_040, 2_550]),
            ("no more often than allowed", 5, 200, [0, 210, 420, 630, 840, 1_050]),
            ("as often as allowed", 2, 1, [0, 510, 1_020, 1_530, 2_040, 2_550]),
            ("many reads are allowed", 1_000, 10, [0, 15, 30, 45, 60, 75]),
        ];
        for (name, reads, poll, expected) in table {
            let sent = sent(&mut Pace::new(reads, millis(poll)), millis(10), &[at_tip(1); 6]);
            assert_eq!(sent.iter().map(Duration::as_millis).collect::<Vec<_>>(), expected, "{name}");
        }
    }

    // R7
    #[test]
    fn the_pause_at_the_tip_costs_no_reads() {
        let reads = |outcome: fn(u32) -> ReadOutcome| {
            let mut pace = Pace::new(5, millis(1_000));
            let outcomes = (0..200).map(outcome).collect::<Vec<_>>();
            sent(&mut pace, millis(10), &outcomes).pop().unwrap()
        };
        // Without the pause, every other read finds nothing. With the pause, each read finds something, or every other
        // one.
        let at_once = reads(|n| if n % 2 == 0 { behind(1) } else { ReadOutcome::Empty });
        assert!(reads(|_| at_tip(1)) + millis(510) >= at_once);
        assert!(reads(|n| if n % 2 == 0 { at_tip(1) } else { ReadOutcome::Empty }) > at_once);
    }

    // R7
    #[test]
    fn the_byte_rate_grows_with_reads_above_the_limit_and_never_shrinks_below_it() {
        let table = [(1, 1_000), (5, 1_000), (10, 500), (5_000, 1)];
        for (reads, pause) in table {
            let paused = Pace::new(reads, POLL).pause(behind(2 << 20));
            assert_eq!(paused.as_millis(), pause, "{reads} reads a second");
        }
    }

    // R7
    #[test]
    fn nothing_holds_the_first_read_back() {
        assert_eq!(Pace::new(5, POLL).next_read(), None);
    }

    // R7
    #[test]
    fn reads_without_records_count() {
        for outcome in [ReadOutcome::Void, ReadOutcome::Gap, behind(0)] {
            let sent = sent(&mut Pace::new(2, POLL), millis(0), &[outcome; 4]);
            assert_eq!(sent, [millis(0), millis(0), millis(1_000), millis(1_000)], "{outcome:?}");
        }
    }

    // R7
    #[test]
    fn a_longer_pause_and_the_allowance_do_not_add_up() {
        let sent = sent(&mut Pace::new(1, POLL), millis(0), &[ReadOutcome::Empty, behind(3 << 20), ReadOutcome::Empty]);
        assert_eq!(sent, [millis(0), millis(1_000), millis(2_500)]);
    }

    // R7
    #[test]
    fn extreme_settings_do_no_harm() {
        let none = sent(&mut Pace::new(0, Duration::MAX), millis(0), &[behind(usize::MAX), ReadOutcome::Empty]);
        assert!(none[1] > millis(1_000));
        assert_eq!(sent(&mut Pace::new(5, Duration::MAX), millis(0), &[ReadOutcome::Empty; 2])[1], LONGEST);
    }

    // R7
    #[test]
    fn only_the_reads_of_the_last_second_are_remembered() {
        let mut pace = Pace::new(u32::MAX, millis(0));
        sent(&mut pace, millis(1), &vec![ReadOutcome::Empty; 10_000]);
        assert_eq!(pace.responses.len(), 1_000);
    }

    fn outcome() -> impl Strategy<Value = ReadOutcome> {
        prop_oneof![
            (0..4_000_000_usize).prop_map(behind),
            (0..4_000_000_usize).prop_map(at_tip),
            Just(behind(0)),
            Just(at_tip(0)),
            Just(ReadOutcome::Empty),
            Just(ReadOutcome::Gap),
            Just(ReadOutcome::Void),
        ]
    }

    proptest! {
        // R7, E1
        #[test]
        fn the_service_never_sees_more_reads_per_second_than_allowed(
            reads_per_second in 1..8_u32,
            reads in vec((outcome(), 0..1_500_u64, 0..1_500_u64, 0..50_u64), 1..60),
        ) {
            let mut pace = Pace::new(reads_per_second, millis(3));
            let mut now = Instant::now();
            let mut seen = Vec::new();
            for (outcome, way_there, way_back, idle) in reads {
                now = pace.next_read().map_or(now, |earliest| earliest.max(now)) + millis(idle);
                seen.push(now + millis(way_there));
                now += millis(way_there + way_back);
                pace.read_done(now, outcome);
            }
            for few in seen.windows(reads_per_second as usize + 1) {
                prop_assert!(few[few.len() - 1] - few[0] >= SECOND);
            }
        }
    }
}
