//! What becomes of the shards of one that goes: who takes them, and when.

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
    /// Another one asked for it, for the fleet to be even.
    Balance,
}

impl Cause {
    /// How long it may take, by what the library promises. A request has no such time: what is in flight is waited for.
    pub(crate) fn target(self) -> Option<Duration> {
        match self {
            Self::Killed | Self::Stopped => Some(TTL + 2 * RENEW),
            Self::Closed => Some(RENEW + Duration::from_secs(1)),
            Self::Balance => None,
        }
    }
}

impl Takeover {
    /// Whether it took longer than it may.
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

/// A shard that came from one worker to another.
#[derive(Clone, Debug)]
pub(crate) struct Takeover {
    /// Which, from whom, to whom, and under which epoch.
    pub(crate) what: String,
    pub(crate) cause: Cause,
    /// Since the deed, or since the heir was there to see it.
    pub(crate) took: Option<Duration>,
    /// The machine had no time for somebody meanwhile: it is its time.
    pub(crate) stalled: bool,
    /// Records that were begun once more.
    pub(crate) again: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Takeovers {
    done: Vec<Takeover>,
    /// What was done last to each, and when.
    fates: BTreeMap<String, (Cause, Instant)>,
    /// Since when each can see what there is: since it was started, was ready, or went on.
    sees: BTreeMap<String, Instant>,
    /// When the machine last had no time for somebody, so that this process slept for too long, or a call on the table was
    /// not answered in time.
    stalled: Option<Instant>,
}

impl Takeovers {
    /// Takes note of what is done to a worker, or what goes wrong for it.
    pub(crate) fn enter(&mut self, entry: &Entry) {
        let owner = entry.text("owner").to_owned();
        let cause = match entry.event() {
            "kill" => Cause::Killed,
            "stop" => Cause::Stopped,
            "close" => Cause::Closed,
            "start" | "ready" | "continue" => {
                self.fates.remove(&owner);
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
        self.fates.insert(owner, (cause, entry.at));
    }

    /// A shard of `from` was taken. Its place in the list, unless it goes on with the one who had it.
    pub(crate) fn taken(&mut self, entry: &Entry, from: &str, before: Option<&Row>) -> Option<usize> {
        let heir = entry.text("owner");
        let fate = self.fates.get(from).copied();
        if heir == from {
            return None;
        }
        let asked = before.is_some_and(|row| row.owner.is_none() && row.wanted_by.is_some());
        let (cause, at) = match fate {
            Some((cause, at)) if cause != Cause::Closed || !asked => (cause, Some(at)),
            _ => (Cause::Balance, None),
        };
        let since = at.map(|at| self.sees.get(heir).map_or(at, |sees| at.max(*sees)));
        let took = since.map(|since| entry.at.saturating_duration_since(since));
        let stalled = since.zip(self.stalled).is_some_and(|(since, stalled)| stalled >= since);
        let what =
            format!("{} from {from} to {heir}, epoch {}", entry.text("shard"), before.map_or(0, |row| row.epoch) + 1);
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
