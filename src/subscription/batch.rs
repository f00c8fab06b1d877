//! Records in batches that are settled as one.

use std::{
    fmt::{self, Display},
    slice, vec,
};

use bytes::Bytes;

use crate::{
    delivery::{Delivery, ack_all, commit_all},
    error::KinesisError,
    types::commit::Commit,
};

/// Deliveries that were handed out together, and the duty to settle them. `T` is the payload of each, as with a
/// [`Delivery`].
///
/// | call | means |
/// |---|---|
/// | [`commit().await`](Self::commit) | all are done; come back when the lease store knows it: one write for each shard |
/// | [`ack()`](Self::ack) | all are done; the next checkpoint tells the store |
/// | [`commit_first(n).await`](Self::commit_first) | the first `n` are done, the rest comes again |
/// | [`commit_except(failed).await`](Self::commit_except) | all are done but those that failed, which come again |
/// | [`nack()`](Self::nack), [`nack_because(reason)`](Self::nack_because) | none is done; all come again |
/// | drop | for each what dropping a [`Delivery`] means: by default, all come again |
///
/// It is a collection of deliveries, each of which can be taken out and settled by itself; and any deliveries can be
/// collected into one:
///
/// ```
/// # use kinesis_stream::{Batch, Delivery};
/// /// Leaves out what cannot be decoded, and with it what never can be.
/// fn decoded(batch: Batch) -> Batch<String> {
///     let decode = |delivery: Delivery| delivery.try_map(|bytes| String::from_utf8(bytes.to_vec()));
///     batch.into_iter().filter_map(|delivery| decode(delivery).map_err(|failed| failed.delivery.ack()).ok()).collect()
/// }
/// ```
///
/// A record that comes again does so after a pause and after later ones, as with [`Delivery::nack`], in whatever batch is
/// being filled by then; [`attempt`](Delivery::attempt) tells. Where [`max_attempts`](crate::KinesisStream::max_attempts) is
/// set, attempts are counted for each record, not for the batch.
#[must_use = "a batch that is dropped comes again; commit or ack it"]
pub struct Batch<T = Bytes> {
    pub(super) deliveries: Vec<Delivery<T>>,
}

impl<T> Batch<T> {
    /// How many deliveries there are. A batch that comes from a stream has at least one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.deliveries.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.deliveries.is_empty()
    }

    /// The deliveries, those of each shard in its order.
    pub fn deliveries(&self) -> &[Delivery<T>] {
        &self.deliveries
    }

    /// The deliveries, one after the other.
    pub fn iter(&self) -> slice::Iter<'_, Delivery<T>> {
        self.deliveries.iter()
    }

    /// The payloads, one after the other.
    pub fn payloads(&self) -> impl DoubleEndedIterator<Item = &T> + ExactSizeIterator {
        self.iter().map(Delivery::payload)
    }

    /// Turns every payload into something else, as [`Delivery::map`].
    pub fn map<U>(self, mut map: impl FnMut(T) -> U) -> Batch<U> {
        self.into_iter().map(|delivery| delivery.map(&mut map)).collect()
    }

    /// Leaves the first `n` here and gives the rest, none if there are no more than `n`.
    pub fn split_off(&mut self, n: usize) -> Self {
        let n = n.min(self.len());
        Self { deliveries: self.deliveries.split_off(n) }
    }

    /// Settles all, with one checkpoint write for each shard, and waits until the lease store holds them or until it is
    /// clear that it will not now: see [`commit_all`].
    ///
    /// # Errors
    ///
    /// As [`Delivery::commit`], for the first shard whose write keeps failing. All stay settled, and writing goes on.
    ///
    /// # Cancel safety
    ///
    /// Once it was polled, all are settled and their checkpoints will be written. A future that was never polled drops
    /// the batch.
    pub async fn commit(self) -> Result<Commit, KinesisError> {
        commit_all(self.deliveries).await
    }

    /// Settles the first `n`, as [`commit`](Self::commit), and gives the rest back, as [`nack`](Self::nack). What a sink
    /// gives that writes in order and stops where it fails.
    ///
    /// The commit is that of the first `n`: nothing of this batch holds their checkpoints back.
    ///
    /// # Errors
    ///
    /// As [`commit`](Self::commit).
    ///
    /// # Cancel safety
    ///
    /// As [`commit`](Self::commit); the rest is given back with the first poll.
    pub async fn commit_first(mut self, n: usize) -> Result<Commit, KinesisError> {
        self.split_off(n).nack();
        self.commit().await
    }

    /// Gives those back that `failed` names by their place in the batch and by themselves, as [`nack`](Self::nack), and
    /// settles all others, as [`commit`](Self::commit). What a sink gives that answers for each record.
    ///
    /// A failed record holds the checkpoint of its shard back until it is settled. Where one came before others of
    /// its shard, the commit is therefore [`Commit::Deferred`].
    ///
    /// ```
    /// # use kinesis_stream::{Batch, KinesisError};
    /// # async fn send(rows: Vec<&[u8]>) -> Vec<Result<(), String>> { Vec::new() }
    /// async fn store(batch: Batch) -> Result<(), KinesisError> {
    ///     let answers = send(batch.payloads().map(|payload| payload.as_ref()).collect()).await;
    ///     batch.commit_except(|place, _| answers[place].is_err()).await?;
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
    /// As [`commit`](Self::commit); `failed` is asked and the failed ones are given back with the first poll.
    pub async fn commit_except(
        self,
        mut failed: impl FnMut(usize, &Delivery<T>) -> bool,
    ) -> Result<Commit, KinesisError> {
        let mut done = Vec::with_capacity(self.len());
        for (place, delivery) in self.into_iter().enumerate() {
            if failed(place, &delivery) {
                delivery.nack();
            } else {
                done.push(delivery);
            }
        }
        commit_all(done).await
    }

    /// Settles all without waiting, as [`Delivery::ack`].
    pub fn ack(self) {
        ack_all(self.deliveries);
    }

    /// Gives all back, as [`Delivery::nack`].
    pub fn nack(self) {
        self.into_iter().for_each(Delivery::nack);
    }

    /// Gives all back with one reason, as [`Delivery::nack_because`].
    pub fn nack_because(self, reason: impl Display) {
        let reason = reason.to_string();
        self.into_iter().for_each(|delivery| delivery.nack_because(&reason));
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
