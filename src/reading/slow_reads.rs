//! Whether a shard falls behind because its reads ask for too little: pure, with the time passed in.
//!
//! A shard is read at a given pace, so reads that bring all they asked for, at that pace, take in all that they ever
//! will. If the tip moves away meanwhile, more is written than they can read. Reads below that pace say nothing: there
//! it is the user, the network or the bytes of the pages that hold them back.

use tokio::time::{Duration, Instant};

/// How long a shard has to fall behind, and by how much at least: less may be how the service measures.
const PATIENCE: Duration = Duration::from_secs(30);
const MARGIN: Duration = Duration::from_secs(1);

/// Reads come a little slower than they may, for the time that their answers take: so many in a hundred are enough.
const PACE: u32 = 75;

/// Reads that brought all they asked for, one after the other.
#[derive(Debug)]
struct Run {
    since: Instant,
    behind: Duration,
    reads: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Lag {
    run: Option<Run>,
}

impl Lag {
    /// Takes in a read and how far behind the tip it left the shard; none if it brought less than it asked for. True if the
    /// shard has been falling behind at the pace of its reads.
    pub(crate) fn grows(&mut self, now: Instant, behind: Option<Duration>, reads_per_second: u32) -> bool {
        let Some(behind) = behind else {
            self.run = None;
            return false;
        };
        let run = self.run.get_or_insert(Run { since: now, behind, reads: 0 });
        run.reads += 1;
        let lasted = now - run.since;
        if lasted < PATIENCE {
            return false;
        }
        let allowed = lasted.as_secs_f64() * f64::from(reads_per_second);
        let at_pace = f64::from(run.reads) * 100.0 >= allowed * f64::from(PACE);
        let lost = behind.saturating_sub(run.behind);
        if at_pace && !lost.is_zero() && lost < MARGIN {
            return false;
        }
        self.run = Some(Run { since: now, behind, reads: 1 });
        at_pace && lost >= MARGIN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads once in so many milliseconds, with the lag that each leaves. When, in milliseconds, it was said to grow.
    fn said(step: u64, behind: impl Fn(u64) -> Option<u64>) -> Vec<u64> {
        let (mut lag, start) = (Lag::default(), Instant::now());
        let mut grows = |at: &u64| {
            let behind = behind(*at).map(Duration::from_millis);
            lag.grows(start + Duration::from_millis(*at), behind, 5)
        };
        (0..=70_000).step_by(usize::try_from(step).unwrap()).filter(|at| grows(at)).collect()
    }

    // R7
    #[test]
    fn a_lag_that_grows_for_half_a_minute_of_full_reads_at_the_full_pace_is_told() {
        assert_eq!(said(200, Some), [30_000, 60_000]);
        assert_eq!(said(250, Some), [30_000, 60_000]);
    }

    // R7
    #[test]
    fn a_lag_that_grows_slowly_is_told_when_it_has_grown_by_a_second() {
        assert_eq!(said(200, |at| Some(at / 50)), [50_000]);
        assert_eq!(said(200, |at| Some(at / 100)), [0; 0]);
    }

    // R7
    #[test]
    fn a_lag_that_stays_or_shrinks_is_not() {
        assert_eq!(said(200, |_| Some(5_000)), [0; 0]);
        assert_eq!(said(200, |at| Some(100_000 - at)), [0; 0]);
    }

    // R7
    #[test]
    fn one_read_that_brings_less_than_it_asked_for_begins_anew() {
        assert_eq!(said(200, |at| (at != 25_000).then_some(at)), [55_200]);
        assert_eq!(said(200, |at| (at % 20_000 != 0).then_some(at)), [0; 0]);
    }

    // A5, R7
    #[test]
    fn reads_that_something_else_holds_back_say_nothing() {
        assert_eq!(said(300, Some), [0; 0]);
        assert_eq!(said(5_000, Some), [0; 0]);
    }
}
