//! The task that writes spent records, those that have used up their attempts, to the dead-letter stream. It runs only
//! if a subscription sets such a stream. `subscription/` starts it; records reach it through `state/dead_letter_queue`.
//!
//! Read in this order:
//!
//! - `writer`: the task,
//! - `circuit`: the circuit breaker, which limits the writes after failures,
//! - `record`: the bytes of a dead letter.
//!
//! **Why a task writes dead letters.** A record may be given back on any thread, without a runtime, and writing its
//! dead letter must not depend on the stream being polled. The record goes through the dead-letter queue and is settled
//! after its write. So a checkpoint passes a spent record only after its dead letter is stored.
//!
//! **A record that is being written counts as in flight,** so closing and hand-over wait for it. A record in the queue
//! does not count: if the lease goes first, the record is dropped unsettled, and the next reader redelivers it.

mod circuit;
mod record;
mod writer;

pub(crate) use crate::dead_letters::writer::start;
