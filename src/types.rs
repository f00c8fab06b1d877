//! The values that nearly every other folder speaks about.
//!
//! - `id`: the names that Kinesis gives, [`ShardId`](id::ShardId) and [`SequenceNumber`](id::SequenceNumber).
//! - `record`: a [`Record`](record::Record) with its [`Headers`](record::Headers), and [`Kept`](record::Kept), the part
//!   of a record that is kept for a redelivery.
//! - `commit`: what a commit achieved. `close_report`: what closing left open.
//!
//! The values have no behaviour besides access: they read no clock and do no I/O. Every folder except `util` may use
//! them. Most of them are public; the crate root re-exports those. Read `id` first.

pub(crate) mod close_report;
pub(crate) mod commit;
pub(crate) mod id;
pub(crate) mod record;
