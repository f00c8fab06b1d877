//! Warnings that many shards may have at once: one line for the first of a cause, and then a count.
//!
//! In an outage every shard fails once a second. A line for each would bury everything else, so only the first is a
//! warning. The others are logged at the level DEBUG, and each half minute one line says how many there were.

use std::{
    collections::HashMap,
    mem::{self, Discriminant},
    sync::Mutex,
};

use tokio::time::{Duration, Instant};

use crate::{
    error::{KinesisError, service::FailureKind},
    util::mutex::lock,
};

/// How long warnings of one cause are counted before their number is logged.
const INTERVAL: Duration = Duration::from_secs(30);

/// What a warning is about: two warnings with the same cause are one for whoever reads the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cause {
    /// The key words of the log line.
    what: &'static str,
    /// The rest of the log line.
    action: &'static str,
    error: Option<Discriminant<KinesisError>>,
    kind: Option<FailureKind>,
}

impl Cause {
    /// A failed call on the lease store. `what` and `action` are the log line.
    pub(crate) fn of_store(what: &'static str, action: &'static str) -> Self {
        Self { what, action, error: None, kind: None }
    }

    /// A failed call on Kinesis of this kind.
    pub(crate) fn of_kind(what: &'static str, kind: FailureKind) -> Self {
        Self { what, action: "", error: None, kind: Some(kind) }
    }

    /// An error of the stream. Failed calls differ by their kind, too.
    pub(crate) fn of_error(what: &'static str, error: &KinesisError) -> Self {
        let kind = match error {
            KinesisError::Read { source, .. } | KinesisError::List { source, .. } => Some(source.kind()),
            _ => None,
        };
        Self { what, action: "", error: Some(mem::discriminant(error)), kind }
    }
}

/// How often a cause came after its first warning, and since when that is counted.
#[derive(Clone, Copy, Debug)]
struct Repeats {
    since: Instant,
    count: u64,
}

/// The warnings of one subscription. Pure, with the time passed in.
#[derive(Debug, Default)]
struct Counted(HashMap<Cause, Repeats>);

impl Counted {
    fn is_first(&mut self, cause: Cause, now: Instant) -> bool {
        match self.0.get_mut(&cause) {
            Some(repeats) => {
                repeats.count += 1;
                false
            }
            None => self.0.insert(cause, Repeats { since: now, count: 0 }).is_none(),
        }
    }

    /// The causes that came again, with their numbers, once their interval is over. Forgets a cause that did not.
    fn take_due(&mut self, now: Instant) -> Vec<(Cause, u64, Duration)> {
        let mut due = Vec::new();
        self.0.retain(|cause, repeats| {
            let lasted = now - repeats.since;
            if lasted < INTERVAL {
                return true;
            }
            let Repeats { count, .. } = mem::replace(repeats, Repeats { since: now, count: 0 });
            if count > 0 {
                due.push((*cause, count, lasted));
            }
            count > 0
        });
        due
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Warnings(Mutex<Counted>);

impl Warnings {
    /// Whether this is the first warning of its cause for a while, so that it is logged in full.
    pub(crate) fn is_first(&self, cause: Cause) -> bool {
        lock(&self.0).is_first(cause, Instant::now())
    }

    /// Logs how often each cause came after its first warning.
    pub(crate) fn log_repeats(&self, stream: &str) {
        let due = lock(&self.0).take_due(Instant::now());
        for (cause, count, within) in due {
            let line = [cause.what, cause.action].join(" ");
            tracing::warn!(%stream, kind = ?cause.kind, count, ?within, "{} ({count} more)", line.trim_end());
        }
    }
}

/// Logs a warning, or at the level DEBUG if another one said the same before.
macro_rules! warn_once_of {
    ($is_first:expr, $($fields:tt)*) => {
        if $is_first {
            tracing::warn!($($fields)*)
        } else {
            tracing::debug!($($fields)*)
        }
    };
}
pub(crate) use warn_once_of;

#[cfg(test)]
mod tests {
    use super::*;

    // L8
    #[test]
    fn the_first_warning_of_a_cause_is_logged_and_the_others_are_counted() {
        let (mut counted, start) = (Counted::default(), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        let denied = Cause::of_kind("a read failed", FailureKind::Denied);
        let read = Cause::of_kind("a read failed", FailureKind::Other);
        assert!(counted.is_first(read, at(0)));
        assert!(counted.is_first(denied, at(1)));
        for second in 0..29 {
            assert!(!counted.is_first(read, at(second)));
        }
        assert_eq!(counted.take_due(at(29)), []);
        assert_eq!(counted.take_due(at(30)), [(read, 29, INTERVAL)]);
        assert!(!counted.is_first(read, at(31)));
        assert_eq!(counted.take_due(at(60)), [(read, 1, INTERVAL)]);
        assert_eq!(counted.take_due(at(90)), []);
        assert!(counted.is_first(read, at(91)) && counted.is_first(denied, at(91)));
    }
}
