//! A delivered record with its payload.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    config::{
        position::KinesisPosition,
        redelivery::{RedeliveryDecision, Wish},
    },
    dead_letters::dead_letter::DeadLetter,
    delivery::{acker::Acker, lease_handle::LeaseToken},
    error::KinesisError,
    state::{
        events::Returned,
        settlement::{OutcomeWatch, RecordKey, Settlement, TrackedOutcome},
        shard::Shard,
        tracker::Ticket,
    },
    types::{
        commit::Commit,
        id::{SequenceNumber, ShardId},
        record::{Headers, Kept, Record, system_time},
    },
    util::redacted::HiddenPayload,
};

/// A delivered record, and the duty to settle it. `T` is the type of the payload: the record's bytes, or a
/// [mapped](Self::map) value.
///
/// | call | meaning |
/// |---|---|
/// | [`commit().await`](Self::commit) | done; wait until the lease store holds the checkpoint |
/// | [`ack()`](Self::ack) | done; the next checkpoint tells the store |
/// | [`nack()`](Self::nack) | not done; redeliver after a pause |
/// | [`nack_because(reason)`](Self::nack_because) | like `nack()`; a dead letter or an error states the reason |
/// | [`nack_after(pause)`](Self::nack_after) | like `nack()`, with this pause |
/// | [`reject(reason)`](Self::reject) | never to be done: a dead letter or an error, without another attempt |
/// | drop | as [`on_drop`](crate::KinesisStream::on_drop) says: by default like `nack()` |
///
/// You may settle the deliveries of a shard in any order. The shard's checkpoint moves over the longest settled run
/// from the front, so it never passes an unsettled record.
#[must_use = "dropping a delivery gives its record back for a redelivery; commit or ack it"]
pub struct Delivery<T = Bytes> {
    payload: Payload<T>,
    acker: Acker,
}

/// The payload of a delivery.
enum Payload<T> {
    /// The bytes in the acker's record, where `T` is bytes. The first clone of those bytes allocates, so the delivery
    /// clones them only on demand.
    Kept {
        view: fn(&Bytes) -> &T,
        clone: fn(&Bytes) -> T,
    },
    Mapped(T),
}

impl Payload<Bytes> {
    const KEPT: Self = Self::Kept { view: |bytes| bytes, clone: Bytes::clone };
}

impl<T> Payload<T> {
    fn view<'a>(&'a self, kept: &'a Bytes) -> &'a T {
        match self {
            Self::Kept { view, .. } => view(kept),
            Self::Mapped(payload) => payload,
        }
    }

    fn take(self, kept: &Bytes) -> T {
        match self {
            Self::Kept { clone, .. } => clone(kept),
            Self::Mapped(payload) => payload,
        }
    }
}

impl Delivery {
    pub(crate) fn new(shard: Arc<Shard>, ticket: Ticket, epoch: u64, record: Kept, attempts: u32) -> Self {
        Self { payload: Payload::KEPT, acker: Acker::new(shard, ticket, epoch, record, attempts) }
    }

    /// A redelivery of this record.
    pub(crate) fn again(shard: Arc<Shard>, epoch: u64, returned: Returned) -> Self {
        let Returned { ticket, record, attempts, settlement, .. } = returned;
        if let Some(settlement) = &settlement {
            settlement.redelivered();
        }
        let mut delivery = Self::new(shard, ticket, epoch, record, attempts.saturating_add(1));
        let delivered = &mut delivery.acker.delivered;
        (delivered.is_redelivery, delivered.settlement) = (true, settlement);
        delivery
    }
}

impl<T> Delivery<T> {
    /// The payload.
    pub fn payload(&self) -> &T {
        self.payload.view(&self.acker.delivered.record.payload)
    }

    /// The headers; empty if the producer set none.
    pub fn headers(&self) -> &Headers {
        &self.acker.delivered.record.headers
    }

    /// The partition key. `None` if the server distributes the records over the shards and the producer set no key.
    pub fn partition_key(&self) -> Option<&str> {
        self.acker.delivered.record.partition_key.as_deref()
    }

    /// The name of its stream.
    pub fn stream(&self) -> &str {
        &self.acker.delivered.shard.context.stream
    }

    /// Its shard.
    pub fn shard(&self) -> &ShardId {
        &self.acker.delivered.shard.id
    }

    /// The sequence number: the position of the record in its shard.
    pub fn sequence_number(&self) -> &SequenceNumber {
        &self.acker.delivered.record.sequence_number
    }

    /// A position that starts reading *at* this record.
    pub fn position(&self) -> KinesisPosition {
        KinesisPosition::sequence(self.shard().clone(), self.sequence_number().clone())
    }

    /// The approximate time at which Kinesis stored the record: see [`Record::arrived_at`].
    pub fn arrived_at(&self) -> Option<SystemTime> {
        system_time(self.acker.delivered.record.arrived_at?)
    }

    /// How often this process has delivered the record, this delivery included: 1 for the first one. The count lives in
    /// this process and lasts as long as the lease of the shard: after a restart, a seek or a move to another instance
    /// it starts at 1.
    pub fn attempt(&self) -> u32 {
        self.acker.delivered.attempts
    }

    /// The epoch of the lease under which the record was delivered. Every change of owner increases it. A sink that
    /// keeps the highest epoch of each shard can therefore fence an instance that has lost the shard: it rejects writes
    /// with a lower epoch.
    ///
    /// Epochs count the takes of one lease row. They begin again at 1 if the row is lost: with
    /// [`MemoryLeaseStore`](crate::MemoryLeaseStore) at every start of the process, otherwise only if a person deletes
    /// rows. Fence with a store that lasts, and delete the epochs of your sink together with the rows.
    pub fn epoch(&self) -> u64 {
        self.acker.delivered.epoch
    }

    /// The lease under which the record was delivered. Long work can ask it whether this instance still holds the
    /// shard.
    pub fn lease(&self) -> LeaseToken {
        self.acker.lease()
    }

    /// Whether both deliveries are from the same shard.
    pub(crate) fn shares_shard<U>(&self, other: &Delivery<U>) -> bool {
        Arc::ptr_eq(&self.acker.delivered.shard, &other.acker.delivered.shard)
    }

    /// Whether both deliveries are from the same generation of the same shard, so that both are valid or neither is.
    pub(crate) fn shares_generation<U>(&self, other: &Delivery<U>) -> bool {
        self.shares_shard(other) && self.acker.delivered.ticket.shares_generation(other.acker.delivered.ticket)
    }

    /// Warns, once per subscription, if its bound keeps batches of this size from filling (A5).
    pub(crate) fn check_batch_size(&self, size: usize) {
        let context = &self.acker.delivered.shard.context;
        if context.settings.max_in_flight / 2 < size {
            context.warn_of_small_bound(size);
        }
    }

    /// Settles the record and waits until the lease store holds a checkpoint that covers it, or until it is clear that
    /// no checkpoint will cover it for now: [`Commit`] says which. Concurrent commits of one shard share one write.
    ///
    /// # Errors
    ///
    /// [`KinesisError::Store`] if the lease store fails five times in a row. This takes about 1.5 seconds if the store
    /// returns errors, and half a minute if it does not respond. The record stays settled, and the library keeps
    /// retrying the write.
    ///
    /// # Cancel safety
    ///
    /// The first poll settles the record. The library then writes its checkpoint even if you drop the future. Dropping
    /// the future before its first poll drops the delivery.
    pub async fn commit(self) -> Result<Commit, KinesisError> {
        self.acker.commit().await
    }

    /// Settles the record without waiting. The next checkpoint covers it, at most
    /// [`checkpoint_interval`](crate::KinesisStream::checkpoint_interval) after this record and all records before it
    /// are settled. Needs no runtime.
    pub fn ack(self) {
        self.acker.ack();
    }

    /// Gives the record back: the library redelivers it after a pause that doubles with every attempt, from one second
    /// to one minute unless [`retry_backoff`](crate::KinesisStream::retry_backoff) says otherwise. The other records of
    /// its shard do not wait for it, so later records may arrive before it. This delivery counts as an attempt for
    /// [`max_attempts`](crate::KinesisStream::max_attempts). Needs no runtime.
    pub fn nack(self) {
        self.acker.nack();
    }

    /// Like [`nack`](Self::nack), with a reason. When the record has used up its attempts, its
    /// [dead letter](crate::KinesisStream::dead_letter) or [`KinesisError::AttemptsSpent`] states the reason of the last
    /// attempt, cut to 1,024 bytes.
    ///
    /// ```
    /// # use kinesis_stream::{Delivery, KinesisError};
    /// # async fn insert(_: &[u8]) -> Result<(), std::io::Error> { Ok(()) }
    /// async fn work(delivery: Delivery) -> Result<(), KinesisError> {
    ///     match insert(delivery.payload()).await {
    ///         Ok(()) => delivery.commit().await.map(drop),
    ///         Err(failed) => Ok(delivery.nack_because(failed)),
    ///     }
    /// }
    /// ```
    pub fn nack_because(self, reason: impl fmt::Display) {
        self.acker.nack_because(reason);
    }

    /// Like [`nack`](Self::nack), with this pause before the redelivery instead of the usual one, for example the
    /// `Retry-After` of an HTTP response. At most 24 h; a longer pause counts as 24 h. Zero redelivers at once. This
    /// delivery counts as an attempt: if it was the last one, the pause has no effect.
    ///
    /// The record holds the checkpoint of its shard until it is settled, so after a crash the records behind it are
    /// redelivered as well.
    pub fn nack_after(self, pause: Duration) {
        self.acker.nack_after(pause);
    }

    /// Gives the record up at once, because no other attempt would help: it is malformed, or its subject is unknown.
    /// This is what is called a poison record. It spends all its attempts, also if their number has no limit: the
    /// record goes to the [`dead_letter`](crate::KinesisStream::dead_letter) stream, or without one the stream yields
    /// [`KinesisError::AttemptsSpent`]. Both carry the record and the reason, cut to 1,024 bytes. Needs no runtime.
    ///
    /// The record is settled once its dead letter is written, or once the stream has yielded the error. In
    /// [`buffer_by_key`](crate::DeliveryStreamExt::buffer_by_key) its key goes on at once.
    ///
    /// Without an effect if the record was superseded: after a seek, or when its shard has moved to another instance.
    /// After the subscription began to close, the record stays unsettled and the next start delivers it again.
    ///
    /// ```
    /// # use kinesis_stream::{Delivery, KinesisError};
    /// # async fn insert(_: &str) -> Result<(), KinesisError> { Ok(()) }
    /// async fn work(delivery: Delivery) -> Result<(), KinesisError> {
    ///     match str::from_utf8(delivery.payload()) {
    ///         Ok(row) => insert(row).await?,
    ///         Err(malformed) => return Ok(delivery.reject(malformed)),
    ///     }
    ///     delivery.commit().await.map(drop)
    /// }
    /// ```
    pub fn reject(self, reason: impl fmt::Display) {
        self.acker.reject(reason);
    }

    /// Converts the payload and keeps the duty to settle. A redelivery has the original payload.
    ///
    /// ```
    /// # use kinesis_stream::Delivery;
    /// fn count(delivery: Delivery) -> Delivery<usize> {
    ///     delivery.map(|bytes| bytes.len())
    /// }
    /// ```
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Delivery<U> {
        let payload = self.payload.take(&self.acker.delivered.record.payload);
        Delivery { payload: Payload::Mapped(map(payload)), acker: self.acker }
    }

    /// Decodes the payload and keeps the duty to settle. A redelivery has the original payload.
    ///
    /// ```
    /// # use kinesis_stream::Delivery;
    /// fn decode(delivery: Delivery) -> Option<Delivery<String>> {
    ///     delivery
    ///         .try_map(|bytes| String::from_utf8(bytes.to_vec()))
    ///         .inspect_err(|failed| eprintln!("{failed}"))
    ///         .map_err(|failed| failed.delivery.ack())
    ///         .ok()
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// The error of `map`, together with the unchanged delivery.
    pub fn try_map<U, E>(self, map: impl FnOnce(&T) -> Result<U, E>) -> Result<Delivery<U>, TryMapError<T, E>> {
        match map(self.payload()) {
            Ok(payload) => Ok(Delivery { payload: Payload::Mapped(payload), acker: self.acker }),
            Err(source) => Err(TryMapError { delivery: self, source }),
        }
    }

    /// Splits the delivery into the record and the duty to settle it.
    pub fn into_parts(self) -> (Record<T>, Acker) {
        let Self { payload, acker } = self;
        let record = Record {
            payload: payload.take(&acker.delivered.record.payload),
            headers: acker.delivered.record.headers.clone(),
            partition_key: acker.delivered.record.partition_key.clone(),
            stream: Arc::clone(&acker.delivered.shard.context.stream),
            shard: acker.delivered.shard.id.clone(),
            sequence_number: acker.delivered.record.sequence_number.clone(),
            arrived_at: acker.delivered.record.arrived_at,
        };
        (record, acker)
    }

    /// The whole record, with its payload as Kinesis returned it.
    pub(crate) fn original(&self) -> Record {
        let shard = &self.acker.delivered.shard;
        self.acker.delivered.record.clone().into_record(Arc::clone(&shard.context.stream), shard.id.clone())
    }

    /// Identifies the record.
    pub(crate) fn record_key(&self) -> RecordKey {
        RecordKey { shard: Arc::as_ptr(&self.acker.delivered.shard).addr(), ticket: self.acker.delivered.ticket }
    }

    /// Whether the record was delivered before.
    pub(crate) fn is_redelivery(&self) -> bool {
        self.acker.delivered.is_redelivery
    }

    /// Gives back a record that no handler received, so that this delivery does not count as an attempt.
    pub(crate) fn put_back(mut self) {
        self.acker.put_back();
    }

    /// Whether settling the record still has an effect: the generation in which it was delivered is the current one.
    pub(crate) fn counts(&self) -> bool {
        self.acker.delivered.shard.counts(self.acker.delivered.ticket)
    }

    /// The pause before another attempt, if one is left.
    pub(crate) fn retry_pause(&self) -> Option<Duration> {
        let delivered = &self.acker.delivered;
        match delivered.shard.context.settings.retries.next(Wish::Retry, delivered.attempts) {
            RedeliveryDecision::Redeliver(pause) => Some(pause),
            RedeliveryDecision::DeadLetter | RedeliveryDecision::Error => None,
        }
    }

    /// Whether this instance would redeliver the record if it was given back now.
    pub(crate) fn may_be_redelivered(&self) -> bool {
        self.acker.delivered.shard.redelivers(self.acker.delivered.ticket)
    }

    /// Whether the record is too old for another attempt.
    pub(crate) fn is_too_old(&self, now: Instant) -> bool {
        let delivered = &self.acker.delivered;
        delivered.shard.context.too_old(delivered.record.arrived_at, now).is_some()
    }

    /// Begins the next attempt of a record that its handler has not given back.
    pub(crate) fn try_again(&mut self) {
        let delivered = &mut self.acker.delivered;
        delivered.attempts = delivered.attempts.saturating_add(1);
        delivered.is_redelivery = true;
        delivered.shard.count(|counts| {
            counts.given_back += 1;
            counts.redeliveries += 1;
        });
    }

    /// Counts a batch that begins with this record and that a handler gets.
    pub(crate) fn count_batch(&self) {
        self.acker.delivered.shard.count(|counts| counts.batches += 1);
    }

    /// Counts a batch that begins with this record and that is halved.
    pub(crate) fn count_halving(&self) {
        self.acker.delivered.shard.count(|counts| counts.halvings += 1);
    }

    /// Attaches a settlement, through which the watch learns the outcome of the record. A redelivery still has the
    /// settlement of its first delivery.
    pub(crate) fn settlement(&mut self, watch: &OutcomeWatch, queue: u64) -> Arc<TrackedOutcome> {
        let record_key = self.record_key();
        Settlement::attach(&mut self.acker.delivered.settlement, watch, queue, record_key)
    }
}

impl<T> TryFrom<&Delivery<T>> for DeadLetter {
    type Error = KinesisError;

    /// The dead letter in a delivery of a dead-letter stream.
    ///
    /// # Errors
    ///
    /// [`KinesisError::Invalid`] if the record is no dead letter.
    fn try_from(delivery: &Delivery<T>) -> Result<Self, KinesisError> {
        Self::try_from(&delivery.original())
    }
}

impl<T> From<Delivery<T>> for Acker {
    fn from(delivery: Delivery<T>) -> Self {
        delivery.acker
    }
}

impl<T: fmt::Debug> fmt::Debug for Delivery<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("payload", &HiddenPayload(self.payload())).field("acker", &self.acker).finish()
    }
}

/// The payload could not be decoded. The error holds the delivery, which you still have to settle; dropping the error
/// drops the delivery.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[error("stream {}, shard {}, sequence number {}: the payload cannot be decoded", delivery.stream(), delivery.shard(), delivery.sequence_number())]
pub struct TryMapError<T, E> {
    /// The unchanged delivery.
    pub delivery: Delivery<T>,
    /// The error of the decoder.
    pub source: E,
}

impl<T, E: fmt::Display> TryMapError<T, E> {
    /// [Rejects](Delivery::reject) the delivery, with the error of the decoder as the reason.
    ///
    /// ```
    /// # use kinesis_stream::Delivery;
    /// fn decode(delivery: Delivery) -> Option<Delivery<String>> {
    ///     delivery.try_map(|bytes| String::from_utf8(bytes.to_vec())).map_err(|malformed| malformed.reject()).ok()
    /// }
    /// ```
    pub fn reject(self) {
        self.delivery.reject(self.source);
    }
}
