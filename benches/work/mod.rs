//! The work that `parts` times and `instructions` counts, each piece separate from its set-up.
//!
//! Kinesis answers in this process, without sockets and from prepared pages, and everything runs in one thread. The
//! tokio clock is paused: it advances only while every task waits, so a run does not depend on its speed.

pub(crate) mod envelope;
pub(crate) mod keys;
pub(crate) mod reading;
pub(crate) mod settling;
pub(crate) mod setup;
