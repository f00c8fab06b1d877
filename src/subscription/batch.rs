//! Records that are handed out and settled together.
//!
//! **An error passes the batch that is being filled,** because it does not have to wait; a fatal error is yielded after
//! the batch, as the end of the stream is. Records that no handler saw are given back, whatever a drop means for this
//! subscription.

use std::{
    fmt::{self, Display},
    slice,
    time::Duration,
    vec,
};

use bytes::Bytes;

use crate::{
    delivery::{Delivery, TryMapError, ack_all, commit_all},
    error::KinesisError,
    types::commit::Commit,
};

/// Deliveries that were handed out together, and the duty to settle them. `T` is the type of their payloads, as with a
/// [`Delivery`].
///
/// | call | meaning |
/// |---|---|
/// | [`commit().await`](Self::commit) | all are done; returns once the lease store knows, after one write for each shard |
/// | [`ack()`](Self::ack) | all are done; the next checkpoint tells the lease store |
/// | [`commit_first(n).await`](Self::commit_first) | the first `n` are done; the rest are redelivered |
/// | [`commit_except(failed).await`](Self::commit_except) | all are done except the failed ones, which are redelivered |
/// | [`commit_rejecting(reasons).await`](Self::commit_rejecting) | all are done except those with a reason, which are rejected |
/// | [`nack()`](Self::nack), [`nack_because(reason)`](Self::nack_because), [`nack_after(pause)`](Self::nack_after) | none is done; all are redelivered |
/// | [`reject(reason)`](Self::reject) | none will ever be done: dead letters or errors, without another attempt |
/// | drop | whatever dropping a [`Delivery`] means, for each of them: by default, all are redelivered |
///
/// A batch is a collection of deliveries. Each can be taken out and settled on its own, and any deliveries can be
/// collected into a batch:
///
/// ```
/// # use kinesis_stream::{Batch, Delivery};
/// /// Acknowledges records without a payload, which there is nothing to do for.
/// fn with_payload(batch: Batch) -> Batch {
///     let (rest, empty): (Batch, Batch) = batch.into_iter().partition(|delivery| !delivery.payload().is_empty());
///     empty.ack();
///     rest
/// }
/// ```
///
/// As with [`Delivery::nack`], a record is redelivered after a pause and after later records, in the batch that is
/// being filled by then; [`attempt`](Delivery::attempt) counts its deliveries. If
/// [`max_attempts`](crate::KinesisStream::max_attempts) is set, it applies to each record, not to the batch.
#[must_use = "a batch that is dropped is redelivered; commit or ack it"]
pub struct Batch<T = Bytes> {
    pub(super) deliveries: Vec<Delivery<T>>,
}

impl<T> Batch<T> {
    /// How many deliveries there are. A batch that comes from a stream has at least one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.deliveries.len()
    }

    /// Whether there are no deliveries.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.deliveries.is_empty()
    }

    /// The deliveries, those of each shard in their order.
    pub fn deliveries(&self) -> &[Delivery<T>] {
        &self.deliveries
    }

    /// The deliveries, one after another.
    pub fn iter(&self) -> slice::Iter<'_, Delivery<T>> {
        self.deliveries.iter()
    }

    /// The payloads, one after another.
    pub fn payloads(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        self.iter().map(Delivery::payload)
    }

    /// Maps every payload, as [`Delivery::map`] does.
    pub fn map<U>(self, mut map: impl FnMut(T) -> U) -> Batch<U> {
        self.into_iter().map(|delivery| delivery.map(&mut map)).collect()
    }

    /// Decodes every payload, as [`Delivery::try_map`] does. Returns the batch of those that were decoded, and one
    /// error for each of the others, both in their order. You still have to settle the deliveries in the errors.
    ///
    /// ```
    /// # use kinesis_stream::{Batch, TryMapError};
    /// /// Rejects records that cannot be decoded: a redelivery would not help.
    /// fn decoded(batch: Batch) -> Batch<String> {
    ///     let (texts, malformed) = batch.try_map(|bytes| String::from_utf8(bytes.to_vec()));
    ///     malformed.into_iter().for_each(TryMapError::reject);
    ///     texts
    /// }
    /// ```
    pub fn try_map<U, E>(self, mut map: impl FnMut(&T) -> Result<U, E>) -> (Batch<U>, Vec<TryMapError<T, E>>) {
        let (mut mapped, mut failed) = (Batch::default(), Vec::new());
        for delivery in self {
            match delivery.try_map(&mut map) {
                Ok(delivery) => mapped.deliveries.push(delivery),
                Err(error) => failed.push(error),
            }
        }
        (mapped, failed)
    }

    /// Keeps the first `n` here and returns the rest, which is empty if there are no more than `n`.
    pub fn split_off(&mut self, n: usize) -> Self {
        let n = n.min(self.len());
        Self { deliveries: self.deliveries.split_off(n) }
    }

    /// Settles all, with one checkpoint write for each shard. Returns once the lease store holds the checkpoints, or
    /// once it is clear that it will not hold them now: see [`commit_all`].
    ///
    /// # Errors
    ///
    /// As [`Delivery::commit`], for the first shard whose write keeps failing. All records stay settled, and the
    /// library keeps writing.
    ///
    /// # Cancel safety
    ///
    /// Once this was polled, all are settled and their checkpoints will be written. A future that was never polled
    /// drops the batch.
    pub async fn commit(self) -> Result<Commit, KinesisError> {
        commit_all(self.deliveries).await
    }

    /// Settles the first `n`, as [`commit`](Self::commit) does, and gives the rest back, as [`nack`](Self::nack) does.
    /// Use this when your sink writes in order and stops at the first failure.
    ///
    /// The result is the commit of the first `n`: no other record of this batch holds their checkpoints back.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    ///
    /// # Cancel safety
    ///
    /// As [`commit`](Self::commit). The first poll gives the rest back.
    pub async fn commit_first(mut self, n: usize) -> Result<Commit, KinesisError> {
        self.split_off(n).nack();
        self.commit().await
    }

    /// Gives back the deliveries for which `failed` returns true, as [`nack`](Self::nack) does, and settles all others,
    /// as [`commit`](Self::commit) does. `failed` gets the index of a delivery in the batch, and the delivery. Use this
    /// when your sink returns a result for each record.
    ///
    /// A failed record holds the checkpoint of its shard back until it is settled. If it precedes other records of its
    /// shard, the result is therefore [`Commit::Deferred`].
    ///
    /// ```
    /// # use kinesis_stream::{Batch, KinesisError};
    /// # async fn send(rows: Vec<&[u8]>) -> Vec<Result<(), String>> { Vec::new() }
    /// async fn store(batch: Batch) -> Result<(), KinesisError> {
    ///     let results = send(batch.payloads().map(|payload| payload.as_ref()).collect()).await;
    ///     batch.commit_except(|index, _| results[index].is_err()).await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    ///
    /// # Cancel safety
    ///
    /// As [`commit`](Self::commit). The first poll calls `failed` and gives the failed deliveries back.
    pub async fn commit_except(
        self,
        mut failed: impl FnMut(usize, &Delivery<T>) -> bool,
    ) -> Result<Commit, KinesisError> {
        let mut done = Vec::with_capacity(self.len());
        for (index, delivery) in self.into_iter().enumerate() {
            if failed(index, &delivery) {
                delivery.nack();
            } else {
                done.push(delivery);
            }
        }
        commit_all(done).await
    }

    /// [Rejects](Delivery::reject) the deliveries for which `reason` returns a reason, and settles all others, as
    /// [`commit`](Self::commit) does. `reason` gets the index of a delivery in the batch, and the delivery. Use this
    /// when another attempt does not help the records that failed. If it helps some of them, settle the deliveries one
    /// by one.
    ///
    /// A rejected record holds the checkpoint of its shard back until its dead letter is written or its error yielded.
    /// If it precedes other records of its shard, the result is therefore [`Commit::Deferred`].
    ///
    /// ```
    /// # use kinesis_stream::{Batch, KinesisError};
    /// # async fn send(rows: Vec<&[u8]>) -> Vec<Result<(), String>> { Vec::new() }
    /// async fn store(batch: Batch) -> Result<(), KinesisError> {
    ///     let results = send(batch.payloads().map(|payload| payload.as_ref()).collect()).await;
    ///     batch.commit_rejecting(|index, _| results[index].as_ref().err()).await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    ///
    /// # Cancel safety
    ///
    /// As [`commit`](Self::commit). The first poll calls `reason` and rejects.
    pub async fn commit_rejecting<R: Display>(
        self,
        mut reason: impl FnMut(usize, &Delivery<T>) -> Option<R>,
    ) -> Result<Commit, KinesisError> {
        let mut done = Vec::with_capacity(self.len());
        for (index, delivery) in self.into_iter().enumerate() {
            match reason(index, &delivery) {
                Some(reason) => delivery.reject(reason),
                None => done.push(delivery),
            }
        }
        commit_all(done).await
    }

    /// Settles all without waiting, as [`Delivery::ack`] does.
    pub fn ack(self) {
        ack_all(self.deliveries);
    }

    /// Gives all back, as [`Delivery::nack`] does.
    pub fn nack(self) {
        self.into_iter().for_each(Delivery::nack);
    }

    /// Gives all back for one reason, as [`Delivery::nack_because`] does.
    pub fn nack_because(self, reason: impl Display) {
        let reason = reason.to_string();
        self.into_iter().for_each(|delivery| delivery.nack_because(&reason));
    }

    /// Gives all back with this pause, as [`Delivery::nack_after`] does.
    pub fn nack_after(self, pause: Duration) {
        self.into_iter().for_each(|delivery| delivery.nack_after(pause));
    }

    /// Gives all up at once for one reason, as [`Delivery::reject`] does.
    pub fn reject(self, reason: impl Display) {
        let reason = reason.to_string();
        self.into_iter().for_each(|delivery| delivery.reject(&reason));
    }
}

impl<T> IntoIterator for Batch<T> {
    type Item = Delivery<T>;
    type IntoIter = vec::IntoIter<Delivery<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.deliveries.into_iter()
    }
}

impl<'a, T> IntoIterator for &'a Batch<T> {
    type Item = &'a Delivery<T>;
    type IntoIter = slice::Iter<'a, Delivery<T>>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<T> FromIterator<Delivery<T>> for Batch<T> {
    fn from_iter<I: IntoIterator<Item = Delivery<T>>>(deliveries: I) -> Self {
        Self { deliveries: deliveries.into_iter().collect() }
    }
}

impl<T> Extend<Delivery<T>> for Batch<T> {
    fn extend<I: IntoIterator<Item = Delivery<T>>>(&mut self, deliveries: I) {
        self.deliveries.extend(deliveries);
    }
}

impl<T> Default for Batch<T> {
    fn default() -> Self {
        Self { deliveries: Vec::new() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Batch<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self).finish()
    }
}
