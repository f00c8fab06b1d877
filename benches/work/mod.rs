//! The work that `parts` times and `instructions` counts, each piece apart from its set-up.
//!
//! Kinesis answers in this process, without sockets and from pages that are made beforehand, and everything runs in one
//! thread. The clock of tokio is paused: it moves only while all wait for it, so a run does not depend on how fast it is.

pub(crate) mod envelope;
pub(crate) mod ground;
pub(crate) mod keys;
pub(crate) mod reading;
pub(crate) mod settling;
