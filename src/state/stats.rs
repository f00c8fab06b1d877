//! How a subscription is doing: a snapshot for dashboards and health checks.

use std::{sync::Arc, time::Duration};

use crate::{
    config::position::Checkpoint,
    error::KinesisError,
    types::id::{SequenceNumber, ShardId},
};

/// A snapshot of one subscription.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SubscriptionStats {
    /// The stream.
    pub stream: Arc<str>,
    /// The bytes of pages that were read and not yet handed out to their last record: what
    /// [`max_buffered_bytes`](crate::KinesisStream::max_buffered_bytes) bounds, together with the reads under way.
    pub bytes_held: usize,
    /// Shards of the opening whose leases were held by others and which may still turn out to be free.
    pub awaited: usize,
    /// Shards that are ready to be read and that nobody holds, because this instance is at its
    /// [`max_leases`](crate::KinesisStream::max_leases). Those that stay so are not read.
    pub unowned: usize,
    /// The shards that this subscription holds, has held, or would take if they were free, by id.
    pub shards: Vec<ShardStats>,
}

/// What a shard is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShardState {
    /// Being read.
    Reading,
    /// Read up to its tip, where [`stop_at_tip`](crate::KinesisStream::stop_at_tip) ends it.
    AtTip,
    /// Read to its end; some deliveries are unsettled, or `SHARD_END` is not stored yet.
    Ending,
    /// No longer read; what is in flight may still be settled.
    Draining,
    /// Read to its end, settled and stored.
    Ended,
    /// Held by another instance, by the last look at the leases.
    Elsewhere,
    /// Held by nobody at the moment.
    Released,
}

/// A snapshot of one shard.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShardStats {
    /// The shard.
    pub shard: ShardId,
    /// What it is doing.
    pub state: ShardState,
    /// Who holds it: this instance, or another one by the last look at the leases, which is at most a
    /// [`renew_interval`](crate::KinesisStream::renew_interval) ago.
    pub owner: Option<Arc<str>>,
    /// The epoch of that lease.
    pub epoch: Option<u64>,
    /// How far the last answer was behind the tip of the shard
    /// ([`MillisBehindLatest`](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetRecords.html)).
    pub behind: Option<Duration>,
    /// Bytes of this shard that were read and not yet handed out. A page counts whole until its last record went out.
    pub bytes_held: usize,
    /// Deliveries that are out, wait to be delivered again, or wait to be written to the dead-letter stream.
    pub in_flight: usize,
    /// The oldest of them and the time since it was delivered first.
    pub oldest: Option<(SequenceNumber, Duration)>,
    /// What the lease row holds, and the time since it was stored or read.
    pub checkpoint: Option<(Checkpoint, Duration)>,
    /// Answered reads.
    pub reads: u64,
    /// Calls that the service throttled.
    pub throttles: u64,
    /// Records that were delivered once more.
    pub redeliveries: u64,
    /// Records whose attempts were spent: see [`max_attempts`](crate::KinesisStream::max_attempts). Also those that were not
    /// written to the dead-letter stream yet.
    pub spent: u64,
    /// Of these, the ones that were written to the dead-letter stream.
    pub dead_letters: u64,
    /// The last error that was reported for this shard.
    pub last_error: Option<KinesisError>,
}
