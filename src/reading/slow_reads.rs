//! Whether a shard falls behind because its reads ask for too few records: pure, with the time passed in.
//!
//! Full reads at the full pace return as many records as such reads ever can. If the tip moves away meanwhile,
//! producers write more than these reads return. Slower reads prove nothing: the user, the network or the bytes of the
//! pages hold them back.

use tokio::time::{Duration, Instant};

/// How long a shard has to fall behind, and by how much at least: less may be an inaccurate measurement of the service.
const PATIENCE: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_secs(1);

/// The percentage of the allowed reads that counts as the full pace: reads are a little slower than the limit, because
/// of their latency.
const FULL_PACE: u32 = 75;

/// Full reads in a row.
#[derive(Debug)]
struct FullRun {
    since: Instant,
    behind: Duration,
    reads: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct SlowReads {
    run: Option<FullRun>,
}

impl SlowReads {
    /// Notes a read, and how far behind the tip it left the shard: None if it returned fewer records than it asked for.
    /// True if the shard has been falling behind at the full pace of its reads.
    pub(crate) fn falls_behind(&mut self, now: Instant, behind: Option<Duration>, reads_per_second: u32) -> bool {
        let Some(behind) = behind else {
            self.run = None;
            return false;
        };
        let run = self.run.get_or_insert(FullRun { since: now, behind, reads: 0 });
        run.reads += 1;
        let lasted = now - run.since;
        if lasted < PATIENCE {
            return false;
        }
        let allowed = lasted.as_secs_f64() * f64::from(reads_per_second);
        let at_pace = f64::from(run.reads) * 100.0 >= allowed * f64::from(FULL_PACE);
        let grown = behind.saturating_sub(run.behind);
        if at_pace && !grown.is_zero() && grown < MARGIN {
            return false;
        }
        self.run = Some(FullRun { since: now, behind, reads: 1 });
        at_pace && grown >= MARGIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads every `step` milliseconds, with the lag that each read leaves. Returns the times of the warnings.
    fn warnings(step: u64, behind: impl Fn(u64) -> Option<u64>) -> Vec<u64> {
        let (mut reads, start) = (SlowReads::default(), Instant::now());
        let mut falls_behind = |at: &u64| {
            let behind = behind(*at).map(Duration::from_millis);
            reads.falls_behind(start + Duration::from_millis(*at), behind, 5)
        };
        (0..=70_000).step_by(usize::try_from(step).unwrap()).filter(|at| falls_behind(at)).collect()
    }

    // R7
    #[test]
    fn a_lag_that_grows_for_half_a_minute_of_full_reads_at_the_full_pace_warns() {
        assert_eq!(warnings(200, Some), [30_000, 60_000]);
        assert_eq!(warnings(250, Some), [30_000, 60_000]);
    }

    // R7
    #[test]
    fn a_lag_that_grows_slowly_warns_once_it_has_grown_by_a_second() {
        assert_eq!(warnings(200, |at| Some(at / 50)), [50_000]);
        assert_eq!(warnings(200, |at| Some(at / 100)), [0; 0]);
    }

    // R7
    #[test]
    fn a_lag_that_stays_or_shrinks_does_not_warn() {
        assert_eq!(warnings(200, |_| Some(5_000)), [0; 0]);
        assert_eq!(warnings(200, |at| Some(100_000 - at)), [0; 0]);
    }

    // R7
    #[test]
    fn a_read_that_is_not_full_starts_over() {
        assert_eq!(warnings(200, |at| (at != 25_000).then_some(at)), [55_200]);
        assert_eq!(warnings(200, |at| (at % 20_000 != 0).then_some(at)), [0; 0]);
    }

    // A5, R7
    #[test]
    fn reads_below_the_full_pace_do_not_warn() {
        assert_eq!(warnings(300, Some), [0; 0]);
        assert_eq!(warnings(5_000, Some), [0; 0]);
    }
}
