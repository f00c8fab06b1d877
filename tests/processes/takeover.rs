//! Takeovers: which worker takes the shards of a worker that ended, and when.

use std::{collections::BTreeMap, fmt};

use tokio::time::{Duration, Instant};

use crate::{
    fleet::{RENEW, TTL},
    history::Entry,
    row::Row,
};

/// Why a shard moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Cause {
    Killed,
    Stopped,
    Closed,
    /// Another worker requested it to balance the fleet.
    Balance,
}

impl Cause {
    /// The time limit that the library promises. A request has none: the holder waits for deliveries in flight.
    pub(crate) fn target(self) -> Option<Duration> {
        match self {
            Self::Killed | Self::Stopped => Some(TTL + 2 * RENEW),
            Self::Closed => Some(RENEW + Duration::from_secs(1)),
            Self::Balance => None,
        }
    }
}

impl Takeover {
    /// Whether it took longer than the target.
    pub(crate) fn is_late(&self) -> bool {
        self.took > self.cause.target()
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Killed => "SIGKILL",
            Self::Stopped => "SIGSTOP",
            Self::Closed => "SIGTERM",
            Self::Balance => "balance",
        })
    }
}

/// A shard that moved from one worker to another.
#[derive(Clone, Debug)]
pub(crate) struct Takeover {
    /// The shard, the two workers and the epoch.
    pub(crate) what: String,
    pub(crate) cause: Cause,
    /// The time since the action, or since the new owner was able to see it.
    pub(crate) took: Option<Duration>,
    /// Whether the machine stalled meanwhile, so that the time says nothing about the library.
    pub(crate) stalled: bool,
    /// How many records were redelivered.
    pub(crate) again: usize,
}

/// Collects the takeovers of a history.
#[derive(Debug, Default)]
pub(crate) struct Takeovers {
    done: Vec<Takeover>,
    /// The last action that ended or stopped each worker, and when.
    last_actions: BTreeMap<String, (Cause, Instant)>,
    /// Since when each worker is able to see the table: since it started, became ready, or continued.
    sees: BTreeMap<String, Instant>,
    /// The last stall of the machine: this process slept too long, or a call on the table timed out.
    stalled: Option<Instant>,
}

impl Takeovers {
    /// Notes an action on a worker, or an error of a worker.
    pub(crate) fn enter(&mut self, entry: &Entry) {
        let owner = entry.text("owner").to_owned();
        let cause = match entry.event() {
            "kill" => Cause::Killed,
            "stop" => Cause::Stopped,
            "close" => Cause::Closed,
            "start" | "ready" | "continue" => {
                self.last_actions.remove(&owner);
                self.sees.insert(owner, entry.at);
                return;
            }
            "stall" => {
                self.stalled = Some(entry.at);
                return;
            }
            "error" if entry.text("error").contains("no answer within") => {
                self.stalled = Some(entry.at);
                return;
            }
            _ => return,
        };
        self.last_actions.insert(owner, (cause, entry.at));
    }

    /// Adds the takeover of a shard of `from`. Returns its index, or `None` if the same worker took the shard back.
    pub(crate) fn taken(&mut self, entry: &Entry, from: &str, before: Option<&Row>) -> Option<usize> {
        let new_owner = entry.text("owner");
        let last_action = self.last_actions.get(from).copied();
        if new_owner == from {
            return None;
        }
        let asked = before.is_some_and(|row| row.owner.is_none() && row.wanted_by.is_some());
        let (cause, at) = match last_action {
            Some((cause, at)) if cause != Cause::Closed || !asked => (cause, Some(at)),
            _ => (Cause::Balance, None),
        };
        let since = at.map(|at| self.sees.get(new_owner).map_or(at, |sees| at.max(*sees)));
        let took = since.map(|since| entry.at.saturating_duration_since(since));
        let stalled = since.zip(self.stalled).is_some_and(|(since, stalled)| stalled >= since);
        let what = format!(
            "{} from {from} to {new_owner}, epoch {}",
            entry.text("shard"),
            before.map_or(0, |row| row.epoch) + 1
        );
        self.done.push(Takeover { what, cause, took, stalled, again: 0 });
        Some(self.done.len() - 1)
    }

    pub(crate) fn again(&mut self, takeover: usize) {
        self.done[takeover].again += 1;
    }

    pub(crate) fn done(self) -> Vec<Takeover> {
        self.done
    }
}
