//! A record in the user's hands, and the ways to settle it.

use std::{fmt, sync::Arc, thread, time::SystemTime};

use bytes::Bytes;

use crate::{
    config::{
        position::KinesisPosition,
        redelivery::{Next, Reason},
        settings::OnDrop,
    },
    delivery::lease_handle::LeaseToken,
    error::KinesisError,
    state::{
        events::Returned,
        settlement::{RecordKey, Settlement, SettlementState, Watch},
        shard::{Back, Shard},
        tracker::Ticket,
    },
    types::{
        commit::Commit,
        id::{SequenceNumber, ShardId},
        record::{Headers, Kept, Record, system_time},
    },
};

mod commit_all;
pub(crate) mod lease_handle;

pub(crate) use crate::delivery::commit_all::ack_all;
pub use crate::delivery::commit_all::commit_all;

/// A record that was delivered, and the duty to settle it. `T` is the payload: its bytes, or what they were
/// [mapped](Self::map) to.
///
/// | call | means |
/// |---|---|
/// | [`commit().await`](Self::commit) | it is done; come back when the lease store knows it |
/// | [`ack()`](Self::ack) | it is done; the next checkpoint tells the store |
/// | [`nack()`](Self::nack) | it is not done; deliver it again after a pause |
/// | [`nack_because(reason)`](Self::nack_because) | as `nack()`; the reason goes along if it is given up |
/// | drop | as [`on_drop`](crate::KinesisStream::on_drop) says: by default as `nack()` |
///
/// Deliveries of a shard may be settled in any order; its checkpoint moves over the longest settled run from the
/// front, so nothing unsettled is ever passed.
#[must_use = "a delivery that is dropped comes again; commit or ack it"]
pub struct Delivery<T = Bytes> {
    payload: Payload<T>,
    acker: Acker,
}

/// The payload of a delivery.
enum Payload<T> {
    /// The bytes that the acker keeps, where `T` is bytes. The first clone of those allocates, so there is none before
    /// it is needed.
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

/// The duty to settle one delivery, apart from its payload: what [`Delivery::into_parts`] leaves. Dropping it means
/// what dropping the delivery means.
#[must_use = "an acker that is dropped gives its record back; commit or ack it"]
pub struct Acker {
    open: Box<Open>,
}

/// A record in somebody's hands, and what it takes to settle it. It is boxed, since a delivery moves at every step of a pipeline.
struct Open {
    shard: Arc<Shard>,
    ticket: Ticket,
    epoch: u64,
    attempts: u32,
    /// It was handed out before, whether or not anyone began to work on it.
    again: bool,
    /// Kept as it came, to be delivered again.
    record: Kept,
    settled: bool,
    /// Tells those who want to know what becomes of the record.
    settlement: Option<Settlement>,
}

impl Delivery {
    pub(crate) fn new(shard: Arc<Shard>, ticket: Ticket, epoch: u64, record: Kept, attempts: u32) -> Self {
        let open = Open { shard, ticket, epoch, attempts, again: false, record, settled: false, settlement: None };
        let acker = Acker { open: Box::new(open) };
        Self { payload: Payload::KEPT, acker }
    }

    /// A record that goes out once more.
    pub(crate) fn again(shard: Arc<Shard>, epoch: u64, returned: Returned) -> Self {
        let Returned { ticket, record, attempts, settlement, .. } = returned;
        if let Some(settlement) = &settlement {
            settlement.again();
        }
        let mut delivery = Self::new(shard, ticket, epoch, record, attempts.saturating_add(1));
        (delivery.acker.open.again, delivery.acker.open.settlement) = (true, settlement);
        delivery
    }
}

impl<T> Delivery<T> {
    /// The payload.
    pub fn payload(&self) -> &T {
        self.payload.view(&self.acker.open.record.payload)
    }

    /// The headers; empty where the producer set none.
    pub fn headers(&self) -> &Headers {
        &self.acker.open.record.headers
    }

    /// The partition key. None where the stream distributes records by itself and the producer named no key.
    pub fn partition_key(&self) -> Option<&str> {
        self.acker.open.record.partition_key.as_deref()
    }

    /// The name of the stream.
    pub fn stream(&self) -> &str {
        &self.acker.open.shard.context.stream
    }

    /// The shard.
    pub fn shard(&self) -> &ShardId {
        &self.acker.open.shard.id
    }

    /// The place of the record in its shard.
    pub fn sequence_number(&self) -> &SequenceNumber {
        &self.acker.open.record.sequence_number
    }

    /// The record as a position: where to start reading *at* it.
    pub fn position(&self) -> KinesisPosition {
        KinesisPosition::sequence(self.shard().clone(), self.sequence_number().clone())
    }

    /// When the service took the record, roughly: see [`Record::arrived_at`].
    pub fn arrived_at(&self) -> Option<SystemTime> {
        system_time(self.acker.open.record.arrived_at?)
    }

    /// How often this process delivered the record, this time included: 1 the first time. The count lives in this process
    /// and with the lease of the shard: after a restart or a seek, or with another instance, it begins at 1 again.
    pub fn attempt(&self) -> u32 {
        self.acker.open.attempts
    }

    /// The epoch of the lease under which it was delivered. It grows with every change of owner, so a sink that keeps
    /// the highest epoch it saw for a shard can refuse the writes of an instance that was overtaken.
    pub fn epoch(&self) -> u64 {
        self.acker.open.epoch
    }

    /// The lease under which it was delivered, to ask in the middle of long work whether the shard is still held here.
    pub fn lease(&self) -> LeaseToken {
        self.acker.lease()
    }

    /// Whether the other one is of the same shard.
    pub(crate) fn shares_shard<U>(&self, other: &Delivery<U>) -> bool {
        Arc::ptr_eq(&self.acker.open.shard, &other.acker.open.shard)
    }

    /// Whether the other one is of the same shard and the same opening of it, so that both count or neither does.
    pub(crate) fn shares_opening<U>(&self, other: &Delivery<U>) -> bool {
        self.shares_shard(other) && self.acker.open.ticket.shares_opening(other.acker.open.ticket)
    }

    /// Settles the record and waits until the lease store holds a checkpoint that covers it, or until it is clear that
    /// it will not be now: [`Commit`] says which. Commits of one shard that wait at the same time share one write.
    ///
    /// # Errors
    ///
    /// [`KinesisError::Store`] if the lease store failed five times in a row: about a second and a half if it answers with
    /// errors, half a minute if it does not answer.
    /// The record stays settled, and writing goes on.
    ///
    /// # Cancel safety
    ///
    /// Once it was polled, the record is settled and its checkpoint will be written, whether or not the future is
    /// polled to its end. A future that was never polled drops the delivery.
    pub async fn commit(self) -> Result<Commit, KinesisError> {
        self.acker.commit().await
    }

    /// Settles the record without waiting. The store learns of it with the next checkpoint, at most
    /// [`checkpoint_interval`](crate::KinesisStream::checkpoint_interval) after it and all before it are settled. Needs no runtime.
    pub fn ack(mut self) {
        self.acker.settle();
    }

    /// Gives the record back: it is delivered again after a pause that grows with every attempt, from one second to a
    /// minute unless [`retry_backoff`](crate::KinesisStream::retry_backoff) says otherwise. The rest of its shard goes on
    /// meanwhile, so it comes after later records. Where [`max_attempts`](crate::KinesisStream::max_attempts) is set, this
    /// was one of them. Needs no runtime.
    pub fn nack(self) {
        self.acker.nack();
    }

    /// As [`nack`](Self::nack), with the reason: it is told when the attempts of the record are spent, by the header
    /// `kinesis-dead-letter-reason` of its [dead letter](crate::KinesisStream::dead_letter), or by
    /// [`KinesisError::AttemptsSpent`]. The reason of the last attempt counts, and 1,024 bytes of it are kept.
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

    /// Turns the payload into something else; the duty to settle travels along. If the record has to be delivered
    /// again, it is delivered as it came.
    ///
    /// ```
    /// # use kinesis_stream::Delivery;
    /// fn count(delivery: Delivery) -> Delivery<usize> {
    ///     delivery.map(|bytes| bytes.len())
    /// }
    /// ```
    pub fn map<U>(self, map: impl FnOnce(T) -> U) -> Delivery<U> {
        let payload = self.payload.take(&self.acker.open.record.payload);
        Delivery { payload: Payload::Mapped(map(payload)), acker: self.acker }
    }

    /// Decodes the payload; the duty to settle travels along.
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
    /// The error of `map`, and the delivery as it was.
    pub fn try_map<U, E>(self, map: impl FnOnce(&T) -> Result<U, E>) -> Result<Delivery<U>, TryMapError<T, E>> {
        match map(self.payload()) {
            Ok(payload) => Ok(Delivery { payload: Payload::Mapped(payload), acker: self.acker }),
            Err(error) => Err(TryMapError { delivery: self, error }),
        }
    }

    /// Parts the record from the duty to settle it.
    pub fn into_parts(self) -> (Record<T>, Acker) {
        let Self { payload, acker } = self;
        let record = Record {
            payload: payload.take(&acker.open.record.payload),
            headers: acker.open.record.headers.clone(),
            partition_key: acker.open.record.partition_key.clone(),
            stream: Arc::clone(&acker.open.shard.context.stream),
            shard: acker.open.shard.id.clone(),
            sequence_number: acker.open.record.sequence_number.clone(),
            arrived_at: acker.open.record.arrived_at,
        };
        (record, acker)
    }

    /// Which record it is.
    pub(crate) fn key_of_record(&self) -> RecordKey {
        RecordKey { book: Arc::as_ptr(&self.acker.open.shard).addr(), ticket: self.acker.open.ticket }
    }

    /// Whether it was handed out before.
    pub(crate) fn comes_again(&self) -> bool {
        self.acker.open.again
    }

    /// Gives back what nobody has begun to work on, so that this was no attempt.
    pub(crate) fn put_back(mut self) {
        let attempts = self.acker.open.attempts.saturating_sub(1);
        self.acker.return_after(attempts, Reason::GivenBack);
    }

    /// Whether the opening of its shard goes on, so that settling it would change something.
    pub(crate) fn counts(&self) -> bool {
        self.acker.open.shard.counts(self.acker.open.ticket)
    }

    /// Ties a tag to it, for a watch that wants to know what becomes of the record. A record that comes again still has the
    /// tag of its first time.
    pub(crate) fn settlement(&mut self, watch: &Watch, queue: u64) -> Arc<SettlementState> {
        let key_of_record = self.key_of_record();
        Settlement::tie(&mut self.acker.open.settlement, watch, queue, key_of_record)
    }
}

impl Acker {
    /// As [`Delivery::lease`].
    #[must_use]
    pub fn lease(&self) -> LeaseToken {
        LeaseToken::new(Arc::clone(&self.open.shard), self.open.epoch)
    }

    /// As [`Delivery::commit`].
    ///
    /// # Errors
    ///
    /// As [`Delivery::commit`].
    ///
    /// # Cancel safety
    ///
    /// As [`Delivery::commit`].
    pub async fn commit(mut self) -> Result<Commit, KinesisError> {
        let committing = self.open.shard.commit(&[self.open.ticket]);
        self.note_settled();
        committing.outcome(&self.open.shard).await
    }

    /// As [`Delivery::ack`].
    pub fn ack(mut self) {
        self.settle();
    }

    /// As [`Delivery::nack`].
    pub fn nack(mut self) {
        self.give_back(Reason::GivenBack);
    }

    /// As [`Delivery::nack_because`].
    pub fn nack_because(mut self, reason: impl fmt::Display) {
        self.give_back(Reason::because(reason));
    }

    fn settle(&mut self) {
        self.open.shard.ack(&[self.open.ticket]);
        self.note_settled();
    }

    /// Notes that the shard knows.
    fn note_settled(&mut self) {
        self.open.settled = true;
        if let Some(settlement) = self.open.settlement.take() {
            settlement.settled();
        }
    }

    fn give_back(&mut self, reason: Reason) -> Back {
        self.return_after(self.open.attempts, reason)
    }

    fn return_after(&mut self, attempts: u32, reason: Reason) -> Back {
        self.open.settled = true;
        if let Some(settlement) = &self.open.settlement {
            settlement.back();
        }
        self.open.shard.give_back(Returned {
            ticket: self.open.ticket,
            shard: self.open.shard.id.clone(),
            record: self.open.record.clone(),
            attempts,
            reason,
            settlement: self.open.settlement.take(),
        })
    }
}

impl Drop for Acker {
    fn drop(&mut self) {
        if self.open.settled {
            return;
        }
        let context = Arc::clone(&self.open.shard.context);
        let reason = if thread::panicking() { Reason::Panicked } else { Reason::Dropped };
        if context.settings.on_drop == OnDrop::Ack && reason == Reason::Dropped && !context.lifecycle.is_gone() {
            self.settle();
            return;
        }
        let becomes = match self.give_back(reason) {
            Back::Here(Next::Again(_)) | Back::Elsewhere => "will come again",
            Back::Here(Next::DeadLetter) => "becomes a dead letter, since this was its last attempt",
            Back::Here(Next::Error) => "comes as an error, since this was its last attempt",
            Back::Over => return,
        };
        if context.lifecycle.is_running() {
            context.warn_of_drop(&self.open.shard.id, becomes);
        }
    }
}

impl<T> From<Delivery<T>> for Acker {
    fn from(delivery: Delivery<T>) -> Self {
        delivery.acker
    }
}

impl<T: fmt::Debug> fmt::Debug for Delivery<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("payload", self.payload()).field("acker", &self.acker).finish()
    }
}

impl fmt::Debug for Acker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acker")
            .field("stream", &self.open.shard.context.stream)
            .field("shard", &self.open.shard.id)
            .field("sequence_number", &self.open.record.sequence_number)
            .field("epoch", &self.open.epoch)
            .field("attempt", &self.open.attempts)
            .finish_non_exhaustive()
    }
}

/// A payload could not be decoded. The delivery is still there, to be settled one way or another; dropping the error
/// drops the delivery.
#[derive(Debug, thiserror::Error)]
#[error("stream {}, shard {}, sequence number {}: the payload cannot be decoded: {error}", delivery.stream(), delivery.shard(), delivery.sequence_number())]
pub struct TryMapError<T, E> {
    /// The delivery as it was.
    pub delivery: Delivery<T>,
    /// Why it could not be decoded.
    pub error: E,
}
