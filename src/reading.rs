//! Reading one shard: the loop over GetRecords. `coordination/` starts a reader when it has taken a lease; its pages go
//! to `subscription/`.
//!
//! Read in this order:
//!
//! - [`reader`]: the loop. It reads pages, and fetches a new iterator when the old one has expired. Its child
//!   `failures` handles failed calls: throttled, iterator expired, checkpoint refused,
//! - [`read_ahead`]: the reader as a stream of pages, one page ahead of the user,
//! - [`pacing`]: when the next read may be sent,
//! - [`giving_up`]: whether a reader whose calls fail continues or gives up,
//! - [`slow_reads`]: whether the shard lags because its reads ask for few records,
//! - [`refused_position`]: whether the service does not accept a checkpoint,
//! - [`stuck_iterator`]: detects a checkpoint older than the retention, whose iterator never finds records.

pub(crate) mod giving_up;
pub(crate) mod pacing;
pub(crate) mod read_ahead;
pub(crate) mod reader;
pub(crate) mod refused_position;
pub(crate) mod slow_reads;
pub(crate) mod stuck_iterator;
