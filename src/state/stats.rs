//! A snapshot of a subscription for dashboards and health checks.

use std::{sync::Arc, time::Duration};

use crate::{
    config::position::Checkpoint,
    error::KinesisError,
    types::id::{SequenceNumber, ShardId},
};

#[cfg(test)]
pub(crate) mod samples;

/// A snapshot of one subscription.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SubscriptionStats {
    /// The stream.
    pub stream: Arc<str>,
    /// The consumer.
    pub consumer: Arc<str>,
    /// This instance: the owner in its lease rows.
    pub owner: Arc<str>,
    /// Whether it runs.
    pub state: SubscriptionState,
    /// The bytes of the pages that are read and not completely delivered, with 192 bytes for each record besides its
    /// data and its partition key.
    /// [`max_buffered_bytes`](crate::KinesisStream::max_buffered_bytes) bounds these together with the reads under way.
    pub bytes_held: usize,
    /// Shards whose leases other instances held when the subscription started, and which may still become free.
    pub awaited: usize,
    /// Shards that are ready to be read and unowned, because this instance is at its
    /// [`max_leases`](crate::KinesisStream::max_leases). No instance reads them until one takes them.
    pub unowned: usize,
    /// How often leases changed hands.
    pub leases: LeaseCounts,
    /// Work that fails, and for how long: reading or writing leases, listing shards, writing dead letters. Reading
    /// shards is in it if only a person can end the failure, for example a missing permission. Empty while all is well.
    pub failing: Vec<OngoingFailure>,
    /// How many errors of each class there were, also those that [`tolerant`](crate::Subscription::tolerant) hides and
    /// those that nobody has taken from the stream. Watch [`loss`](ErrorCounts::loss).
    pub errors: ErrorCounts,
    /// The last error of class [`Loss`](crate::ErrorClass::Loss), and the time since then.
    pub last_loss: Option<(KinesisError, Duration)>,
    /// The shards that this subscription holds, has held, or would take if they were free, ordered by id.
    pub shards: Vec<ShardStats>,
}

/// Whether a subscription runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SubscriptionState {
    /// It holds leases, and reads or waits for shards.
    Running,
    /// It no longer reads. Deliveries in flight may be settled.
    Closing,
    /// It is over: its leases are released.
    Ended,
}

/// How often this subscription took, gave and lost leases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseCounts {
    /// Takes.
    pub taken: u64,
    /// Leases handed over to instances that asked for them.
    pub handed_over: u64,
    /// Leases that other instances took without a hand-over, because they had expired.
    pub lost: u64,
}

/// Errors by their [`class`](crate::KinesisError::class).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ErrorCounts {
    /// The library handles them.
    pub transient: u64,
    /// Records were skipped, because the service no longer keeps them.
    pub loss: u64,
    /// Only a person can end a failure. Counted once per [`patience`](crate::KinesisStream::patience).
    pub lasting: u64,
    /// A record is not delivered: aggregated, or its attempts are spent and no dead-letter stream is set.
    pub record: u64,
    /// The subscription ended. At most one.
    pub fatal: u64,
}

/// Work of a subscription that fails. The library keeps trying.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OngoingFailure {
    /// The last failure.
    pub error: KinesisError,
    /// The time since the first one. No call of this kind has succeeded since.
    pub lasted: Duration,
    /// Whether a failure since then was one that only a person can end: a missing permission, table or key.
    pub needs_person: bool,
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
    /// How far reading is behind the tip of the shard: what the last response said
    /// ([`MillisBehindLatest`](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetRecords.html)), and the
    /// time since that response if it is older than two [`poll_interval`](crate::KinesisStream::poll_interval)s. So it
    /// grows while reads fail, hang or are throttled, and while the consumer is too slow to read on. None if this
    /// instance does not hold the shard, or the service did not say.
    pub behind: Option<Duration>,
    /// The time since the last response of a read, also one without records. None before the first one.
    pub last_read: Option<Duration>,
    /// The time since the first call of the reader that no response followed. None if the last call was answered. The
    /// time of one call is normal. More than 30 s means that calls are throttled, hang or fail.
    pub unanswered: Option<Duration>,
    /// Bytes of this shard that are read and not delivered. A page counts in full until its last record is delivered.
    pub bytes_held: usize,
    /// Unsettled records: delivered, waiting for a redelivery, or waiting to be written to the dead-letter stream.
    pub in_flight: usize,
    /// The oldest of them, and the time since its first delivery.
    pub oldest: Option<(SequenceNumber, Duration)>,
    /// The checkpoint in the lease row, and the time since it was stored or read.
    pub checkpoint: Option<(Checkpoint, Duration)>,
    /// Records that were read. Redeliveries do not count again; what is read again after an expired lease, a seek or a
    /// restart does.
    pub records: u64,
    /// The bytes of these records: data and partition keys, as the service counts them.
    pub bytes: u64,
    /// Deliveries that were acknowledged: by `commit`, `ack`, or by a drop if
    /// [`ack_on_drop`](crate::KinesisStream::ack_on_drop) is set.
    pub acked: u64,
    /// Deliveries that were given back: by a nack or a drop.
    pub given_back: u64,
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
    /// that are not written to the dead-letter stream yet, those that were rejected, and those that go to the
    /// dead-letter stream because they are [too old](crate::KinesisStream::max_age).
    pub spent: u64,
    /// How many of these were [rejected](crate::Delivery::reject).
    pub rejected: u64,
    /// How many spent records were written to the dead-letter stream.
    pub dead_letters: u64,
    /// Records that were older than [`max_age`](crate::KinesisStream::max_age) and were not delivered: passed over, or
    /// given to the dead-letter stream. They count here and not in `acked`.
    pub too_old: u64,
    /// Batches that [`process`](crate::Batches::process) gave to its handler; halves of a batch do not count again.
    pub batches: u64,
    /// How often such a batch, or a part of it, was halved because the handler returned an error for all of it.
    pub halvings: u64,
    /// The last error that was reported for this shard, and the time since then.
    pub last_error: Option<(KinesisError, Duration)>,
}
