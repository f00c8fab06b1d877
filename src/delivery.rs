//! Deliveries: what the stream yields, and how the user settles it.
//!
//! A delivery has two parts: the payload, which the user may map or move out, and the acker, which settles the record
//! at its shard. The code of the user sees only this folder; `subscription/` makes the deliveries, and `publishing/`
//! settles them through their ackers.
//!
//! Read in this order:
//!
//! - `record`: [`Delivery`], the record with its payload,
//! - `acker`: [`Acker`], which settles one record,
//! - `commit_all`: settling many deliveries with one checkpoint write per shard,
//! - [`lease_handle`]: whether the shard is still leased to this instance.
//!
//! **Redeliveries keep the record as Kinesis returned it.** The acker holds it, so the user can map the payload or move
//! it out. This costs one reference to the bytes.

mod acker;
mod commit_all;
pub(crate) mod lease_handle;
mod record;

pub(crate) use crate::delivery::commit_all::ack_all;
pub use crate::delivery::{
    acker::Acker,
    commit_all::commit_all,
    record::{Delivery, TryMapError},
};
