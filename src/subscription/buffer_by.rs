//! Parallel work that keeps the order of each partition key.
//!
//! [`BufferBy`] polls its source, runs the futures and tells `key_queues` how each one ended. `key_queues` decides
//! which delivery may start next. What becomes of a record after its future ended arrives through its
//! [`TrackedOutcome`]: see `state/settlement.rs`.

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

use super::key_queues::{KeyQueues, WorkEnd};
use crate::{
    delivery::Delivery,
    state::settlement::{Outcome, OutcomeWatch, TrackedOutcome},
};

/// How many deliveries may wait behind others by default: a page of the default `read_limit`, so that the other keys of
/// a page are found while one key is busy.
const MAX_WAITING: usize = 1_000;

/// Adds to streams of deliveries what the combinators of [`futures`] lack: work on many deliveries at once, and on
/// those of one partition key one after another. In the [`prelude`](crate::prelude).
///
/// Every stream of `Result<Delivery<T>, E>` has it: a [`Subscription`](crate::Subscription), a
/// [`Tolerant`](crate::Tolerant) one, and what `map_ok`, `err_into` and others make of them.
pub trait DeliveryStreamExt<T, E>: Stream<Item = Result<Delivery<T>, E>> + Sized {
    /// Runs up to `n` futures at once, at most one for each partition key, and yields their results as they finish.
    ///
    /// It is `try_buffer_unordered` that keeps the order of each key. (AWS Lambda calls this its parallelization
    /// factor.)
    ///
    /// ```
    /// use kinesis_stream::prelude::*;
    /// # async fn balance(account: Option<&str>, booking: &[u8]) -> Result<(), KinesisError> { Ok(()) }
    ///
    /// async fn book(bookings: Subscription) -> Result<(), KinesisError> {
    ///     bookings
    ///         .tolerant()
    ///         .buffer_by_key(32, async |delivery| {
    ///             // One booking of an account at a time, in the order in which they were put.
    ///             balance(delivery.partition_key(), delivery.payload()).await?;
    ///             delivery.commit().await
    ///         })
    ///         .try_for_each(async |_| Ok(()))
    ///         .await
    /// }
    /// ```
    ///
    /// - **It yields** the result of each future as soon as it finishes, so results of different keys come in any
    ///   order. It also yields each error of the source, at once. Neither kind of error ends the stream.
    /// - **It ends** once the source has ended and all futures have finished.
    /// - **Its futures run only while it is polled,** like those of every buffered stream. If the code behind it pauses,
    ///   a time limit inside of `f` runs on and may end although the work was done. Keep the code behind it short, or
    ///   spawn the work as a task.
    ///
    /// # Order
    ///
    /// `f` is called for the deliveries of a key in the order in which they arrive, and for each one only after the
    /// future of the one before has finished.
    ///
    /// A delivery that its future *gave back* (nacked it, or dropped it where that means the same) blocks its key:
    /// later deliveries of the key wait until it was redelivered and its next future finished without giving it back.
    /// Other keys continue. It does not matter where the record is settled. So a record that always fails blocks its
    /// key, and in the end, through [`max_in_flight`](crate::KinesisStream::max_in_flight), its shard. Three things
    /// prevent that:
    ///
    /// - [Reject](Delivery::reject) a record that no attempt can help. Its key continues at once.
    /// - Set [`max_attempts`](crate::KinesisStream::max_attempts). The key continues once the
    ///   [dead letter](crate::KinesisStream::dead_letter) is written, or once the stream has yielded
    ///   [`AttemptsSpent`](crate::KinesisError::AttemptsSpent).
    /// - Look at [`Delivery::attempt`], before or in `f`, and put the record aside yourself.
    ///
    /// A delivery that outlives its future unsettled, in the result or in another task, blocks nothing: the order is
    /// then that of the futures. If it is given back later, it is redelivered after those that started meanwhile.
    ///
    /// A key is the same key wherever it comes from: another shard, after a split or merge or through explicit hash
    /// keys, and another stream that is merged into this one. A record without a partition key has no order and waits
    /// for none.
    ///
    /// # How many may wait
    ///
    /// - The source is polled only while fewer than `n` futures run and fewer than
    ///   [`max_waiting`](BufferBy::max_waiting) deliveries wait behind them, 1,000 by default. At that bound reading
    ///   slows down and running futures continue.
    /// - Deliveries that wait behind one that was given back do not count, for two reasons: that one can be redelivered
    ///   only if the source is polled, and other keys have to make progress. They are unsettled, so the `max_in_flight`
    ///   of their shard bounds them: choose it with this in mind.
    ///
    /// # When a shard is lost
    ///
    /// If the lease of a shard is lost, or its reading starts over, deliveries of it that wait here are dropped and `f`
    /// is not called for them: the instance that reads the shard next delivers them again. When the subscription
    /// closes, `f` is still called for deliveries that wait behind running futures, within the drain time. It is not
    /// called for those that wait behind a record that was given back: they are redelivered with it, in order, after
    /// the next start.
    ///
    /// # Cost
    ///
    /// About a microsecond for each delivery, for any number of keys. Nothing is spawned: the futures run in the task
    /// that polls the stream. An `n` of 0 counts as 1.
    ///
    /// # Cancel safety
    ///
    /// `next` is cancel safe. Dropping the stream drops the running futures, with the usual effect on the deliveries in
    /// them. It gives waiting deliveries back, also under [`OnDrop::Ack`](crate::OnDrop::Ack). `f` was not called for
    /// these, so they keep the attempts they had.
    ///
    /// # Panics
    ///
    /// If `f` or a future panics, polling panics too. Do not poll the stream after that.
    fn buffer_by_key<R, F, Fut>(self, n: usize, f: F) -> BufferBy<Self, T, F, Fut>
    where
        F: FnMut(Delivery<T>) -> Fut,
        Fut: Future<Output = Result<R, E>>,
    {
        BufferBy::new(self, QueueBy::PartitionKey, n, f)
    }

    /// Runs up to `n` futures at once, at most one for each shard, and yields their results as they finish. In all else
    /// it is [`buffer_by_key`](Self::buffer_by_key), with the shard in place of the key.
    ///
    /// This keeps the whole order of each shard. The children of a split or merge begin once all records of their
    /// parents are settled.
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
        BufferBy::new(self, QueueBy::Shard, n, f)
    }
}

impl<S, T, E> DeliveryStreamExt<T, E> for S where S: Stream<Item = Result<Delivery<T>, E>> {}

/// What decides which queue a delivery belongs to.
#[derive(Clone, Copy, Debug)]
enum QueueBy {
    PartitionKey,
    Shard,
}

/// The results of parallel work on deliveries, made by [`buffer_by_key`](DeliveryStreamExt::buffer_by_key) and
/// [`buffer_by_shard`](DeliveryStreamExt::buffer_by_shard).
///
/// It is fused, `Unpin` for any futures, and `Send` if the source, `f` and the futures are.
#[must_use = "streams do nothing unless polled"]
pub struct BufferBy<S, T, F, Fut: Future> {
    /// The first field, so it is dropped first: what dropping a delivery means depends on whether its source still
    /// lives.
    source: Pin<Box<S>>,
    ended: bool,
    f: F,
    /// Each future with the settlement of its delivery; none for a delivery without a key.
    running: FuturesUnordered<Join<Fut, Ready<Option<Arc<TrackedOutcome>>>>>,
    queues: KeyQueues<Delivery<T>>,
    watch: OutcomeWatch,
    queue_by: QueueBy,
    hasher: RandomState,
    n: usize,
    max_waiting: usize,
}

/// The pinned parts are on the heap.
impl<S, T, F, Fut: Future> Unpin for BufferBy<S, T, F, Fut> {}

impl<S, T, F, Fut: Future> BufferBy<S, T, F, Fut> {
    fn new(source: S, queue_by: QueueBy, n: usize, f: F) -> Self {
        Self {
            source: Box::pin(source),
            ended: false,
            f,
            running: FuturesUnordered::new(),
            queues: KeyQueues::new(),
            watch: OutcomeWatch::default(),
            queue_by,
            hasher: RandomState::new(),
            n: n.max(1),
            max_waiting: MAX_WAITING,
        }
    }

    /// How many deliveries may wait for their key: 1,000 by default, a page of the default
    /// [`read_limit`](crate::KinesisStream::read_limit); 0 counts as 1. At this bound the source is not polled.
    /// Deliveries that wait behind a record that was given back do not count.
    ///
    /// Raise it if some keys are much more frequent than others: more waiting deliveries mean that more other keys are
    /// found. Each one is a record in memory.
    pub fn max_waiting(mut self, max: usize) -> Self {
        self.max_waiting = max.max(1);
        self
    }

    /// The source, for its handles.
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
    /// Unblocks the queues that wait for a record which was settled or lost elsewhere.
    fn apply_settlements(&mut self, cx: &mut Context<'_>) {
        if self.queues.is_awaiting() {
            self.watch.register(cx.waker());
        }
        for settlement in self.watch.take() {
            if settlement.outcome() == Outcome::Settled {
                self.queues.settled(settlement.queue, settlement.record_key);
            } else {
                give_back(self.queues.lost(settlement.queue, settlement.record_key));
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
                give_back(self.queues.done(queue, WorkEnd::Free));
            }
        }
    }

    fn start(&mut self, queue: Option<u64>, mut delivery: Delivery<T>) {
        let settlement = queue.map(|queue| delivery.settlement(&self.watch, queue));
        self.running.push(future::join((self.f)(delivery), future::ready(settlement)));
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Delivery<T>, E>>> {
        if self.ended || self.running.len() >= self.n || self.queues.behind_work() >= self.max_waiting {
            return Poll::Pending;
        }
        self.source.as_mut().poll_next(cx)
    }

    /// Starts a delivery if its queue is free, else queues it.
    fn accept(&mut self, delivery: Delivery<T>) {
        let queue = match self.queue_by {
            QueueBy::PartitionKey => delivery.partition_key().map(|key| self.hasher.hash_one(key)),
            QueueBy::Shard => Some(self.hasher.hash_one((delivery.stream(), delivery.shard()))),
        };
        let Some(queue) = queue else { return self.start(None, delivery) };
        let (record, again) = (delivery.record_key(), delivery.is_redelivery());
        if let Some(delivery) = self.queues.arrive(queue, record, again, delivery) {
            self.start(Some(queue), delivery);
        }
    }

    /// The future of a delivery has finished and was dropped.
    fn finish(&mut self, settlement: &TrackedOutcome) {
        let record = settlement.record_key;
        let end = match settlement.outcome() {
            Outcome::Delivered | Outcome::Settled => WorkEnd::Free,
            Outcome::Redelivered if self.ended => WorkEnd::Free,
            Outcome::Returned | Outcome::Redelivered if !self.ended => WorkEnd::Back(record),
            Outcome::Returned | Outcome::Redelivered | Outcome::Lost => WorkEnd::Lost(record),
        };
        give_back(self.queues.done(settlement.queue, end));
    }
}

/// Gives back deliveries for which `f` will not be called, whatever dropping them would mean.
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
        this.apply_settlements(cx);
        loop {
            this.start_ready();
            match this.poll_source(cx) {
                Poll::Ready(Some(Ok(delivery))) => this.accept(delivery),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => {
                    this.ended = true;
                    give_back(this.queues.end());
                }
                Poll::Pending => break,
            }
        }
        match this.running.poll_next_unpin(cx) {
            Poll::Ready(Some((result, settlement))) => {
                if let Some(settlement) = settlement {
                    this.finish(&settlement);
                }
                Poll::Ready(Some(result))
            }
            Poll::Ready(None) if this.ended => Poll::Ready(None),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// At least the running futures. Waiting deliveries may still be dropped without a result.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let here = self.running.len() + self.queues.len();
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
            .field("queue_by", &self.queue_by)
            .field("running", &self.running.len())
            .field("waiting", &self.queues.len())
            .finish_non_exhaustive()
    }
}
