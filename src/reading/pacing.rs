//! When the next read of a shard may be sent (R7, R9, R10): pure arithmetic on instants that are passed in.
//!
//! A shard allows five reads in a second, and the service counts them when they reach it, which the client does not
//! see. It does see that a read was counted before its answer came. So a read goes out a second after the *answer* to
//! the one that is a whole allowance before it: strict however long calls take, and a burst of a whole allowance is
//! still possible.
//!
//! Whoever allows more reads than the service does reads from something else, so the bytes of a second grow with them.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// What a shard gives in a second: reads, and bytes.
const READS_PER_SECOND: u64 = 5;
const BYTES_PER_SECOND: u64 = 2 << 20;

/// The pause after a read that failed, other than by throttling (R10).
const AFTER_FAILURE: Duration = SECOND;

/// Longer than anybody waits, and short enough to be added to any instant.
const FOREVER: Duration = Duration::from_hours(30 * 365 * 24);

/// What became of a read. Each cost one of the shard's reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// A page with records, of so many bytes, and whether it left the shard at its tip.
    Page { bytes: usize, at_tip: bool },
    /// A page without records.
    Empty,
    /// Too many reads, or too many bytes.
    Throttled,
    /// Another error, a timeout too.
    Failed,
    /// Nothing that says when to come back: the iterator had expired, or the read was given up.
    Void,
}

/// The pace of one shard's reads, of which one is under way at a time.
#[derive(Debug)]
pub(crate) struct Pace {
    reads_per_second: usize,
    poll_interval: Duration,
    /// When the reads of the last second were answered, at most a whole allowance of them, oldest first.
    answered: VecDeque<Instant>,
    /// The end of the pause that the last answer asked for.
    rested: Option<Instant>,
}

impl Pace {
    /// No reads a second would be no reads at all, and counts as one.
    pub(crate) fn new(reads_per_second: u32, poll_interval: Duration) -> Self {
        Self {
            reads_per_second: usize::try_from(reads_per_second).unwrap_or(usize::MAX).max(1),
            poll_interval,
            answered: VecDeque::new(),
            rested: None,
        }
    }

    /// The earliest moment of the next read; none when nothing holds it back. It may have passed.
    pub(crate) fn next_read(&self) -> Option<Instant> {
        let spent = self.answered.len() == self.reads_per_second;
        let allowed = self.answered.front().filter(|_| spent).map(|oldest| *oldest + SECOND);
        allowed.max(self.rested)
    }

    /// The read under way is over.
    pub(crate) fn answered(&mut self, at: Instant, answer: Answer) {
        self.answered.push_back(at);
        while self.answered.len() > self.reads_per_second || self.answered.front().is_some_and(|a| *a + SECOND <= at) {
            self.answered.pop_front();
        }
        self.rested = Some(at + self.pause(answer).min(FOREVER));
    }

    fn pause(&self, answer: Answer) -> Duration {
        match answer {
            Answer::Page { bytes, at_tip: false } => self.pause_for(bytes),
            Answer::Page { bytes, at_tip: true } => self.pause_for(bytes).max(self.pause_at_tip()),
            Answer::Empty | Answer::Throttled => self.poll_interval,
            Answer::Failed => AFTER_FAILURE,
            Answer::Void => Duration::ZERO,
        }
    }

    fn pause_for(&self, bytes: usize) -> Duration {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        Duration::from_nanos(bytes.saturating_mul(1_000_000_000).div_ceil(self.bytes_per_second()))
    }

    /// Reading on at once would find next to nothing, and then wait for a whole interval. Half of one, twice, is as many reads.
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

    fn behind(bytes: usize) -> Answer {
        Answer::Page { bytes, at_tip: false }
    }

    fn at_tip(bytes: usize) -> Answer {
        Answer::Page { bytes, at_tip: true }
    }

    /// Reads as early as the pace allows. Each read takes `latency`; gives when, after the start, each was sent.
    fn sent(pace: &mut Pace, latency: Duration, answers: &[Answer]) -> Vec<Duration> {
        let start = Instant::now();
        let mut now = start;
        let mut read = |answer: &Answer| {
            now = pace.next_read().map_or(now, |earliest| earliest.max(now));
            let sent = now;
            now += latency;
            pace.answered(now, *answer);
            sent - start
        };
        answers.iter().map(&mut read).collect()
    }

    // R7
    #[test]
    fn a_burst_of_one_allowance_goes_out_at_once_and_the_next_a_second_after_the_answers() {
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
    fn the_answer_says_how_long_to_pause() {
        let table = [
            ("a byte takes its share of a second, rounded up", behind(1), Duration::from_nanos(477)),
            ("2 MiB", behind(2 << 20), millis(1_000)),
            ("a page as large as there are", behind(10 << 20), millis(5_000)),
            ("records without a byte", behind(0), millis(0)),
            ("the last ones there are", at_tip(0), millis(350)),
            ("the last ones there are, many of them", at_tip(1 << 20), millis(500)),
            ("no records", Answer::Empty, POLL),
            ("throttled", Answer::Throttled, POLL),
            ("failed", Answer::Failed, millis(1_000)),
            ("an expired iterator", Answer::Void, millis(0)),
        ];
        for (name, answer, pause) in table {
            let sent = sent(&mut Pace::new(5, POLL), millis(20), &[answer, Answer::Empty]);
            assert_eq!(sent[1], millis(20) + pause, "{name}");
        }
    }

    // R7
    #[test]
    fn a_shard_whose_reads_find_what_there_is_is_read_evenly() {
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
        let reads = |answer: fn(u32) -> Answer| {
            let mut pace = Pace::new(5, millis(1_000));
            let answers = (0..200).map(answer).collect::<Vec<_>>();
            sent(&mut pace, millis(10), &answers).pop().unwrap()
        };
        // Read on at once, every other read finds nothing. With the pause, each finds something, or every other one.
        let at_once = reads(|n| if n % 2 == 0 { behind(1) } else { Answer::Empty });
        assert!(reads(|_| at_tip(1)) + millis(510) >= at_once);
        assert!(reads(|n| if n % 2 == 0 { at_tip(1) } else { Answer::Empty }) > at_once);
    }

    // R7
    #[test]
    fn bytes_are_allowed_with_reads_above_what_the_service_allows_and_never_below() {
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
    fn reads_that_came_to_nothing_count() {
        for answer in [Answer::Void, behind(0)] {
            let sent = sent(&mut Pace::new(2, POLL), millis(0), &[answer; 4]);
            assert_eq!(sent, [millis(0), millis(0), millis(1_000), millis(1_000)], "{answer:?}");
        }
    }

    // R7
    #[test]
    fn a_longer_pause_and_the_allowance_do_not_add_up() {
        let sent = sent(&mut Pace::new(1, POLL), millis(0), &[Answer::Empty, behind(3 << 20), Answer::Empty]);
        assert_eq!(sent, [millis(0), millis(1_000), millis(2_500)]);
    }

    // R7
    #[test]
    fn settings_out_of_all_proportion_do_no_harm() {
        let none = sent(&mut Pace::new(0, Duration::MAX), millis(0), &[behind(usize::MAX), Answer::Empty]);
        assert!(none[1] > millis(1_000));
        assert_eq!(sent(&mut Pace::new(5, Duration::MAX), millis(0), &[Answer::Empty; 2])[1], FOREVER);
    }

    // R7
    #[test]
    fn only_the_reads_of_the_last_second_are_remembered() {
        let mut pace = Pace::new(u32::MAX, millis(0));
        sent(&mut pace, millis(1), &vec![Answer::Empty; 10_000]);
        assert_eq!(pace.answered.len(), 1_000);
    }

    fn answer() -> impl Strategy<Value = Answer> {
        prop_oneof![
            (0..4_000_000_usize).prop_map(behind),
            (0..4_000_000_usize).prop_map(at_tip),
            Just(behind(0)),
            Just(at_tip(0)),
            Just(Answer::Empty),
            Just(Answer::Void),
        ]
    }

    proptest! {
        // R7, E1
        #[test]
        fn no_second_of_the_service_ever_sees_more_reads_than_allowed(
            reads_per_second in 1..8_u32,
            reads in vec((answer(), 0..1_500_u64, 0..1_500_u64, 0..50_u64), 1..60),
        ) {
            let mut pace = Pace::new(reads_per_second, millis(3));
            let mut now = Instant::now();
            let mut seen = Vec::new();
            for (answer, way_there, way_back, idle) in reads {
                now = pace.next_read().map_or(now, |earliest| earliest.max(now)) + millis(idle);
                seen.push(now + millis(way_there));
                now += millis(way_there + way_back);
                pace.answered(now, answer);
            }
            for few in seen.windows(reads_per_second as usize + 1) {
                prop_assert!(few[few.len() - 1] - few[0] >= SECOND);
            }
        }
    }
}
