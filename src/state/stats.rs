//! A snapshot of a subscription for dashboards and health checks.

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
    /// The bytes of the pages that are read and not completely delivered.
    /// [`max_buffered_bytes`](crate::KinesisStream::max_buffered_bytes) bounds these together with the reads under way.
    pub bytes_held: usize,
    /// Shards whose leases other instances held when the subscription started, and which may still become free.
    pub awaited: usize,
    /// Shards that are ready to be read and unowned, because this instance is at its
    /// [`max_leases`](crate::KinesisStream::max_leases). No instance reads them until one takes them.
    pub unowned: usize,
    /// Work that fails, and for how long: reading or writing leases, listing shards, writing dead letters. Reading
    /// shards is in it if only a person can end the failure, for example a missing permission. Empty while all is well.
    pub failing: Vec<OngoingFailure>,
    /// How many errors of class [`Loss`](crate::ErrorClass::Loss) there were: each means records that were skipped,
    /// because the service no longer keeps them.
    pub losses: u64,
    /// The last of them, and the time since then.
    pub last_loss: Option<(KinesisError, Duration)>,
    /// The shards that this subscription holds, has held, or would take if they were free, ordered by id.
    pub shards: Vec<ShardStats>,
}

/// Work of a subscription that fails. The library keeps trying.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OngoingFailure {
    /// The last failure.
    pub error: KinesisError,
    /// The time since the first one. No call of this kind has succeeded since.
    pub lasted: Duration,
}

/// The state of a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShardState {
    /// Being read.
    Reading,
    /// Read up to its tip, where [`stop_at_tip`](crate::KinesisStream::stop_at_tip) ends it.
    AtTip,
    /// Read to its end, but some deliveries are unsettled, or `SHARD_END` is not stored yet.
    Ending,
    /// No longer read; deliveries in flight may still be settled.
    Draining,
    /// Read to its end, settled and stored.
    Ended,
    /// Held by another instance, according to the last read of the leases.
    Elsewhere,
    /// Held by no instance.
    Released,
}

/// A snapshot of one shard.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ShardStats {
    /// The shard.
    pub shard: ShardId,
    /// Its state.
    pub state: ShardState,
    /// The instance that holds it: this one, or another one according to the last read of the leases, which is at most
    /// one [`renew_interval`](crate::KinesisStream::renew_interval) old.
    pub owner: Option<Arc<str>>,
    /// The epoch of that lease.
    pub epoch: Option<u64>,
    /// How far the last response was behind the tip of the shard
    /// ([`MillisBehindLatest`](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetRecords.html)).
    pub behind: Option<Duration>,
    /// Bytes of this shard that are read and not delivered. A page counts in full until its last record is delivered.
    pub bytes_held: usize,
    /// Unsettled records: delivered, waiting for a redelivery, or waiting to be written to the dead-letter stream.
    pub in_flight: usize,
    /// The oldest of them, and the time since its first delivery.
    pub oldest: Option<(SequenceNumber, Duration)>,
    /// The checkpoint in the lease row, and the time since it was stored or read.
    pub checkpoint: Option<(Checkpoint, Duration)>,
    /// Successful reads.
    pub reads: u64,
    /// Calls that the service throttled.
    pub throttles: u64,
    /// Reads whose shard iterator had expired. A few are normal after a pause of a slow consumer. Many mean that
    /// responses come later than an iterator lives.
    pub expired_iterators: u64,
    /// Redeliveries.
    pub redeliveries: u64,
    /// Records that used up their attempts: see [`max_attempts`](crate::KinesisStream::max_attempts). Includes those
    /// that are not written to the dead-letter stream yet, and those that were rejected.
    pub spent: u64,
    /// How many of these were [rejected](crate::Delivery::reject).
    pub rejected: u64,
    /// How many spent records were written to the dead-letter stream.
    pub dead_letters: u64,
    /// The last error that was reported for this shard.
    pub last_error: Option<KinesisError>,
}
