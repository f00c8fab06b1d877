//! The schedule: a run consists of rounds, and a round of four phases.

use std::time::Duration;

use tokio::time::Instant;

/// The longest round.
const ROUND: Duration = Duration::from_mins(1);

/// How the consumer treats records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It acknowledges each record at once, in order.
    Steady,
    /// It settles records out of order, gives some back and drops some.
    Disorder,
    /// It settles records more slowly than they arrive.
    Slow,
    /// As `Steady`, with a backlog.
    CatchingUp,
}

/// Computes the phase from the time.
#[derive(Clone, Debug)]
pub(crate) struct Clock {
    start: Instant,
    round: Duration,
}

impl Clock {
    /// For a run of this length, of at least two rounds.
    pub(crate) fn new(length: Duration) -> Self {
        Self { start: Instant::now(), round: (length / 2).min(ROUND).max(Duration::from_millis(1)) }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    pub(crate) fn phase(&self) -> Phase {
        let into = self.elapsed().as_nanos() % self.round.as_nanos();
        match into * 4 / self.round.as_nanos() {
            0 => Phase::Steady,
            1 => Phase::Disorder,
            2 => Phase::Slow,
            _ => Phase::CatchingUp,
        }
    }

    /// The middle of a round, counted from 0.
    pub(crate) fn middle_of(&self, round: u32) -> Instant {
        self.start + self.round * round + self.round / 2
    }
}
