//! What the archive has to tell of an event. Where the consumer is a process of its own, each is a line of its output.

use std::{fmt, str::FromStr};

/// See the module. The text is the id of the event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// The subscription is there.
    Ready,
    /// It is in the file, once more perhaps.
    Written(String),
    /// It is settled, and covered by a stored checkpoint.
    Stored(String),
    /// It is settled, behind one that is still open.
    Deferred(String),
    /// It was settled too late, and comes again.
    Returned(String),
}

impl fmt::Display for News {
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

impl FromStr for News {
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
