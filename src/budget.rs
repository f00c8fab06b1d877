//! How many bytes a subscription may hold, and which read may start (rule A5 in `docs/semantics.md`).
//!
//! - `admission`: the [`Budget`] that the shards of one subscription share, and the [`Grant`] that stands for one read
//!   and then for its page.
//! - `estimate`: the [`Forecast`] of how many bytes a read may bring, a pure value.
//!
//! A subscription uses it to limit the memory of pages that were read and not delivered yet. A publishing sink uses it
//! to limit the records that it accepted: a record waits for room, and keeps it until it is settled. Both pass their
//! limit to [`Budget::new`]. Read `admission` first.
//!
//! **Held bytes are bytes that are not delivered yet,** counted by whole pages. `max_in_flight` bounds the deliveries
//! in the user's hands, and their memory belongs to the user. Each record counts with its data, its partition key and
//! [`RECORD_OVERHEAD`], so that a page of empty records has a size, too.

mod admission;
mod estimate;

/// What a held record takes besides its data and its partition key, in bytes: the value and the allocations of its
/// sequence number and its key.
pub(crate) const RECORD_OVERHEAD: usize = 192;

pub(crate) use self::{
    admission::{Budget, Grant},
    estimate::Forecast,
};
