//! What the tasks of one subscription share. The tasks live in the folders above: `coordination/`, `reading/`,
//! `dead_letters/` and `subscription/`, and the ackers in `delivery/`. They meet only here.
//!
//! Read in this order:
//!
//! - [`context`]: the state that all tasks of one subscription share, with [`lifecycle`] and [`wakeups`],
//! - [`shard`]: the state of one shard, behind one lock,
//! - [`tracker`]: which deliveries of a shard are settled, and how far its checkpoint may move (the watermark),
//! - [`page`]: the records of one read,
//! - [`events`] and [`dead_letter_queue`]: what goes back to the stream and to the dead-letter writer,
//! - [`shard_queue`]: the queue of both, from which one shard's records can be dropped,
//! - [`failures`]: what fails and since when, and what was lost,
//! - [`read_health`]: whether this instance can read,
//! - [`settlement`]: how `buffer_by_key` learns the outcome of a record,
//! - [`service_clock`]: what time the service shows,
//! - [`retention`]: how long the stream keeps records,
//! - [`warnings`]: one log line for a cause that many shards have,
//! - [`stats`], [`snapshot`] and [`health`]: the public snapshot, and one word on it.

pub(crate) mod context;
pub(crate) mod dead_letter_queue;
pub(crate) mod events;
pub(crate) mod failures;
pub(crate) mod health;
#[cfg(all(test, shuttle))]
mod interleavings;
pub(crate) mod lease_reads;
pub(crate) mod lifecycle;
pub(crate) mod page;
pub(crate) mod read_health;
pub(crate) mod retention;
pub(crate) mod service_clock;
pub(crate) mod settlement;
pub(crate) mod shard;
pub(crate) mod shard_queue;
pub(crate) mod snapshot;
pub(crate) mod stats;
pub(crate) mod tracker;
pub(crate) mod wakeups;
pub(crate) mod warnings;
