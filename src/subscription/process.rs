//! Batches that a handler processes: the handler answers which records failed, and the library settles.
//!
//! [`Process`] polls the batches and runs the calls. `batch_failures` decides what an answer means, `key_queues` which
//! batch of a shard may start, and `batch_parts` keeps the parts of a batch and settles them.
//!
//! **One batch of a shard at a time,** so that the order of the shard is kept also where a batch is halved.
//!
//! **The handler gets an `Arc`,** not a reference. A reference would make the future of the handler depend on a
//! lifetime, and the compiler could not prove that a pipeline with such a handler is `Send`.

use std::{
    collections::HashMap,
    fmt::{self, Display},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{Stream, StreamExt, stream::FuturesUnordered};
use pin_project_lite::pin_project;
use tokio::time::Instant;

use super::{
    batch::Batch,
    batch_builder::Grouping,
    batch_failures::{BatchFailures, after_call},
    batch_parts::{BatchParts, NextStep, put_back},
    batches::Batches,
    key_queues::{KeyQueues, WorkEnd},
};
use crate::{delivery::Delivery, state::settlement::RecordKey, util::timer::Timer};

/// How many batches may wait for their shard. At this bound the source is not polled. It is well above the batches that
/// a shard can have within the default `max_in_flight`, so that one slow shard does not keep others from starting.
const MAX_WAITING: usize = 100;

/// How often a pause looks whether its shard is leaving this instance: a hand-over waits for open deliveries.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

impl<S, T, E> Batches<S, T, E>
where
    S: Stream<Item = Result<Delivery<T>, E>>,
{
    /// Calls `handler` with each batch and settles the records as it answers, up to `n` shards at a time. An `n` of 0
    /// counts as 1.
    ///
    /// ```
    /// use kinesis_stream::prelude::*;
    /// # async fn insert(rows: &[Delivery]) -> std::io::Result<()> { Ok(()) }
    ///
    /// async fn archive(quakes: Subscription) -> Result<(), KinesisError> {
    ///     quakes.tolerant().batches(500)?.process(8, async |batch| insert(batch.deliveries()).await).await
    /// }
    /// ```
    ///
    /// | the handler answers | what happens |
    /// |---|---|
    /// | `Ok(())`, `Ok(BatchFailures::none())` | all records are acknowledged |
    /// | `Ok(vec![3, 7])`, `Ok(failures)` | these records are given back or rejected, all others are acknowledged |
    /// | `Ok(BatchFailures::all(reason))` | all records are given back: no smaller batch would help |
    /// | `Err(error)` | something in the batch is wrong: it is halved |
    ///
    /// A batch that is halved goes to the handler again, first its first half, then its second one. So a single poison
    /// record soon stands alone, at the cost of two calls for each halving: at most 18 for a batch of 500. All other
    /// records are acknowledged as their part succeeds, once each. A record that stands alone is given back with the
    /// error as its reason. From there on the settings for single records apply: it is redelivered after a pause, and
    /// after [`max_attempts`](crate::KinesisStream::max_attempts) it becomes a
    /// [dead letter](crate::KinesisStream::dead_letter) or an error. The calls of one halving are one attempt.
    ///
    /// If each part of a batch fails because something else is wrong, each record is called alone in the end. Answer
    /// `BatchFailures::all` where you know that, for example if the connection is lost.
    ///
    /// The handler shares the batch with the library, which settles it once the handler's future has finished. A
    /// handler that keeps the batch beyond that, in another task, keeps its records: they are settled when it drops the
    /// batch, as [`on_drop`](crate::KinesisStream::on_drop) says.
    ///
    /// # Order
    ///
    /// A batch holds records of one shard, as with [`batches_by_shard`](crate::Subscription::batches_by_shard). The
    /// next batch of a shard begins after the one before is settled, and parts of a batch are called in order. So the
    /// handler gets the records of a shard in their order. A redelivered record comes in a later batch, as ever;
    /// [`in_order`](Process::in_order) makes the shard wait for it instead.
    ///
    /// Batches of other shards continue meanwhile. Up to 100 batches wait for their shard; at that bound reading slows
    /// down.
    ///
    /// # When a shard is lost
    ///
    /// If the lease of a shard is lost, or its reading starts over, the handler gets no other part of its batches. When
    /// the subscription closes, batches that wait are still processed, within the drain time.
    ///
    /// # Errors
    ///
    /// The first error of the source. Records that are not settled by then are given back. Put
    /// [`tolerant`](crate::Subscription::tolerant) in front, or a filter that takes the errors out.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped gives all records back that are not settled, whatever
    /// [`on_drop`](crate::KinesisStream::on_drop) says. Those that no handler received keep the attempts they had.
    ///
    /// # Panics
    ///
    /// If the handler panics, this panics too, and gives the records back.
    pub fn process<R, X, F, Fut>(self, n: usize, handler: F) -> Process<S, T, E, F, Fut>
    where
        F: FnMut(Arc<Batch<T>>) -> Fut,
        Fut: Future<Output = Result<R, X>>,
        R: Into<BatchFailures>,
        X: Display,
    {
        let (waiting, running) = (KeyQueues::new(), FuturesUnordered::new());
        let pauses = FuturesUnordered::new();
        let (n, blocked, in_order, ended) = (n.max(1), HashMap::new(), false, false);
        let calls = Calls { handler, n, waiting, running, pauses, blocked, in_order, ended };
        Process { batches: self.grouped(Grouping::ByShard), calls }
    }
}

pin_project! {
    /// The future of [`Batches::process`]. It is `Send` if the source, the handler and its futures are.
    #[must_use = "futures do nothing unless polled"]
    pub struct Process<S, T, E, F, Fut> {
        #[pin]
        batches: Batches<S, T, E>,
        calls: Calls<T, F, Fut>,
    }

    impl<S, T, E, F, Fut> PinnedDrop for Process<S, T, E, F, Fut> {
        // While the source lives: what giving a record back means depends on it.
        fn drop(this: Pin<&mut Self>) {
            let calls = this.project().calls;
            calls.running.clear();
            calls.pauses.clear();
            calls.waiting.clear().for_each(put_back);
        }
    }
}

/// The calls of the handler.
struct Calls<T, F, Fut> {
    handler: F,
    n: usize,
    waiting: KeyQueues<Batch<T>>,
    running: FuturesUnordered<HandlerCall<T, Fut>>,
    /// Batches with a record that waits for its next attempt.
    pauses: FuturesUnordered<RetryPause<T>>,
    /// Shards of which a record was given back although its batches are to be in order.
    blocked: HashMap<u64, RecordKey>,
    in_order: bool,
    ended: bool,
}

impl<S, T, E, F, Fut> Process<S, T, E, F, Fut> {
    /// Keeps the order of a shard also where a record fails: the rest of its batch and all later batches of its shard
    /// wait until the record is done or given up. Not set by default, because a record that always fails then stops its
    /// shard: set [`max_attempts`](crate::KinesisStream::max_attempts), or reject it.
    ///
    /// A record that failed gets its next attempt after the usual pause, alone or with those that failed in the same
    /// call. Records behind it in that call that did not fail are done by then. Other shards continue.
    ///
    /// If the shard is handed over or the subscription closes during the pause, the record and everything behind it is
    /// given back, and the next holder of the shard delivers it in order.
    pub fn in_order(mut self) -> Self {
        self.calls.in_order = true;
        self
    }
}

pin_project! {
    /// Waits until it is time for the next attempt of a record, or until there will be none.
    struct RetryPause<T> {
        of: Option<(u64, BatchParts<T>)>,
        until: Instant,
        timer: Timer,
    }
}

impl<T> Future for RetryPause<T> {
    type Output = Option<(u64, BatchParts<T>)>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        loop {
            let now = Instant::now();
            if now >= *this.until || !this.of.as_ref().is_some_and(|(_, parts)| parts.may_retry()) {
                return Poll::Ready(this.of.take());
            }
            ready!(this.timer.poll((now + LOOK_INTERVAL).min(*this.until), cx));
        }
    }
}

pin_project! {
    /// One call of the handler, with the batch that it belongs to.
    struct HandlerCall<T, Fut> {
        // The first field, so it is dropped first: the parts need the batch that the handler has.
        #[pin]
        future: Fut,
        // None after the future has finished.
        of: Option<(u64, BatchParts<T>)>,
    }
}

impl<T, Fut: Future> Future for HandlerCall<T, Fut> {
    type Output = (Option<(u64, BatchParts<T>)>, Fut::Output);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let answer = ready!(this.future.poll(cx));
        Poll::Ready((this.of.take(), answer))
    }
}

impl<T, F, Fut> Calls<T, F, Fut>
where
    F: FnMut(Arc<Batch<T>>) -> Fut,
    Fut: Future,
{
    fn start_waiting(&mut self) {
        while self.running.len() < self.n
            && let Some((queue, batch)) = self.waiting.next()
        {
            self.start(queue, batch);
        }
    }

    /// Whether another batch may come.
    fn has_room(&self) -> bool {
        !self.ended && self.running.len() < self.n && self.waiting.behind_work() < MAX_WAITING
    }

    /// Starts a batch if its shard is free, else queues it.
    fn accept(&mut self, batch: Batch<T>) {
        let Some(first) = batch.deliveries.first().map(Delivery::record_key) else { return };
        let queue = first.shard as u64;
        match self.blocked.get(&queue) {
            Some(blocking) if blocking.shares_generation(&first) => return put_back(batch),
            Some(_) => drop(self.blocked.remove(&queue)),
            None => {}
        }
        if let Some(batch) = self.waiting.arrive(queue, first, false, batch) {
            self.start(queue, batch);
        }
    }

    fn start(&mut self, queue: u64, batch: Batch<T>) {
        if let Some(first) = batch.deliveries.first() {
            first.count_batch();
        }
        self.call(queue, BatchParts::new(batch, self.in_order));
    }

    /// Goes on with a batch: calls the handler with its next part, waits, or leaves the shard to the next batch.
    fn call(&mut self, queue: u64, mut parts: BatchParts<T>) {
        let end = match parts.next() {
            NextStep::Call(part) => {
                return self.running.push(HandlerCall { future: (self.handler)(part), of: Some((queue, parts)) });
            }
            NextStep::Pause(pause) => {
                let until = Instant::now() + pause;
                return self.pauses.push(RetryPause { of: Some((queue, parts)), until, timer: Timer::default() });
            }
            NextStep::Done => WorkEnd::Free,
            NextStep::Blocked(record) => {
                self.blocked.insert(queue, record);
                WorkEnd::Lost(record)
            }
        };
        self.waiting.done(queue, end).into_iter().for_each(put_back);
    }

    /// A batch whose pause is over, if another call may run.
    fn poll_pauses(&mut self, cx: &mut Context<'_>) -> Poll<(u64, BatchParts<T>)> {
        if self.running.len() >= self.n {
            return Poll::Pending;
        }
        match self.pauses.poll_next_unpin(cx) {
            Poll::Ready(Some(Some(of))) => Poll::Ready(of),
            Poll::Ready(_) | Poll::Pending => Poll::Pending,
        }
    }
}

impl<S, T, E, R, X, F, Fut> Future for Process<S, T, E, F, Fut>
where
    S: Stream<Item = Result<Delivery<T>, E>>,
    F: FnMut(Arc<Batch<T>>) -> Fut,
    Fut: Future<Output = Result<R, X>>,
    R: Into<BatchFailures>,
    X: Display,
{
    type Output = Result<(), E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let calls = this.calls;
        loop {
            calls.start_waiting();
            match calls.running.poll_next_unpin(cx) {
                Poll::Ready(Some((Some((queue, mut parts)), answer))) => {
                    parts.called(|len| after_call(len, answer.map(Into::into)));
                    calls.call(queue, parts);
                    continue;
                }
                Poll::Ready(_) | Poll::Pending => {}
            }
            if let Poll::Ready((queue, parts)) = calls.poll_pauses(cx) {
                calls.call(queue, parts);
                continue;
            }
            if calls.ended && calls.running.is_empty() && calls.pauses.is_empty() {
                return Poll::Ready(Ok(()));
            }
            if !calls.has_room() {
                return Poll::Pending;
            }
            match ready!(this.batches.as_mut().poll_next(cx)?) {
                Some(batch) => calls.accept(batch),
                None => calls.ended = true,
            }
        }
    }
}

impl<S: fmt::Debug, T, E, F, Fut> fmt::Debug for Process<S, T, E, F, Fut> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Process")
            .field("batches", &self.batches)
            .field("n", &self.calls.n)
            .field("in_order", &self.calls.in_order)
            .field("running", &self.calls.running.len())
            .field("waiting", &self.calls.waiting.len())
            .finish_non_exhaustive()
    }
}
