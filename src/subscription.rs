//! What a user holds after `subscribe`: the merged stream of all shards, its adapters and its handles.
//!
//! Read in this order:
//!
//! 1. [`descriptor`]: `KinesisStream`, which stream to read and how; [`start`] turns it into a running subscription.
//! 2. [`stream`]: [`Subscription`], the merge of all shards and the hand-out of their records. [`tolerant`] hides the
//!    errors that the library handles, and [`old_records`] passes records over.
//! 3. [`batches`]: many records at a time, over [`batch_builder`] (pure) and [`batch`] (what the user gets).
//!    [`process`] settles them as a handler answers, over [`batch_parts`] and [`batch_failures`] (pure).
//! 4. [`buffer_by`]: parallel work in the order of each key, over [`key_queues`] (pure).
//! 5. [`delivery_stream_ext`]: these adapters on every stream of deliveries.
//! 6. [`chunks`]: chunks of any stream, for what a pipeline made of deliveries.
//! 7. The handles: [`close`], [`seek`], [`stats_handle`].
//!
//! Only `broker` and the crate root use this folder. Nothing here runs while the user does not poll: the tasks of a
//! subscription live in `coordination`, `reading` and `dead_letters`.

pub(crate) mod batch;
mod batch_builder;
pub(crate) mod batch_failures;
mod batch_parts;
pub(crate) mod batches;
pub(crate) mod buffer_by;
pub(crate) mod chunks;
pub(crate) mod close;
pub(crate) mod delivery_stream_ext;
pub(crate) mod descriptor;
mod key_queues;
mod old_records;
pub(crate) mod process;
pub(crate) mod seek;
pub(crate) mod start;
pub(crate) mod stats_handle;
mod stream;
mod tolerant;

pub use self::{stream::Subscription, tolerant::Tolerant};
