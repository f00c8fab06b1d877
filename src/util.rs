//! Small tools that know nothing about Kinesis.
//!
//! - `clock`: wall time. Every other part measures time with tokio's monotonic clock.
//! - `cut`: shortens texts that come from outside.
//! - `mutex`: how this crate locks a mutex.
//! - `timer`: a timer for hand-written streams.
//! - `watched`: a shared value to wait for, with waiters that are woken first in, first out.
//!
//! This is the lowest folder: it imports nothing from this crate, and every folder may use it. The files do not depend
//! on each other, except that `watched` locks with `mutex`.

pub(crate) mod atomics;
pub(crate) mod backoff;
pub(crate) mod circuit;
pub(crate) mod clock;
pub(crate) mod cut;
pub(crate) mod mutex;
pub(crate) mod timer;
pub(crate) mod watched;
