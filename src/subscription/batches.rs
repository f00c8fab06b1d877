//! The stream of batches, and the methods that make one of a subscription.
//!
//! **A batch is cut when it is delivered,** not when its page is read. Pages stay whole, so a batch has its exact size
//! even if reads were larger before, or become larger again. Readers look up how much to ask for in one shared cell
//! before each read.
//!
//! **An impossible size is refused by the call** and not by the first value of the stream. So a `?` after the call is
//! enough, and a retry loop never sees the error.

use std::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::Stream;
use tokio::time::Instant;

use super::{
    batch::Batch,
    batch_builder::{BatchBuilder, Grouping},
    stream::Subscription,
    tolerant::Tolerant,
};
use crate::{
    config::limits::{RECORDS_OF_A_READ, within},
    error::{ErrorClass, KinesisError},
    util::timer::Timer,
};

/// How long a batch waits for more records by default: a quarter of the 200 ms between two reads of a shard at full
/// pace, so that records that are ready in several shards share a batch.
const MAX_WAIT: Duration = Duration::from_millis(50);

/// A [`Subscription`] in batches. Made by [`Subscription::batches`] and the methods like it.
///
/// - **It yields** a [`Batch`] or an error. A batch has at least one and at most `size` deliveries, those of each shard
///   in their order. It is yielded as soon as it is full, and at the latest [`max_wait`](Self::max_wait) after its
///   first record. If the stream is polled later than that, the batch also gets the records that are ready by then.
/// - **An error** is yielded at once, before the batch that is being filled. That batch loses nothing and continues to
///   fill. An error of class [`Fatal`](ErrorClass::Fatal), always the last one, is yielded after the batch.
/// - **It ends** when the subscription ends. An unfinished batch is yielded at once before that.
///
/// Records of an unfinished batch count as in flight. Dropping the stream gives them back without counting an attempt,
/// whatever [`on_drop`](crate::KinesisStream::on_drop) says, and drops the subscription.
///
/// # Reading
///
/// Each read asks for as many records as a batch holds, so the library reads hardly more than you take. A shard is read
/// at most five times a second. Batches of fewer than 200 records therefore read a shard more slowly than the thousand
/// records a second that it accepts; batches of 10 read fifty records a second from each shard. If a shard falls behind
/// for that reason, one warning says so. [`keep_read_limit`](Self::keep_read_limit) keeps the reads at their usual
/// size.
///
/// # Cancel safety
///
/// `next` is cancel safe: an unfinished batch stays in the stream.
///
/// # Panics
///
/// Polling panics outside of a tokio runtime.
#[must_use = "streams do nothing unless polled"]
pub struct Batches {
    subscription: Subscription,
    builder: BatchBuilder,
    upstream: Upstream,
    timer: Timer,
}

/// What the subscription will still yield.
#[derive(Debug)]
enum Upstream {
    Open,
    /// Nothing, and this error comes after the last batch.
    Failed(KinesisError),
    Ended,
}

impl Batches {
    fn new(subscription: Subscription, size: usize, grouping: Grouping) -> Result<Self, KinesisError> {
        let limit = check(size, subscription.context().settings.max_in_flight)?;
        subscription.context().set_read_limit(limit);
        let builder = BatchBuilder::new(size, MAX_WAIT, grouping);
        Ok(Self { subscription, builder, upstream: Upstream::Open, timer: Timer::default() })
    }

    /// How long a batch waits for more records after its first one: 50 ms by default, a quarter of the time between two
    /// reads of a busy shard. There is no limit. With zero, a batch holds only the records that are ready now. This
    /// does not bound how long a record takes to arrive; that is
    /// [`poll_interval`](crate::KinesisStream::poll_interval).
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.builder.max_wait = wait;
        self
    }

    /// Makes reads ask for the descriptor's [`read_limit`](crate::KinesisStream::read_limit), whatever the size of a
    /// batch. Use this for small batches of a busy stream. Records that were read wait in their page, within
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
        while let Upstream::Open = self.upstream {
            if let Some(batch) = self.builder.take_closed() {
                return Poll::Ready(Some(Ok(batch)));
            }
            match self.subscription.poll_item(cx) {
                Poll::Ready(Some(Ok(delivery))) => self.builder.add(delivery),
                Poll::Ready(Some(Err(error))) if error.class() == ErrorClass::Fatal => {
                    self.upstream = Upstream::Failed(error);
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => self.upstream = Upstream::Ended,
                Poll::Pending => {
                    ready!(self.poll_due(cx));
                    return Poll::Ready(self.builder.take_first().map(Ok));
                }
            }
        }
        if let Some(batch) = self.builder.take_first() {
            return Poll::Ready(Some(Ok(batch)));
        }
        match mem::replace(&mut self.upstream, Upstream::Ended) {
            Upstream::Failed(error) => Poll::Ready(Some(Err(error))),
            Upstream::Open | Upstream::Ended => Poll::Ready(None),
        }
    }

    /// Waits until the first unfinished batch is due.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self.builder.due() {
            None => Poll::Pending,
            Some(due) if due <= Instant::now() => Poll::Ready(()),
            Some(due) => self.timer.poll(due, cx),
        }
    }
}

/// The size of a batch as the limit of a read, if a subscription with this `max_in_flight` can fill such batches (A5).
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
    /// The records in batches of at most `size`: 1 to 10,000, and at most half of
    /// [`max_in_flight`](crate::KinesisStream::max_in_flight), so that one batch is filled while you work on another.
    /// From its next read on, each shard is asked for `size` records at a time. [`Batches`] says what that means for
    /// small sizes, and how long a batch waits to fill.
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
    /// If you work on several batches at a time, set `max_in_flight` to hold all of them and one more. A shard at this
    /// bound stops reading, so batches would go out less than full.
    ///
    /// # Errors
    ///
    /// [`KinesisError::Invalid`] if `size` is outside of these limits: it names them and the value. The subscription is
    /// dropped then.
    pub fn batches(self, size: usize) -> Result<Batches, KinesisError> {
        Batches::new(self, size, Grouping::Mixed)
    }

    /// Like [`batches`](Self::batches), but a batch holds records of one shard only, delivered under one
    /// [`epoch`](crate::Delivery::epoch). The batches of all shards are filled in parallel, each with a deadline, so
    /// many quiet shards do not make many tiny batches. They hold at most `size` records for each shard.
    ///
    /// # Errors
    ///
    /// As [`batches`](Self::batches).
    pub fn batches_by_shard(self, size: usize) -> Result<Batches, KinesisError> {
        Batches::new(self, size, Grouping::ByShard)
    }
}

impl Tolerant {
    /// [`Subscription::batches`] without the errors that the library handles.
    ///
    /// # Errors
    ///
    /// As [`Subscription::batches`].
    pub fn batches(self, size: usize) -> Result<Batches, KinesisError> {
        self.subscription.batches(size)
    }

    /// [`Subscription::batches_by_shard`] without the errors that the library handles.
    ///
    /// # Errors
    ///
    /// As [`Subscription::batches`].
    pub fn batches_by_shard(self, size: usize) -> Result<Batches, KinesisError> {
        self.subscription.batches_by_shard(size)
    }
}

impl Stream for Batches {
    type Item = Result<Batch, KinesisError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.get_mut().poll_batch(cx)
    }
}

impl Drop for Batches {
    /// No handler saw the records of an unfinished batch, so even `ack_on_drop` does not acknowledge them.
    fn drop(&mut self) {
        self.builder.give_back();
    }
}

impl fmt::Debug for Batches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches")
            .field("subscription", &self.subscription)
            .field("size", &self.builder.size)
            .field("max_wait", &self.builder.max_wait)
            .finish_non_exhaustive()
    }
}
