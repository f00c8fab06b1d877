//! The stream of batches, and how a subscription becomes one.

use std::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::Stream;
use tokio::time::Instant;

use crate::{
    config::limits::{RECORDS_OF_A_READ, within},
    error::{ErrorClass, KinesisError},
    subscription::{
        Subscription, Tolerance, Tolerant,
        batch::Batch,
        batch_builder::{BatchBuilder, Grouping},
    },
    util::timer::Timer,
};

/// How long a batch waits for more, unless [`Batches::max_wait`] says otherwise: a quarter of the time between two reads
/// of a shard at full pace, so that what lies in several shards comes together.
const MAX_WAIT: Duration = Duration::from_millis(50);

/// A [`Subscription`] in batches. Made by [`Subscription::batches`] and its sisters.
///
/// - **An item** is a [`Batch`] of at least one and at most `size` deliveries, those of each shard in its order, or an
///   error. A batch goes out as soon as it is full, and at the latest [`max_wait`](Self::max_wait) after its first
///   record came, or with the next poll, together with whatever is ready by then.
/// - **An error** goes out at once, before the batch that is being filled, which loses nothing and goes on being filled. An
///   error of class [`Fatal`](ErrorClass::Fatal), which is the last one, comes after it.
/// - **The end** comes when that of the subscription does. What was being filled goes out before it, at once.
///
/// What is being filled counts as in flight. Dropping this gives it back unseen, which is no attempt, whatever
/// [`on_drop`](crate::KinesisStream::on_drop) says, and drops the subscription.
///
/// # Reading
///
/// Each read asks for as many records as a batch holds, so that hardly more is read than is asked for. A shard is read
/// five times a second: batches of fewer than 200 records thus read a shard more slowly than the thousand records a second
/// that it can take in, and batches of 10 read fifty records a second and shard. If a shard falls behind for that reason, a
/// warning says so, once. [`keep_read_limit`](Self::keep_read_limit) reads as without batches.
///
/// # Cancel safety
///
/// `next` is cancel safe: what is being filled stays here.
///
/// # Panics
///
/// Polling panics outside of a tokio runtime.
#[must_use = "streams do nothing unless polled"]
pub struct Batches {
    subscription: Subscription,
    tolerance: Tolerance,
    filling: BatchBuilder,
    source: Source,
    timer: Timer,
}

/// What is still to come from the subscription.
#[derive(Debug)]
enum Source {
    Open,
    /// Nothing, and this is to be said last.
    Failed(KinesisError),
    Ended,
}

impl Batches {
    fn new(
        subscription: Subscription,
        tolerance: Tolerance,
        size: usize,
        grouping: Grouping,
    ) -> Result<Self, KinesisError> {
        let limit = check(size, subscription.context().settings.max_in_flight)?;
        subscription.context().set_read_limit(limit);
        let filling = BatchBuilder::new(size, MAX_WAIT, grouping);
        Ok(Self { subscription, tolerance, filling, source: Source::Open, timer: Timer::default() })
    }

    /// How long a batch waits for more records, from its first one on: 50 ms by default. With zero a batch is what is there
    /// at the moment. It is not how long a record may take to come: that is [`poll_interval`](crate::KinesisStream::poll_interval).
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.filling.max_wait = wait;
        self
    }

    /// Has reads ask for the descriptor's [`read_limit`](crate::KinesisStream::read_limit), whatever the size of a batch: for
    /// small batches of a busy stream. What was read waits in its page, within
    /// [`max_buffered_bytes`](crate::KinesisStream::max_buffered_bytes).
    pub fn keep_read_limit(self) -> Self {
        let context = self.subscription.context();
        context.set_read_limit(context.settings.read_limit);
        self
    }

    /// The subscription inside, for its handles.
    pub fn get_ref(&self) -> &Subscription {
        &self.subscription
    }

    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Batch, KinesisError>>> {
        while let Source::Open = self.source {
            if let Some(batch) = self.filling.take_closed() {
                return Poll::Ready(Some(Ok(batch)));
            }
            match self.subscription.poll_item(cx, self.tolerance) {
                Poll::Ready(Some(Ok(delivery))) => self.filling.add(delivery),
                Poll::Ready(Some(Err(error))) if error.class() == ErrorClass::Fatal => {
                    self.source = Source::Failed(error);
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => self.source = Source::Ended,
                Poll::Pending => {
                    ready!(self.poll_due(cx));
                    return Poll::Ready(self.filling.take_first().map(Ok));
                }
            }
        }
        if let Some(batch) = self.filling.take_first() {
            return Poll::Ready(Some(Ok(batch)));
        }
        match mem::replace(&mut self.source, Source::Ended) {
            Source::Failed(error) => Poll::Ready(Some(Err(error))),
            Source::Open | Source::Ended => Poll::Ready(None),
        }
    }

    /// Waits until a batch has waited long enough.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.filling.due() {
            None => Poll::Pending,
            Some(due) if due <= Instant::now() => Poll::Ready(()),
            Some(due) => self.timer.poll(due, cx),
        }
    }
}

/// The size of a batch as a limit of reads, if a subscription with this bound can fill such batches (A5).
fn check(size: usize, max_in_flight: usize) -> Result<u32, KinesisError> {
    const WHAT: &str = "batch size";
    within(WHAT, size, 1, RECORDS_OF_A_READ as usize)?;
    if max_in_flight / 2 < size {
        let problem = format!(
            "at most half of max_in_flight, so that one batch is filled while another is worked on: {size} needs a \
             max_in_flight of {}; given: {max_in_flight}",
            size * 2
        );
        return Err(KinesisError::invalid(WHAT, problem));
    }
    Ok(u32::try_from(size).unwrap_or(RECORDS_OF_A_READ))
}

impl Subscription {
    /// The records in batches of `size` at most: 1 to 10,000, and at most half of
    /// [`max_in_flight`](crate::KinesisStream::max_in_flight). From its next read on, each shard is asked for `size` records
    /// at once; see [`Batches`] for what that means for small ones, and for what a batch waits for.
    ///
    /// ```
    /// use kinesis_stream::prelude::*;
    ///
    /// # async fn insert(rows: &[&[u8]]) {}
    /// async fn archive(quakes: Subscription) -> Result<(), KinesisError> {
    ///     let batches = quakes.tolerant().batches(500)?;
    ///     batches
    ///         .try_for_each_concurrent(4, async |batch| {
    ///             let rows: Vec<&[u8]> = batch.payloads().map(|payload| payload.as_ref()).collect();
    ///             insert(&rows).await;
    ///             batch.commit().await.map(drop)
    ///         })
    ///         .await
    /// }
    /// ```
    ///
    /// A pipeline that works on several batches at a time wants a `max_in_flight` with room for them and one more: at its
    /// bound a shard waits, and batches go out less than full.
    ///
    /// # Errors
    ///
    /// [`KinesisError::Invalid`] if `size` is out of these limits: it names them and the value. The subscription is
    /// dropped then.
    pub fn batches(self, size: usize) -> Result<Batches, KinesisError> {
        Batches::new(self, Tolerance::None, size, Grouping::Mixed)
    }

    /// As [`batches`](Self::batches), and a batch holds the records of one shard, delivered under one
    /// [`epoch`](crate::Delivery::epoch). The batches of all shards are filled at the same time, each with a time of its own, so
    /// that many quiet shards do not make for many tiny batches; they hold at most `size` records a shard.
    ///
    /// # Errors
    ///
    /// As [`batches`](Self::batches).
    pub fn batches_by_shard(self, size: usize) -> Result<Batches, KinesisError> {
        Batches::new(self, Tolerance::None, size, Grouping::ByShard)
    }
}

impl Tolerant {
    /// As [`Subscription::batches`], without the errors that the library deals with.
    ///
    /// # Errors
    ///
    /// As [`Subscription::batches`].
    pub fn batches(self, size: usize) -> Result<Batches, KinesisError> {
        Batches::new(self.into_inner(), Tolerance::Transient, size, Grouping::Mixed)
    }

    /// As [`Subscription::batches_by_shard`], without the errors that the library deals with.
    ///
    /// # Errors
    ///
    /// As [`Subscription::batches`].
    pub fn batches_by_shard(self, size: usize) -> Result<Batches, KinesisError> {
        Batches::new(self.into_inner(), Tolerance::Transient, size, Grouping::ByShard)
    }
}

impl Stream for Batches {
    type Item = Result<Batch, KinesisError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_batch(cx)
    }
}

impl Drop for Batches {
    /// Nobody saw what is being filled, so even `ack_on_drop` does not acknowledge it.
    fn drop(&mut self) {
        self.filling.give_back();
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches")
            .field("subscription", &self.subscription)
            .field("size", &self.filling.size)
            .field("max_wait", &self.filling.max_wait)
            .finish_non_exhaustive()
    }
}
