//! What the first pass does if the lease store cannot be used.
//!
//! **Without leases nothing is read, so `subscribe` waits until the leases were read.** A store that cannot work as it
//! is set up fails the start at once: a missing table, a denied call. Other failures are repeated for a minute, and
//! then fail it. A read that takes too long holds the start for a few seconds only (L5): the table may be large, and
//! the shards open later, at the same moment.

use std::sync::Arc;

use tokio::{
    select,
    time::{Duration, Instant, sleep},
};

use super::{Coordinator, listing::ListingInFlight};
use crate::error::{
    KinesisError,
    chain::Chain,
    work::{Cure, Work},
};

/// How long the first pass repeats a read of the leases that fails.
const START_LIMIT: Duration = Duration::from_mins(1);

/// After this time it no longer repeats a read that takes too long. A read may be under way at that time.
const SLOW_LIMIT: Duration = Duration::from_secs(5);

/// The longest pause between two such reads. The store has its own retries below this.
const PAUSE: Duration = Duration::from_secs(1);

/// What to do after a pass of the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartVerdict {
    Started,
    Again,
    Failed,
}

/// Judges the failures of a pass of the start: pure. `is_slow`: the read of the leases took too long. `waited`: the
/// time since the first one began.
fn judge(failures: impl IntoIterator<Item = (Work, Cure)>, is_slow: bool, waited: Duration) -> StartVerdict {
    let mut verdict = StartVerdict::Started;
    for failure in failures {
        match failure {
            (Work::ReadLeases | Work::WriteLeases, Cure::Person) => return StartVerdict::Failed,
            (Work::ReadLeases, Cure::Time | Cure::Either) if is_slow && waited >= SLOW_LIMIT => {}
            (Work::ReadLeases, _) if !is_slow && waited >= START_LIMIT => verdict = StartVerdict::Failed,
            (Work::ReadLeases, _) => verdict = StartVerdict::Again,
            // A take that failed is repeated by the next pass, and the other shards are read meanwhile.
            _ => {}
        }
    }
    verdict
}

impl Coordinator {
    /// Makes the first pass, and repeats it while the leases cannot be read. Returns the error with which `subscribe`
    /// fails.
    pub(super) async fn pass_once_leases_are_read(
        &mut self,
        listing: &mut Option<ListingInFlight>,
    ) -> Result<(), KinesisError> {
        let context = Arc::clone(&self.context);
        let begun = Instant::now();
        loop {
            let read_begun = Instant::now();
            self.pass(self.listings.completed_at(), true, listing).await;
            if !context.lifecycle.is_running() {
                return Ok(());
            }
            let failing = context.failing();
            let failures = failing.iter().filter_map(|failing| failing.error.interrupts());
            let is_slow = read_begun.elapsed() >= context.settings.renew_interval;
            let verdict = judge(failures, is_slow, begun.elapsed());
            let of_store = |error: &KinesisError| matches!(error, KinesisError::Store { .. });
            let Some(failing) = failing.into_iter().find(|failing| of_store(&failing.error)) else { return Ok(()) };
            match verdict {
                StartVerdict::Started => return Ok(()),
                StartVerdict::Failed => return Err(failing.error.ending_start()),
                StartVerdict::Again => {}
            }
            tracing::warn!(
                stream = %context.stream, error = %Chain(&failing.error),
                "the leases cannot be read, and the start waits"
            );
            select! {
                biased;
                _ = context.lifecycle.closing() => return Ok(()),
                () = sleep(PAUSE.min(context.settings.renew_interval)) => {}
            }
        }
    }
}

impl KinesisError {
    fn ending_start(self) -> Self {
        match self {
            Self::Store { stream, shard, action, source } => {
                Self::Store { stream, shard, action, source: source.ending_start() }
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // L4
    #[test]
    fn the_start_fails_where_waiting_mends_nothing_and_waits_for_the_leases_elsewhere() {
        let (person, time) = (Cure::Person, Cure::Time);
        // The failures, whether the read was slow, the seconds waited, and the verdict.
        let table = [
            (vec![], false, 0, StartVerdict::Started),
            (vec![(Work::ReadLeases, person)], false, 0, StartVerdict::Failed),
            (vec![(Work::WriteLeases, person)], false, 0, StartVerdict::Failed),
            (vec![(Work::ReadLeases, time)], false, 59, StartVerdict::Again),
            (vec![(Work::ReadLeases, time)], false, 60, StartVerdict::Failed),
            (vec![(Work::ReadLeases, Cure::Either)], false, 59, StartVerdict::Again),
            (vec![(Work::ReadLeases, Cure::Either)], false, 60, StartVerdict::Failed),
            (vec![(Work::WriteLeases, Cure::Either)], false, 60, StartVerdict::Started),
            (vec![(Work::ReadLeases, time)], true, 4, StartVerdict::Again),
            (vec![(Work::ReadLeases, time)], true, 5, StartVerdict::Started),
            (vec![(Work::ReadLeases, time), (Work::WriteLeases, person)], true, 5, StartVerdict::Failed),
            (vec![(Work::WriteLeases, time)], false, 60, StartVerdict::Started),
            (vec![(Work::ListShards, person), (Work::ReadShards, person)], false, 60, StartVerdict::Started),
        ];
        for (failures, is_slow, waited, verdict) in table {
            assert_eq!(judge(failures.clone(), is_slow, Duration::from_secs(waited)), verdict, "{failures:?}");
        }
    }
}
