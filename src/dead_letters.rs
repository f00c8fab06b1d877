//! The task that writes spent records, those that have used up their attempts, to the dead-letter stream. It runs only
//! if a subscription sets such a stream. `subscription/` starts it; records reach it through `state/dead_letter_queue`.
//!
//! Read in this order:
//!
//! - `writer`: the task,
//! - `circuit`: how many writes may be under way, and when, after failed writes,
//! - `record`: the bytes of a dead letter.
//!
//! **Why a task writes dead letters.** A record may be given back on any thread, without a runtime, and writing its
//! dead letter must not depend on the stream being polled. The record goes through the dead-letter queue and is settled
//! after its write. So for every spent record that a checkpoint passed, at least one dead letter exists.
//!
//! **While a record is being written it counts as in flight,** which is all that closing and hand-over need in order to
//! wait for it. While it waits in the queue it does not count, like other redeliveries: if its shard leaves, the record
//! is dropped unsettled, and the next reader of the shard redelivers it.

mod circuit;
mod record;
mod writer;

pub(crate) use crate::dead_letters::writer::start;
