//! One word on a subscription, for health checks: pure, from a snapshot.

use std::{fmt, time::Duration};

use crate::{
    error::KinesisError,
    state::stats::{SubscriptionState, SubscriptionStats},
    types::id::{SequenceNumber, ShardId},
};

/// From when on a subscription is no longer healthy. [`SubscriptionStats::health_within`] takes it.
///
/// ```
/// use std::time::Duration;
///
/// use kinesis_stream::HealthLimits;
///
/// let limits = HealthLimits::default().behind(Duration::from_secs(60));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct HealthLimits {
    behind: Duration,
    unanswered: Duration,
    failing: Duration,
    unsettled: Duration,
}

impl Default for HealthLimits {
    fn default() -> Self {
        Self {
            behind: Duration::from_mins(5),
            unanswered: Duration::from_secs(30),
            failing: Duration::from_mins(1),
            unsettled: Duration::from_mins(5),
        }
    }
}

impl HealthLimits {
    /// How far a shard may be behind its tip: 5 minutes by default. Raise it for a consumer that starts far back.
    pub const fn behind(mut self, limit: Duration) -> Self {
        self.behind = limit;
        self
    }

    /// How long the reads of a shard may stay without an answer: 30 s by default, the longest time of one call.
    pub const fn unanswered(mut self, limit: Duration) -> Self {
        self.unanswered = limit;
        self
    }

    /// How long work on the lease table, listings or dead letters may fail: 1 minute by default.
    pub const fn failing(mut self, limit: Duration) -> Self {
        self.failing = limit;
        self
    }

    /// How old the oldest unsettled delivery of a shard may be: 5 minutes by default. Choose it above the longest time
    /// of your handler and its retries.
    pub const fn unsettled(mut self, limit: Duration) -> Self {
        self.unsettled = limit;
        self
    }
}

/// How a subscription is. [`SubscriptionStats::health`] tells. `Display` is one line that says what is wrong.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Health {
    /// All is well.
    Ok,
    /// It reads, but a shard is far behind its tip.
    #[non_exhaustive]
    Behind {
        /// The shard that is furthest behind.
        shard: ShardId,
        /// How far.
        behind: Duration,
    },
    /// Something does not go on.
    Stalled(Stall),
    /// Something fails that only a person can end: a permission, a table, a stream or a key is missing.
    #[non_exhaustive]
    Denied {
        /// The last failure.
        error: KinesisError,
        /// The time since the first one.
        lasted: Duration,
    },
    /// It closes or has ended.
    Ended,
}

/// What does not go on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Stall {
    /// Work of the whole subscription fails: the lease table, listings, dead letters.
    #[non_exhaustive]
    Failing {
        /// The last failure.
        error: KinesisError,
        /// The time since the first one.
        lasted: Duration,
    },
    /// The reads of a shard have no answer: they are throttled, hang or fail.
    #[non_exhaustive]
    Unanswered {
        /// The shard for which this lasts longest.
        shard: ShardId,
        /// The time since the first call without an answer.
        lasted: Duration,
        /// The last error that was reported for the shard. A throttle is none.
        error: Option<KinesisError>,
    },
    /// A delivery has been unsettled for long: a handler is stuck, or a delivery was kept.
    #[non_exhaustive]
    Unsettled {
        /// Its shard.
        shard: ShardId,
        /// Its sequence number.
        sequence_number: SequenceNumber,
        /// The time since it was delivered first.
        age: Duration,
    },
    /// Shards that no instance reads, because of [`max_leases`](crate::KinesisStream::max_leases).
    #[non_exhaustive]
    Unowned {
        /// How many.
        shards: usize,
    },
}

impl Health {
    /// Whether all is well.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        matches!(self, Self::Ok)
    }

    /// One word: `ok`, `behind`, `stalled`, `denied` or `ended`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Behind { .. } => "behind",
            Self::Stalled(_) => "stalled",
            Self::Denied { .. } => "denied",
            Self::Ended => "ended",
        }
    }
}

impl SubscriptionStats {
    /// How the subscription is, by the default [`HealthLimits`]. If several things are wrong, it names the one that most
    /// needs a person, in this order: ended, denied, stalled, behind.
    ///
    /// Use it for a readiness page and for alerts. Do not let an orchestrator restart the process because of it: a
    /// restart mends neither a missing permission nor a lag, and moves leases.
    ///
    /// ```
    /// # use kinesis_stream::StatsHandle;
    /// fn ready(stats: &StatsHandle) -> (u16, String) {
    ///     let health = stats.snapshot().health();
    ///     (if health.is_ok() { 200 } else { 503 }, health.to_string())
    /// }
    /// ```
    #[must_use]
    pub fn health(&self) -> Health {
        self.health_within(&HealthLimits::default())
    }

    /// Like [`health`](Self::health), by these limits.
    #[must_use]
    pub fn health_within(&self, limits: &HealthLimits) -> Health {
        if self.state != SubscriptionState::Running {
            return Health::Ended;
        }
        if let Some(failure) = self.failing.iter().filter(|failure| failure.needs_person).max_by_key(|f| f.lasted) {
            return Health::Denied { error: failure.error.clone(), lasted: failure.lasted };
        }
        if let Some(stall) = self.stall(limits) {
            return Health::Stalled(stall);
        }
        let lags = self.shards.iter().filter_map(|shard| Some((shard, shard.behind?)));
        match lags.max_by_key(|(_, behind)| *behind) {
            Some((shard, behind)) if behind > limits.behind => Health::Behind { shard: shard.shard.clone(), behind },
            _ => Health::Ok,
        }
    }

    fn stall(&self, limits: &HealthLimits) -> Option<Stall> {
        let failing = self.failing.iter().max_by_key(|failure| failure.lasted);
        if let Some(failure) = failing.filter(|failure| failure.lasted > limits.failing) {
            return Some(Stall::Failing { error: failure.error.clone(), lasted: failure.lasted });
        }
        let silent = self.shards.iter().filter_map(|shard| Some((shard, shard.unanswered?)));
        if let Some((shard, lasted)) = silent.max_by_key(|(_, lasted)| *lasted)
            && lasted > limits.unanswered
        {
            let error = shard.last_error.as_ref().map(|(error, _)| error.clone());
            return Some(Stall::Unanswered { shard: shard.shard.clone(), lasted, error });
        }
        let open = self.shards.iter().filter_map(|shard| Some((shard, shard.oldest.as_ref()?)));
        if let Some((shard, (number, age))) = open.max_by_key(|(_, (_, age))| *age)
            && *age > limits.unsettled
        {
            let (shard, sequence_number) = (shard.shard.clone(), number.clone());
            return Some(Stall::Unsettled { shard, sequence_number, age: *age });
        }
        (self.unowned > 0).then_some(Stall::Unowned { shards: self.unowned })
    }
}

impl fmt::Display for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ok => f.write_str("ok"),
            Self::Behind { shard, behind } => {
                write!(f, "behind: shard {shard} is {} s behind its tip", behind.as_secs())
            }
            Self::Stalled(stall) => write!(f, "stalled: {stall}"),
            Self::Denied { error, lasted } => write!(f, "denied for {} s: {error}", lasted.as_secs()),
            Self::Ended => f.write_str("ended"),
        }
    }
}

impl fmt::Display for Stall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failing { error, lasted } => write!(f, "failing for {} s: {error}", lasted.as_secs()),
            Self::Unanswered { shard, lasted, error } => {
                write!(f, "the reads of shard {shard} have had no answer for {} s", lasted.as_secs())?;
                error.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))
            }
            Self::Unsettled { shard, sequence_number, age } => {
                write!(f, "record {sequence_number} of shard {shard} has been unsettled for {} s", age.as_secs())
            }
            Self::Unowned { shards } => write!(f, "{shards} shards have no room on any instance"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::stats::{OngoingFailure, samples::stats};

    const fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn failing(lasted: u64, needs_person: bool) -> OngoingFailure {
        let error = KinesisError::ShardGone { stream: "s".into(), shard: "x".into() };
        OngoingFailure { error, lasted: seconds(lasted), needs_person }
    }

    // L8
    #[test]
    fn each_limit_decides_from_one_moment_on() {
        type Change = fn(&mut SubscriptionStats, u64);
        // What grows, the last value that is well, and the word after it.
        let table: [(Change, u64, &str); 5] = [
            (|stats, lag| stats.shards[1].behind = Some(seconds(lag)), 300, "behind"),
            (|stats, lasted| stats.shards[1].unanswered = Some(seconds(lasted)), 30, "stalled"),
            (|stats, lasted| stats.failing.push(failing(lasted, false)), 60, "stalled"),
            (|stats, age| stats.shards[0].oldest = Some(("7".into(), seconds(age))), 300, "stalled"),
            (|stats, shards| stats.unowned = shards.try_into().unwrap(), 0, "stalled"),
        ];
        for (row, (change, well, word)) in table.into_iter().enumerate() {
            for (value, expected) in [(well, "ok"), (well + 1, word)] {
                let mut stats = stats();
                change(&mut stats, value);
                assert_eq!(stats.health().as_str(), expected, "row {row}, {value}");
            }
        }
    }

    // L8
    #[test]
    fn what_most_needs_a_person_is_named_first() {
        let mut stats = stats();
        let mut seen = vec![stats.health().to_string()];
        stats.shards[1].behind = Some(seconds(400));
        seen.push(stats.health().to_string());
        stats.unowned = 2;
        seen.push(stats.health().to_string());
        stats.shards[0].oldest = Some(("7".into(), seconds(400)));
        seen.push(stats.health().to_string());
        stats.shards[0].unanswered = Some(seconds(31));
        seen.push(stats.health().to_string());
        stats.failing.push(failing(61, false));
        seen.push(stats.health().to_string());
        stats.failing.push(failing(1, true));
        seen.push(stats.health().to_string());
        stats.state = SubscriptionState::Closing;
        seen.push(stats.health().to_string());
        let gone = KinesisError::ShardGone { stream: "s".into(), shard: "x".into() };
        assert_eq!(
            seen,
            [
                "ok".to_owned(),
                "behind: shard b is 400 s behind its tip".to_owned(),
                "stalled: 2 shards have no room on any instance".to_owned(),
                "stalled: record 7 of shard a has been unsettled for 400 s".to_owned(),
                "stalled: the reads of shard a have had no answer for 31 s".to_owned(),
                format!("stalled: failing for 61 s: {gone}"),
                format!("denied for 1 s: {gone}"),
                "ended".to_owned(),
            ]
        );
    }
}
