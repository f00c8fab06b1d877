//! The stream of batches, and the methods that make one of a subscription.
//!
//! [`Batches`] polls its source. Which record goes into which batch is decided in `batch_builder`.
//!
//! **A batch is cut when it is delivered,** not when its page is read. Pages stay whole, so a batch has its exact size
//! even if reads were larger before, or become larger again. Readers look up how much to ask for in one shared cell
//! before each read.
//!
//! **An impossible size is refused by the call** and not by the first value of the stream. So a `?` after the call is
//! enough, and a retry loop never sees the error. Behind other combinators nobody knows the subscription before the
//! first record, so a `max_in_flight` that is too small is a warning there.
//!
//! **An error waits until the next poll of the source,** which tells whether it is the last item: the error that ends
//! the source is yielded after the batches, any other one before them.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures::{Stream, stream::FusedStream};
use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::{
    batch::Batch,
    batch_builder::{BatchBuilder, Grouping},
    stream::Subscription,
    tolerant::Tolerant,
};
use crate::{
    config::limits::{RECORDS_OF_A_READ, within},
    delivery::Delivery,
    error::KinesisError,
    state::context::SubscriptionContext,
    util::timer::Timer,
};

/// How long a batch waits for more records by default: a quarter of the 200 ms between two reads of a shard at full
/// pace, so that records that are ready in several shards share a batch.
const MAX_WAIT: Duration = Duration::from_millis(50);

/// The setting in errors.
const WHAT: &str = "batch size";

pin_project! {
    /// A [`Subscription`] in batches, or another stream of deliveries. Made by [`Subscription::batches`],
    /// [`DeliveryStreamExt::batches`](crate::DeliveryStreamExt::batches) and the methods like them.
    ///
    /// - **It yields** a [`Batch`] or an error. A batch has at least one and at most `size` deliveries, those of each
    ///   shard in their order. It is yielded as soon as it is full, and at the latest [`max_wait`](Self::max_wait)
    ///   after its first record. If the stream is polled later than that, the batch also gets the records that are
    ///   ready by then.
    /// - **An error** is yielded at once, before the batch that is being filled. That batch loses nothing and continues
    ///   to fill. An error right before the end of the source, such as one of class
    ///   [`Fatal`](crate::ErrorClass::Fatal), is yielded after the batch.
    /// - **It ends** when its source ends. An unfinished batch is yielded at once before that.
    ///
    /// Records of an unfinished batch count as in flight. Dropping the stream gives them back without counting an
    /// attempt, whatever [`on_drop`](crate::KinesisStream::on_drop) says, and drops the source.
    ///
    /// # Reading
    ///
    /// Batches of a [`Subscription`] or a [`Tolerant`] one set the size of its reads; behind other combinators, reads
    /// keep their usual size.
    ///
    /// Each read asks for as many records as a batch holds, so the library reads hardly more than you take. A shard is
    /// read at most five times a second. Batches of fewer than 200 records therefore read a shard more slowly than the
    /// thousand records a second that it accepts; batches of 10 read fifty records a second from each shard. If a shard
    /// falls behind for that reason, one warning says so. [`keep_read_limit`](Self::keep_read_limit) keeps the reads at
    /// their usual size.
    ///
    /// # Cancel safety
    ///
    /// `next` is cancel safe: an unfinished batch stays in the stream.
    ///
    /// # Panics
    ///
    /// Polling panics outside of a tokio runtime.
    #[must_use = "streams do nothing unless polled"]
    pub struct Batches<S = Subscription, T = Bytes, E = KinesisError> {
        #[pin]
        source: S,
        filling: Filling<T, E>,
    }

    impl<S, T, E> PinnedDrop for Batches<S, T, E> {
        // No handler saw the records of an unfinished batch, so even `ack_on_drop` does not acknowledge them.
        fn drop(this: Pin<&mut Self>) {
            this.project().filling.builder.give_back();
        }
    }
}

/// All of the batches except their source.
#[derive(Debug)]
struct Filling<T, E> {
    builder: BatchBuilder<T>,
    /// An error of the source that is not known to be its last item.
    error: Option<E>,
    ended: bool,
    timer: Timer,
    /// The subscription whose reads these batches set. None behind other combinators.
    context: Option<Arc<SubscriptionContext>>,
}

impl<S, T, E> Batches<S, T, E> {
    /// Batches of any stream of deliveries.
    pub(super) fn of_stream(source: S, size: usize, grouping: Grouping) -> Result<Self, KinesisError> {
        check(size)?;
        Ok(Self::new(source, size, grouping, None))
    }

    /// Batches of a subscription, which set its reads.
    fn of_subscription(
        source: S,
        context: Arc<SubscriptionContext>,
        size: usize,
        grouping: Grouping,
    ) -> Result<Self, KinesisError> {
        check(size)?;
        check_bound(size, context.settings.max_in_flight)?;
        context.set_read_limit(u32::try_from(size).unwrap_or(RECORDS_OF_A_READ));
        Ok(Self::new(source, size, grouping, Some(context)))
    }

    fn new(source: S, size: usize, grouping: Grouping, context: Option<Arc<SubscriptionContext>>) -> Self {
        let builder = BatchBuilder::new(size, MAX_WAIT, grouping);
        Self { source, filling: Filling { builder, error: None, ended: false, timer: Timer::default(), context } }
    }

    /// How long a batch waits for more records after its first one: 50 ms by default, a quarter of the time between two
    /// reads of a busy shard. There is no limit. With zero, a batch holds only the records that are ready now. This
    /// does not bound how long a record takes to arrive; that is
    /// [`poll_interval`](crate::KinesisStream::poll_interval).
    pub fn max_wait(mut self, wait: Duration) -> Self {
        self.filling.builder.max_wait = wait;
        self
    }

    /// Makes reads ask for the descriptor's [`read_limit`](crate::KinesisStream::read_limit), whatever the size of a
    /// batch. Use this for small batches of a busy stream. Records that were read wait in their page, within
    /// [`max_buffered_bytes`](crate::KinesisStream::max_buffered_bytes). Behind other combinators this changes nothing.
    pub fn keep_read_limit(self) -> Self {
        if let Some(context) = &self.filling.context {
            context.set_read_limit(context.settings.read_limit);
        }
        self
    }

    /// The same stream with batches grouped like this.
    pub(super) fn grouped(mut self, grouping: Grouping) -> Self {
        self.filling.builder.grouping = grouping;
        self
    }

    /// The source, for its handles.
    pub fn get_ref(&self) -> &S {
        &self.source
    }
}

impl<T, E> Filling<T, E> {
    /// Adds a record.
    fn add(&mut self, delivery: Delivery<T>) {
        if self.context.is_none() {
            delivery.check_batch_size(self.builder.size);
        }
        self.builder.add(delivery);
    }

    /// The first unfinished batch, once it is due.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<Option<Batch<T>>> {
        match self.builder.due() {
            None => return Poll::Pending,
            Some(due) if due <= Instant::now() => {}
            Some(due) => ready!(self.timer.poll(due, cx)),
        }
        Poll::Ready(self.builder.take_first())
    }
}

/// Whether a batch can have this size: no read returns more records.
fn check(size: usize) -> Result<(), KinesisError> {
    within(WHAT, size, 1, RECORDS_OF_A_READ as usize)
}

/// Whether a subscription with this `max_in_flight` can fill batches of this size (A5).
fn check_bound(size: usize, max_in_flight: usize) -> Result<(), KinesisError> {
    if max_in_flight / 2 < size {
        let problem = format!(
            "at most half of max_in_flight, so that one batch is filled while another is worked on: {size} needs a \
             max_in_flight of {}; given: {max_in_flight}",
            size * 2
        );
        return Err(KinesisError::invalid(WHAT, problem));
    }
    Ok(())
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
        self.in_batches(size, Grouping::Mixed)
    }

    /// Like [`batches`](Self::batches), but a batch holds records of one shard only, delivered under one
    /// [`epoch`](crate::Delivery::epoch). The batches of all shards are filled in parallel, each with a deadline, so
    /// many quiet shards do not make many tiny batches. They hold at most `size` records for each shard.
    ///
    /// # Errors
    ///
    /// As [`batches`](Self::batches).
    pub fn batches_by_shard(self, size: usize) -> Result<Batches, KinesisError> {
        self.in_batches(size, Grouping::ByShard)
    }

    fn in_batches(self, size: usize, grouping: Grouping) -> Result<Batches, KinesisError> {
        let context = Arc::clone(self.context());
        Batches::of_subscription(self, context, size, grouping)
    }
}

impl<F> Tolerant<F> {
    /// [`Subscription::batches`] without the errors that the library handles.
    ///
    /// # Errors
    ///
    /// As [`Subscription::batches`].
    pub fn batches(self, size: usize) -> Result<Batches<Self>, KinesisError> {
        self.in_batches(size, Grouping::Mixed)
    }

    /// [`Subscription::batches_by_shard`] without the errors that the library handles.
    ///
    /// # Errors
    ///
    /// As [`Subscription::batches`].
    pub fn batches_by_shard(self, size: usize) -> Result<Batches<Self>, KinesisError> {
        self.in_batches(size, Grouping::ByShard)
    }

    fn in_batches(self, size: usize, grouping: Grouping) -> Result<Batches<Self>, KinesisError> {
        let context = Arc::clone(self.get_ref().context());
        Batches::of_subscription(self, context, size, grouping)
    }
}

impl<S, T, E> Stream for Batches<S, T, E>
where
    S: Stream<Item = Result<Delivery<T>, E>>,
{
    type Item = Result<Batch<T>, E>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        let filling = this.filling;
        while !filling.ended {
            if let Some(batch) = filling.builder.take_closed() {
                return Poll::Ready(Some(Ok(batch)));
            }
            match this.source.as_mut().poll_next(cx) {
                Poll::Ready(Some(Ok(delivery))) => {
                    filling.add(delivery);
                    if let Some(error) = filling.error.take() {
                        return Poll::Ready(Some(Err(error)));
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    if let Some(earlier) = filling.error.replace(error) {
                        return Poll::Ready(Some(Err(earlier)));
                    }
                }
                Poll::Ready(None) => filling.ended = true,
                Poll::Pending => {
                    if let Some(error) = filling.error.take() {
                        return Poll::Ready(Some(Err(error)));
                    }
                    return filling.poll_due(cx).map(|batch| batch.map(Ok));
                }
            }
        }
        let batch = filling.builder.take_closed().or_else(|| filling.builder.take_first());
        Poll::Ready(batch.map(Ok).or_else(|| filling.error.take().map(Err)))
    }
}

impl<S, T, E> FusedStream for Batches<S, T, E>
where
    S: Stream<Item = Result<Delivery<T>, E>>,
{
    fn is_terminated(&self) -> bool {
        self.filling.ended && self.filling.builder.is_empty() && self.filling.error.is_none()
    }
}

impl<S: fmt::Debug, T, E> fmt::Debug for Batches<S, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batches")
            .field("source", &self.source)
            .field("size", &self.filling.builder.size)
            .field("max_wait", &self.filling.builder.max_wait)
            .finish_non_exhaustive()
    }
}
