//! Whether this instance can read from Kinesis, judged by its own reads (R10).
//!
//! **Why.** An instance may reach the lease store and not Kinesis. Without this, it would ask for its share, give up
//! reading, release the leases, and ask again without an end. Each round would stop the shards for seconds.
//!
//! **What follows.** Once a reader gave up, the instance asks for no leases, and takes only leases that stood free for
//! a while, so that an instance that can read takes them first. If it holds no lease, it makes a trial read now and
//! then. Each trial that fails doubles the pause. The first good read ends all that.

use std::sync::Mutex;

use tokio::time::{Duration, Instant};

use crate::util::mutex::lock;

/// The longest pause between two trials.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// What the own reads have shown. Pure, with the time passed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ability {
    /// No reader gave up since the last good read.
    Able,
    /// A reader gave up, and no read was good since.
    Unable {
        pause: Duration,
        /// When the next trial may begin. Failures before that belong to the last trial.
        trial_at: Instant,
    },
}

impl Ability {
    fn gave_up(self, first_pause: Duration, now: Instant) -> Self {
        let pause = match self {
            Self::Able => first_pause,
            Self::Unable { trial_at, .. } if now < trial_at => return self,
            Self::Unable { pause, .. } => (pause * 2).min(LONGEST_PAUSE.max(first_pause)),
        };
        Self::Unable { pause, trial_at: now + pause }
    }
}

/// [`Ability`] as the tasks of a subscription share it.
#[derive(Debug)]
pub(crate) struct ReadHealth {
    first_pause: Duration,
    health: Mutex<Ability>,
}

impl ReadHealth {
    pub(crate) fn new(first_pause: Duration) -> Self {
        Self { first_pause, health: Mutex::new(Ability::Able) }
    }

    /// A read was good.
    pub(crate) fn good_read(&self) {
        *lock(&self.health) = Ability::Able;
    }

    /// A reader gave up, or a trial read failed.
    pub(crate) fn gave_up(&self, now: Instant) {
        let mut health = lock(&self.health);
        *health = health.gave_up(self.first_pause, now);
    }

    /// How long a lease must have stood free before this instance takes it. None if it can read.
    pub(crate) fn pause(&self) -> Option<Duration> {
        match *lock(&self.health) {
            Ability::Able => None,
            Ability::Unable { pause, .. } => Some(pause),
        }
    }

    /// Whether this instance, which could not read, may try again now.
    pub(crate) fn is_trial_due(&self, now: Instant) -> bool {
        matches!(*lock(&self.health), Ability::Unable { trial_at, .. } if now >= trial_at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // R10
    #[test]
    fn the_pause_doubles_with_each_trial_that_fails_and_ends_with_a_good_read() {
        let start = Instant::now();
        let health = ReadHealth::new(Duration::from_secs(6));
        // The second, whether a read was good (or a reader gave up), the pause then, and when a trial is due.
        let table = [
            (0, true, None, None),
            (1, false, Some(6), Some(7)),
            (2, false, Some(6), Some(7)),
            (6, false, Some(6), Some(7)),
            (7, false, Some(12), Some(19)),
            (20, false, Some(24), Some(44)),
            (44, false, Some(48), Some(92)),
            (92, false, Some(60), Some(152)),
            (152, false, Some(60), Some(212)),
            (153, true, None, None),
            (154, false, Some(6), Some(160)),
        ];
        assert_eq!(health.pause(), None);
        for (second, is_good, pause, trial) in table {
            let at = |second| start + Duration::from_secs(second);
            if is_good {
                health.good_read();
            } else {
                health.gave_up(at(second));
            }
            assert_eq!(health.pause(), pause.map(Duration::from_secs), "{second} s");
            let is_due = |second| health.is_trial_due(at(second));
            match trial {
                Some(trial) => assert_eq!((is_due(trial - 1), is_due(trial)), (false, true), "{second} s"),
                None => assert!(!is_due(1_000), "{second} s"),
            }
        }
    }
}
