//! Publishing records: PutRecord for one, PutRecords for many.
//!
//! ```text
//! publish, feed ─► shared ─► accumulator: queued by key ─► ready ─► in flight ─► settled ─► completion
//!                    ▲                                       ▲          │          (caller, acker or sink)
//!                    └ room in bytes, first come             └ backoff ◄┘ a retryable failure
//! ```
//!
//! Read in this order:
//!
//! - [`record`]: the record to publish and its receipt; [`options`]: the settings of a sink; [`error`], [`stats`].
//! - [`publisher`]: the public API, `Publisher`.
//! - [`sink`]: `PublishSink`, the handle that a pipeline feeds.
//! - [`shared`]: the state that all handles of a sink share with its sender. It admits records by bytes.
//! - [`accumulator`]: the pure rules. They choose the entries of the next request and decide what each response means
//!   for each record: settle, retry, back off or split.
//! - `missing_stream`: how long a stream that the service does not find may still appear.
//! - [`sender`]: the task that makes the calls. `completion` tells the caller, the acker or the sink.
//!
//! `broker` and `prelude` use this folder. It uses `delivery` (ackers), `connection`, `budget` and `kinesis`.

pub(crate) mod accumulator;
mod completion;
pub(crate) mod error;
mod missing_stream;
pub(crate) mod options;
mod prepared;
pub(crate) mod publisher;
pub(crate) mod record;
mod sender;
mod shared;
pub(crate) mod sink;
pub(crate) mod stats;
