//! The coordinator: the task that lists the shards, asks [`lineage`](super::lineage) which are ready, takes their
//! leases and hands their readers to the subscription.
//!
//! **No leader and no messages.** Instances see each other only in the lease rows, which each instance reads once per
//! renewal interval.
//!
//! **Each part decides from the store, not from memory.** Whether a shard is ready, waits for its parents, is done or
//! is passed over follows from the listing and the lease rows as they are.
//!
//! **When the subscription's tasks end, the subscription ends.** If a lease store panics or the runtime shuts down, the
//! stream yields a fatal error and nobody is left waiting.
//!
//! [`task`] is the task and its pass over the leases; read it first. It calls the others in this order:
//!
//! - [`listing`]: which shards the stream has.
//! - [`ownership`]: which rows under this owner id are this instance's own.
//! - [`opening`]: the shards with which the subscription opens.
//! - [`removed`]: shards and rows that no longer belong to the stream.
//! - [`rebalance`]: handing over requested shards, and requesting shards from others.
//! - [`candidates`]: which leases to take now.
//! - [`take`]: taking one lease and starting its reader.
//! - [`unconfirmed`]: takes without a response.
//! - [`seek`]: moving running shards to another position.
//! - [`at_tip`]: whether everything was read.

mod at_tip;
mod candidates;
mod listing;
mod opening;
mod ownership;
mod rebalance;
mod removed;
mod seek;
mod take;
mod task;
mod unconfirmed;

pub(crate) use self::{
    seek::Seek,
    task::{Beginning, start},
};
