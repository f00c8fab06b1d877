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
    task::{Context, Poll, ready},
};

use futures::{
    Stream, StreamExt,
    stream::{FusedStream, FuturesUnordered},
};
use pin_project_lite::pin_project;

use super::key_queues::{KeyQueues, WorkEnd};
use crate::{
    delivery::Delivery,
    state::settlement::{Outcome, OutcomeWatch, TrackedOutcome},
};

/// How many deliveries may wait behind others by default: a page of the default `read_limit`, so that the other keys of
/// a page are found while one key is busy.
const MAX_WAITING: usize = 1_000;

/// What decides which queue a delivery belongs to.
#[derive(Clone, Copy, Debug)]
pub(super) enum QueueBy {
    PartitionKey,
    Shard,
}

pin_project! {
    /// The results of parallel work on deliveries, made by
    /// [`buffer_by_key`](crate::DeliveryStreamExt::buffer_by_key) and
    /// [`buffer_by_shard`](crate::DeliveryStreamExt::buffer_by_shard).
    ///
    /// It is fused. It is `Unpin` if the source is, whatever the futures are, and `Send` if the source, `f` and the
    /// futures are.
    #[must_use = "streams do nothing unless polled"]
    pub struct BufferBy<S, T, F, Fut> {
        // The first field, so it is dropped first: what dropping a delivery means depends on whether its source still
        // lives.
        #[pin]
        source: S,
        work: KeyedWork<T, F, Fut>,
    }

    impl<S, T, F, Fut> PinnedDrop for BufferBy<S, T, F, Fut> {
        fn drop(this: Pin<&mut Self>) {
            give_back(this.project().work.queues.clear());
        }
    }
}

/// All of a [`BufferBy`] except its source.
struct KeyedWork<T, F, Fut> {
    ended: bool,
    f: F,
    running: FuturesUnordered<TrackedWork<Fut>>,
    queues: KeyQueues<Delivery<T>>,
    watch: OutcomeWatch,
    queue_by: QueueBy,
    hasher: RandomState,
    n: usize,
    max_waiting: usize,
}

pin_project! {
    /// A future with the settlement of its delivery; none for a delivery without a key.
    struct TrackedWork<Fut> {
        #[pin]
        future: Fut,
        settlement: Option<Arc<TrackedOutcome>>,
    }
}

impl<Fut: Future> Future for TrackedWork<Fut> {
    type Output = (Fut::Output, Option<Arc<TrackedOutcome>>);

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.future.poll(cx));
        Poll::Ready((result, this.settlement.take()))
    }
}

impl<S, T, F, Fut> BufferBy<S, T, F, Fut> {
    pub(super) fn new(source: S, queue_by: QueueBy, n: usize, f: F) -> Self {
        let work = KeyedWork {
            ended: false,
            f,
            running: FuturesUnordered::new(),
            queues: KeyQueues::new(),
            watch: OutcomeWatch::default(),
            queue_by,
            hasher: RandomState::new(),
            n: n.max(1),
            max_waiting: MAX_WAITING,
        };
        Self { source, work }
    }

    /// How many deliveries may wait for their key: 1,000 by default, a page of the default
    /// [`read_limit`](crate::KinesisStream::read_limit); 0 counts as 1. At this bound the source is not polled.
    /// Deliveries that wait behind a record that was given back do not count.
    ///
    /// Raise it if some keys are much more frequent than others: more waiting deliveries mean that more other keys are
    /// found. Each one is a record in memory.
    pub fn max_waiting(mut self, max: usize) -> Self {
        self.work.max_waiting = max.max(1);
        self
    }

    /// The source, for its handles.
    pub fn get_ref(&self) -> &S {
        &self.source
    }
}

impl<T, F, Fut> KeyedWork<T, F, Fut>
where
    F: FnMut(Delivery<T>) -> Fut,
    Fut: Future,
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
        self.running.push(TrackedWork { future: (self.f)(delivery), settlement });
    }

    /// Whether another delivery may come.
    fn has_room(&self) -> bool {
        !self.ended && self.running.len() < self.n && self.queues.behind_work() < self.max_waiting
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
        let mut this = self.project();
        let work = this.work;
        work.apply_settlements(cx);
        loop {
            work.start_ready();
            if !work.has_room() {
                break;
            }
            match this.source.as_mut().poll_next(cx) {
                Poll::Ready(Some(Ok(delivery))) => work.accept(delivery),
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => {
                    work.ended = true;
                    give_back(work.queues.end());
                }
                Poll::Pending => break,
            }
        }
        match work.running.poll_next_unpin(cx) {
            Poll::Ready(Some((result, settlement))) => {
                if let Some(settlement) = settlement {
                    work.finish(&settlement);
                }
                Poll::Ready(Some(result))
            }
            Poll::Ready(None) if work.ended => Poll::Ready(None),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// At least the running futures. Waiting deliveries may still be dropped without a result.
    fn size_hint(&self) -> (usize, Option<usize>) {
        let running = self.work.running.len();
        let here = running + self.work.queues.len();
        let (_, most) = if self.work.ended { (0, Some(0)) } else { self.source.size_hint() };
        (running, most.and_then(|most| most.checked_add(here)))
    }
}

impl<S, T, E, R, F, Fut> FusedStream for BufferBy<S, T, F, Fut>
where
    S: Stream<Item = Result<Delivery<T>, E>>,
    F: FnMut(Delivery<T>) -> Fut,
    Fut: Future<Output = Result<R, E>>,
{
    fn is_terminated(&self) -> bool {
        self.work.ended && self.work.running.is_empty()
    }
}

impl<S: fmt::Debug, T, F, Fut> fmt::Debug for BufferBy<S, T, F, Fut> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BufferBy")
            .field("source", &self.source)
            .field("queue_by", &self.work.queue_by)
            .field("running", &self.work.running.len())
            .field("waiting", &self.work.queues.len())
            .finish_non_exhaustive()
    }
}
