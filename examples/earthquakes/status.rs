//! What the archive reports about an event. A consumer in a child process prints one status a line.

use std::{fmt, str::FromStr};

/// The status of an event. The text is the id of the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// The consumer has subscribed.
    Ready,
    /// The event was written to the file, perhaps not for the first time.
    Written(String),
    /// It is settled, and a stored checkpoint covers it.
    Stored(String),
    /// It is settled, but an earlier record of its shard is still open.
    Deferred(String),
    /// It was settled too late, and will be redelivered.
    Returned(String),
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ready => f.write_str("ready"),
            Self::Written(id) => write!(f, "written {id}"),
            Self::Stored(id) => write!(f, "stored {id}"),
            Self::Deferred(id) => write!(f, "deferred {id}"),
            Self::Returned(id) => write!(f, "returned {id}"),
        }
    }
}

impl FromStr for Status {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        match line.split_once(' ') {
            None if line == "ready" => Ok(Self::Ready),
            Some(("written", id)) => Ok(Self::Written(id.to_owned())),
            Some(("stored", id)) => Ok(Self::Stored(id.to_owned())),
            Some(("deferred", id)) => Ok(Self::Deferred(id.to_owned())),
            Some(("returned", id)) => Ok(Self::Returned(id.to_owned())),
            _ => Err(line.to_owned()),
        }
    }
}
