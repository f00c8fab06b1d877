//! Small tools that know nothing about Kinesis.
//!
//! - `atomics`: the atomics that the interleaving tests replace.
//! - `backoff`: pauses that double.
//! - `circuit`: a circuit breaker, which lets fewer calls through after failures.
//! - `clock`: wall time. Every other part measures time with tokio's monotonic clock.
//! - `cut`: shortens texts that come from outside.
//! - `mutex`: how this crate locks a mutex.
//! - `redacted`: what `Debug` shows of payloads and keys.
//! - `timer`: a timer for hand-written streams.
//! - `watched`: a shared value. Tasks can wait for a change; the first to wait wakes first.
//!
//! This is the lowest folder: it imports nothing from this crate, and every folder may use it. The files do not depend
//! on each other, except that `watched` locks with `mutex`.

pub(crate) mod atomics;
pub(crate) mod backoff;
pub(crate) mod circuit;
pub(crate) mod clock;
pub(crate) mod cut;
pub(crate) mod mutex;
pub(crate) mod redacted;
pub(crate) mod timer;
pub(crate) mod watched;
