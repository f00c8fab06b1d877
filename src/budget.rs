//! How many bytes a subscription may hold, and which read may start (A5).
//!
//! - `admission`: the [`Budget`] that the shards of one subscription share, and the [`Grant`] that stands for one read
//!   and then for its page.
//! - `estimate`: the [`Forecast`] of how many bytes a read may bring, a pure value.
//!
//! A subscription bounds with it the pages that it has read and not delivered. A sink bounds with it the records that
//! it has accepted: a record waits for admission like a read, and is held like a page until it is settled. Both pass
//! their limit to [`Budget::new`]. Read `admission` first.
//!
//! **Held bytes are bytes that are not delivered yet,** counted by whole pages. `max_in_flight` bounds the deliveries
//! in the user's hands, and their memory belongs to the user.

mod admission;
mod estimate;

pub(crate) use self::{
    admission::{Budget, Grant},
    estimate::Forecast,
};
