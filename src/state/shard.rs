//! The state of one shard, for as long as the subscription lives: who holds its lease, and which of its records were
//! read, delivered, settled and covered by a stored checkpoint.
//!
//! Read in this order:
//!
//! - `inner`: the state and its lock,
//! - `lease_term`: one holding of the lease. It decides the next store call: which checkpoint to store, renew, or
//!   release,
//! - `reading_state`: how far reading is; `store_op`: the store calls,
//! - `view`: a snapshot that answers questions,
//! - `reader_side`: the steps of the reader and its pages,
//! - `consumer_side`: the steps of the stream and its deliveries,
//! - `old_records`: what becomes of a record that is too old to be delivered,
//! - `store_side`: the steps of the coordinator, which opens and closes the shard, and of the renewer,
//! - `shards`: all shards of the subscription.
//!
//! **One lock per shard, short steps.** Every task that works on the shard changes this state in short steps under one
//! lock, and none waits while it holds the lock.
//!
//! **A ticket is a record's position within a generation,** which is one opening of the shard. A call that arrives with
//! a ticket of an earlier generation is stale and changes nothing.

mod consumer_side;
mod counts;
mod inner;
mod lease_term;
mod old_records;
mod reader_side;
mod reading_state;
mod shards;
mod store_op;
mod store_side;
mod view;

pub(crate) use crate::state::shard::{
    consumer_side::{HandOut, PendingCommit, ReturnOutcome},
    inner::{GenerationOver, Shard, ShardOpening},
    lease_term::GRAIN,
    shards::Shards,
    store_op::StoreOp,
    store_side::{InFlightOp, NextOp},
};
