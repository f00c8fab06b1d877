//! Parallel work that keeps the order of each partition key.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use futures::{
    Stream, StreamExt,
    future::{self, Join, Ready},
    stream::{FusedStream, FuturesUnordered},
};

use crate::{
    delivery::Delivery,
    state::settlement::{Outcome, OutcomeWatch, TrackedOutcome},
    subscription::key_queues::{End, KeyQueues},
};

/// Deliveries that may wait behind others unless [`BufferBy::max_waiting`] says otherwise: a page of the default
/// `read_limit`, so that while one key is busy the others of its page are found.
const MAX_WAITING: usize = 1_000;

/// What streams of deliveries can do beyond the combinators of [`futures`]: work on many at once, and on those of one partition
/// key one after the other. In the [`prelude`](crate::prelude).
///
/// It is there for every stream of `Result<Delivery<T>, E>`: a [`Subscription`](crate::Subscription), a
/// [`Tolerant`](crate::Tolerant) one, and what `map_ok`, `err_into` and others make of them.
pub trait DeliveryStreamExt<T, E>: Stream<Item = Result<Delivery<T>, E>> + Sized {
    /// Runs up to `n` futures at once, at most one for each partition key, and yields their results as they come.
    ///
    /// It is `try_buffer_unordered` with the order of each key kept. (AWS Lambda calls this its parallelization factor.)
    ///
    /// ```
    /// use kinesis_stream::prelude::*;
    /// # async fn balance(account: Option<&str>, booking: &[u8]) -> Result<(), KinesisError> { Ok(()) }
    ///
    /// async fn book(bookings: Subscription) -> Result<(), KinesisError> {
    ///     bookings
    ///         .tolerant()
    ///         .buffer_by_key(32, async |delivery| {
    ///             // Never two of one account at a time, and each account's in the order in which they were put.
    ///             balance(delivery.partition_key(), delivery.payload()).await?;
    ///             delivery.commit().await
    ///         })
    ///         .try_for_each(async |_| Ok(()))
    ///         .await
    /// }
    /// ```
    ///
    /// - **An item** is what a future came to, as soon as it is done, so items of different keys come in any order; or an
    ///   error of the stream before, passed on at once. Neither ends the stream.
    /// - **The end** comes when the stream before has ended and all futures are done.
    ///
    /// # Order
    ///
    /// `f` is called for the deliveries of a key in the order in which they come, and for the next one only after the future
    /// of the one before is done.
    ///
    /// A delivery that was *given back* by then (nacked, or dropped where that means the same) holds its key: later
    /// ones of the key wait until it has come again and its future is done without giving it back. Other keys
    /// go on. So a record that fails for ever holds its key for ever, and in the end, through
    /// [`max_in_flight`](crate::KinesisStream::max_in_flight), its shard, unless
    /// [`max_attempts`](crate::KinesisStream::max_attempts) is set: its key goes on once its
    /// [dead letter](crate::KinesisStream::dead_letter) is written, or after the item
    /// [`AttemptsSpent`](crate::KinesisError::AttemptsSpent). Or look at [`Delivery::attempt`], before or in `f`, to
    /// put it aside. Where it is settled does not matter.
    ///
    /// A delivery that outlives its future unsettled, as its result or in another task, holds nothing: the order is then
    /// that of the futures. If it is given back later, it comes again after the ones that were begun meanwhile.
    ///
    /// A key is the same key wherever it comes from: in another shard, after a split or merge or because of explicit hash
    /// keys, and in another stream merged into this one. A record without a partition key has no order, and waits for none.
    ///
    /// # What may wait
    ///
    /// - The stream before is polled only while fewer than `n` futures run and fewer than
    ///   [`max_waiting`](BufferBy::max_waiting) deliveries wait behind them, 1,000 by default. At that bound reading
    ///   slows down; running futures go on.
    /// - Deliveries that wait behind one that was given back are not counted, for two reasons: that one can come
    ///   again only if the stream is polled, and other keys are to go on. They are unsettled, so `max_in_flight` of their shard
    ///   bounds them: set it with this in mind.
    ///
    /// # When a shard is lost
    ///
    /// What waits here when its lease is lost, or the opening of its shard is over, is dropped without a call of `f`: it is
    /// delivered again by whoever has the shard next. When the subscription closes, what waits behind running futures
    /// is still worked on, within the drain time. What waits behind a record that was given back is not: it comes again with
    /// it, in order, after the next start.
    ///
    /// # Cost
    ///
    /// About a microsecond for each delivery, whatever the number of keys. Nothing is spawned: futures run in the task that
    /// polls the stream. `n` of 0 counts as 1.
    ///
    /// # Cancel safety
    ///
    /// `next` is cancel safe. Dropping the stream drops the running futures, with what that means for the deliveries in them,
    /// and gives back what waits, also under [`OnDrop::Ack`](crate::OnDrop::Ack). For these that was no attempt, since `f` was
    /// not called.
    ///
    /// # Panics
    ///
    /// If a future or `f` panics, so does polling this. It is not to be polled after that.
    fn buffer_by_key<R, F, Fut>(self, n: usize, f: F) -> BufferBy<Self, T, F, Fut>
    where
        F: FnMut(Delivery<T>) -> Fut,
        Fut: Future<Output = Result<R, E>>,
    {
        BufferBy::new(self, KeySource::Key, n, f)
    }

    /// Runs up to `n` futures at once, at most one for each shard, and yields their results as they come: as
    /// [`buffer_by_key`](Self::buffer_by_key) in all else, with the shard in place of the key.
    ///
    /// This keeps the whole order of each shard. Children of a split or merge begin when all from their parents is settled.
    ///
    /// ```
    /// use kinesis_stream::prelude::*;
    /// # async fn append(log: &str, line: &[u8]) -> Result<(), KinesisError> { Ok(()) }
    ///
    /// async fn keep_logs(lines: Subscription) -> Result<(), KinesisError> {
    ///     lines
    ///         .tolerant()
    ///         .buffer_by_shard(8, async |delivery| {
    ///             append(delivery.shard().as_str(), delivery.payload()).await?;
    ///             delivery.ack();
    ///             Ok(())
    ///         })
    ///         .try_for_each(async |()| Ok(()))
    ///         .await
    /// }
    /// ```
    fn buffer_by_shard<R, F, Fut>(self, n: usize, f: F) -> BufferBy<Self, T, F, Fut>
    where
        F: FnMut(Delivery<T>) -> Fut,
        Fut: Future<Output = Result<R, E>>,
    {
        BufferBy::new(self, KeySource::Shard, n, f)
    }
}

impl<S, T, E> DeliveryStreamExt<T, E> for S where S: Stream<Item = Result<Delivery<T>, E>> {}

/// What deliveries have in common that are worked on one after the other.
#[derive(Clone, Copy, Debug)]
enum KeySource {
    Key,
    Shard,
}

/// The results of parallel work on deliveries, made by [`buffer_by_key`](DeliveryStreamExt::buffer_by_key) and
/// [`buffer_by_shard`](DeliveryStreamExt::buffer_by_shard).
///
/// It is `Unpin` whatever the futures are, fused, and `Send` if all that is in it is.
#[must_use = "streams do nothing unless polled"]
pub struct BufferBy<S, T, F, Fut: Future> {
    /// Before all others, so that it is dropped first: what its deliveries' drops mean depends on whether it is there.
    source: Pin<Box<S>>,
    ended: bool,
    f: F,
    /// Each with what is kept of its delivery; nothing where that has no key.
    running: FuturesUnordered<Join<Fut, Ready<Option<Arc<TrackedOutcome>>>>>,
    queues: KeyQueues<Delivery<T>>,
    watch: OutcomeWatch,
    queue: KeySource,
    hasher: RandomState,
    n: usize,
    max_waiting: usize,
}

/// What is pinned is on the heap.
impl<S, T, F, Fut: Future> Unpin for BufferBy<S, T, F, Fut> {}

impl<S, T, F, Fut: Future> BufferBy<S, T, F, Fut> {
    fn new(source: S, queue: KeySource, n: usize, f: F) -> Self {
        Self {
            source: Box::pin(source),
            ended: false,
            f,
            running: FuturesUnordered::new(),
            queues: KeyQueues::new(),
            watch: OutcomeWatch::default(),
            queue,
            hasher: RandomState::new(),
            n: n.max(1),
            max_waiting: MAX_WAITING,
        }
    }

    /// How many deliveries may wait for their key, 1,000 by default; 0 counts as 1. At this bound the stream before is not
    /// polled. Those that wait behind a record that was given back do not count.
    ///
    /// More of them finds more work for the others while some keys are much more frequent than others; each is a record in
    /// memory.
    pub fn max_waiting(mut self, max: usize) -> Self {
        self.max_waiting = max.max(1);
        self
    }

    /// The stream before, for its handles.
    pub fn get_ref(&self) -> &S {
        &self.source
    }
}

impl<S, T, E, R, F, Fut> BufferBy<S, T, F, Fut>
where
    S: Stream<Item = Result<Delivery<T>, E>>,
    F: FnMut(Delivery<T>) -> Fut,
    Fut: Future<Output = Result<R, E>>,
{
    /// Lets go of queues that wait for a record which came to its end elsewhere.
    fn hear(&mut self, cx: &mut Context<'_>) {
        if self.queues.is_awaiting() {
            self.watch.register(cx.waker());
        }
        for mark in self.watch.take() {
            if mark.outcome() == Outcome::Settled {
                self.queues.settled(mark.queue, mark.record_key);
            } else {
                give_back(self.queues.lost(mark.queue, mark.record_key));
            }
        }
    }

    fn start_ready(&mut self) {
        while self.running.len() < self.n
            && let Some((queue, delivery)) = self.queues.next()
        {
            if delivery.counts() {
                self.start(Some(queue), delivery);
            } else {
                delivery.put_back();
                give_back(self.queues.done(queue, End::Free));
            }
        }
    }

    fn start(&mut self, queue: Option<u64>, mut delivery: Delivery<T>) {
        let mark = queue.map(|queue| delivery.settlement(&self.watch, queue));
        self.running.push(future::join((self.f)(delivery), future::ready(mark)));
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Delivery<T>, E>>> {
        if self.ended || self.running.len() >= self.n || self.queues.behind_work() >= self.max_waiting {
            return Poll::Pending;
        }
        self.source.as_mut().poll_next(cx)
    }

    fn take_in(&mut self, delivery: Delivery<T>) {
        let queue = match self.queue {
            KeySource::Key => delivery.partition_key().map(|key| self.hasher.hash_one(key)),
            KeySource::Shard => Some(self.hasher.hash_one((delivery.stream(), delivery.shard()))),
        };
        let Some(id) = queue else { return self.start(None, delivery) };
        let (key_of_record, again) = (delivery.record_key(), delivery.is_redelivery());
        if let Some(delivery) = self.queues.arrive(id, key_of_record, again, delivery) {
            self.start(Some(id), delivery);
        }
    }

    /// The future of a delivery is done and dropped.
    fn finish(&mut self, mark: &TrackedOutcome) {
        let end = match mark.outcome() {
            Outcome::Delivered | Outcome::Settled => End::Free,
            Outcome::Redelivered if self.ended => End::Free,
            Outcome::Returned | Outcome::Redelivered if !self.ended => End::Back(mark.record_key),
            Outcome::Returned | Outcome::Redelivered | Outcome::Lost => End::Lost(mark.record_key),
        };
        give_back(self.queues.done(mark.queue, end));
    }
}

/// Gives back what was not begun and is not to be, whatever dropping it would mean.
fn give_back<T>(deliveries: impl IntoIterator<Item = Delivery<T>>) {
    deliveries.into_iter().for_each(Delivery::put_back);
}

impl<S, T, E, R, F, Fut> Stream for BufferBy<S, T, F, Fut>
where
    S: Stream<Item = Result<Delivery<T>, E>>,
    F: FnMut(Delivery<T>) -> Fut,
    Fut: Future<Output = Result<R, E>>,
{
    type Item = Result<R, E>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        this.hear(cx);
        loop {
            this.start_ready();
            match this.poll_source(cx) {
                Poll::Ready(Some(Ok(delivery))) => this.take_in(delivery),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => {
                    this.ended = true;
                    give_back(this.queues.end());
                }
                Poll::Pending => break,
            }
        }
        match this.running.poll_next_unpin(cx) {
            Poll::Ready(Some((result, mark))) => {
                if let Some(mark) = mark {
                    this.finish(&mark);
                }
                Poll::Ready(Some(result))
            }
            Poll::Ready(None) if this.ended => Poll::Ready(None),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// At least what runs; what waits may turn out to be for others.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let here = self.running.len() + self.queues.standing();
        let (_, most) = if self.ended { (0, Some(0)) } else { self.source.size_hint() };
        (self.running.len(), most.and_then(|most| most.checked_add(here)))
    }
}

impl<S, T, E, R, F, Fut> FusedStream for BufferBy<S, T, F, Fut>
where
    S: Stream<Item = Result<Delivery<T>, E>>,
    F: FnMut(Delivery<T>) -> Fut,
    Fut: Future<Output = Result<R, E>>,
{
    fn is_terminated(&self) -> bool {
        self.ended && self.running.is_empty()
    }
}

impl<S, T, F, Fut: Future> Drop for BufferBy<S, T, F, Fut> {
    fn drop(&mut self) {
        give_back(self.queues.clear());
    }
}

impl<S: fmt::Debug, T, F, Fut: Future> fmt::Debug for BufferBy<S, T, F, Fut> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferBy")
            .field("source", &self.source)
            .field("queue", &self.queue)
            .field("running", &self.running.len())
            .field("waiting", &self.queues.standing())
            .finish_non_exhaustive()
    }
}
