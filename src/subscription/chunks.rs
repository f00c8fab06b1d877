//! Chunks of any stream, with a time limit: for what a pipeline made of deliveries.
//!
//! [`batches`](super::batches) are for deliveries. These adapters take any items, so they stand after a `map`.
//!
//! **The item is a type parameter.** With `S::Item` in a field, the compiler cannot prove that a stream over an async
//! closure is `Send`, and nobody could spawn a pipeline with these adapters behind one.

use std::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{Stream, stream::FusedStream};
use pin_project_lite::pin_project;
use tokio::time::Instant;

use crate::util::timer::Timer;

/// Adds chunks with a time limit to every stream. In the [`prelude`](crate::prelude).
pub trait ChunkStreamExt<T>: Stream<Item = T> + Sized {
    /// Collects items into vectors. A vector is yielded once it has `n` items, or `timeout` after its first one.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use kinesis_stream::prelude::*;
    /// # async fn insert(rows: &[Delivery<String>]) {}
    ///
    /// async fn archive(quakes: Subscription) -> Result<(), KinesisError> {
    ///     let text = |quake: Delivery| quake.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    ///     quakes
    ///         .tolerant()
    ///         .map_ok(text)
    ///         .chunks_timeout(500, Duration::from_millis(50))
    ///         .map(|chunk| chunk.into_iter().collect::<Result<Vec<_>, KinesisError>>())
    ///         .try_for_each(async |chunk| {
    ///             insert(&chunk).await;
    ///             commit_all(chunk).await.map(drop)
    ///         })
    ///         .await
    /// }
    /// ```
    ///
    /// - **It yields** vectors of at least 1 and at most `n` items; an `n` of 0 counts as 1. There is no limit for
    ///   `timeout`; with zero, a vector holds only the items that are ready now.
    /// - **It ends** with the source. Items that are left are yielded before that, at once.
    /// - **Errors** are items like all others. [`try_chunks_timeout`](TryChunkStreamExt::try_chunks_timeout) yields
    ///   them as such.
    ///
    /// Dropping it drops the source and then the items that it holds. For deliveries, [`DeliveryStreamExt::batches`]
    /// does more: see there.
    ///
    /// # Cancel safety
    ///
    /// `next` is cancel safe: items that were not yielded stay in the stream.
    ///
    /// # Panics
    ///
    /// Polling panics outside of a tokio runtime.
    ///
    /// [`DeliveryStreamExt::batches`]: crate::DeliveryStreamExt::batches
    fn chunks_timeout(self, n: usize, timeout: Duration) -> ChunksTimeout<Self, T> {
        ChunksTimeout { source: self, chunk: OpenChunk::new(n, timeout), ended: false }
    }
}

impl<S: Stream<Item = T>, T> ChunkStreamExt<T> for S {}

/// Adds chunks with a time limit to every stream of results. In the [`prelude`](crate::prelude).
pub trait TryChunkStreamExt<T, E>: Stream<Item = Result<T, E>> + Sized {
    /// Like [`chunks_timeout`](ChunkStreamExt::chunks_timeout) for a stream of results. At an error it yields the items
    /// that it has, and then the error. So a `try_` combinator behind it sees every item before the error, and none is
    /// lost.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use kinesis_stream::prelude::*;
    /// # async fn insert(rows: &[Delivery]) {}
    ///
    /// async fn archive(quakes: Subscription) -> Result<(), KinesisError> {
    ///     quakes
    ///         .tolerant()
    ///         .try_chunks_timeout(500, Duration::from_millis(50))
    ///         .try_for_each(async |chunk| {
    ///             insert(&chunk).await;
    ///             commit_all(chunk).await.map(drop)
    ///         })
    ///         .await
    /// }
    /// ```
    ///
    /// It continues after an error, as its source does.
    ///
    /// # Cancel safety
    ///
    /// `next` is cancel safe: items that were not yielded stay in the stream.
    ///
    /// # Panics
    ///
    /// Polling panics outside of a tokio runtime.
    fn try_chunks_timeout(self, n: usize, timeout: Duration) -> TryChunksTimeout<Self, T, E> {
        TryChunksTimeout { source: self, chunk: OpenChunk::new(n, timeout), error: None, ended: false }
    }
}

impl<S: Stream<Item = Result<T, E>>, T, E> TryChunkStreamExt<T, E> for S {}

/// The chunk that is being filled.
struct OpenChunk<T> {
    items: Vec<T>,
    /// When it is due. None if it is empty, or waits without a limit.
    due: Option<Instant>,
    n: usize,
    timeout: Duration,
    timer: Timer,
}

impl<T> OpenChunk<T> {
    fn new(n: usize, timeout: Duration) -> Self {
        Self { items: Vec::new(), due: None, n: n.max(1), timeout, timer: Timer::default() }
    }

    /// Adds an item. Returns the chunk if it is full.
    fn add(&mut self, item: T) -> Option<Vec<T>> {
        if self.items.is_empty() {
            self.due = Instant::now().checked_add(self.timeout);
        }
        self.items.push(item);
        if self.items.len() < self.n { None } else { self.take() }
    }

    /// The items so far, if there are any.
    fn take(&mut self) -> Option<Vec<T>> {
        self.due = None;
        (!self.items.is_empty()).then(|| mem::take(&mut self.items))
    }

    /// The items so far, once they are due.
    fn poll_due(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<T>>> {
        match self.due {
            None => return Poll::Pending,
            Some(due) if due <= Instant::now() => {}
            Some(due) => ready!(self.timer.poll(due, cx)),
        }
        Poll::Ready(self.take())
    }

    /// How many chunks come of these items and of as many as the source says.
    fn size_hint(&self, (least, most): (usize, Option<usize>)) -> (usize, Option<usize>) {
        let here = self.items.len();
        (least.saturating_add(here).div_ceil(self.n), most.and_then(|most| most.checked_add(here)))
    }
}

pin_project! {
    /// The chunks of a stream: see [`chunks_timeout`](ChunkStreamExt::chunks_timeout). It is fused.
    #[must_use = "streams do nothing unless polled"]
    pub struct ChunksTimeout<S, T> {
        // The first field, so it is dropped first: a delivery that is dropped after its subscription is redelivered,
        // also under `ack_on_drop`.
        #[pin]
        source: S,
        chunk: OpenChunk<T>,
        ended: bool,
    }
}

impl<S, T> ChunksTimeout<S, T> {
    /// The source, for its handles.
    pub fn get_ref(&self) -> &S {
        &self.source
    }
}

impl<S: Stream<Item = T>, T> Stream for ChunksTimeout<S, T> {
    type Item = Vec<T>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        while !*this.ended {
            match this.source.as_mut().poll_next(cx) {
                Poll::Ready(Some(item)) => {
                    if let Some(chunk) = this.chunk.add(item) {
                        return Poll::Ready(Some(chunk));
                    }
                }
                Poll::Ready(None) => *this.ended = true,
                Poll::Pending => return this.chunk.poll_due(cx),
            }
        }
        Poll::Ready(this.chunk.take())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.chunk.size_hint(if self.ended { (0, Some(0)) } else { self.source.size_hint() })
    }
}

impl<S: Stream<Item = T>, T> FusedStream for ChunksTimeout<S, T> {
    fn is_terminated(&self) -> bool {
        self.ended && self.chunk.items.is_empty()
    }
}

impl<S: fmt::Debug, T> fmt::Debug for ChunksTimeout<S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunksTimeout")
            .field("source", &self.source)
            .field("n", &self.chunk.n)
            .field("timeout", &self.chunk.timeout)
            .field("held", &self.chunk.items.len())
            .finish_non_exhaustive()
    }
}

pin_project! {
    /// The chunks of a stream of results: see [`try_chunks_timeout`](TryChunkStreamExt::try_chunks_timeout). It is
    /// fused.
    #[must_use = "streams do nothing unless polled"]
    pub struct TryChunksTimeout<S, T, E> {
        // The first field: see `ChunksTimeout`.
        #[pin]
        source: S,
        chunk: OpenChunk<T>,
        // Comes next, after the chunk in front of it was yielded.
        error: Option<E>,
        ended: bool,
    }
}

impl<S, T, E> TryChunksTimeout<S, T, E> {
    /// The source, for its handles.
    pub fn get_ref(&self) -> &S {
        &self.source
    }
}

impl<S: Stream<Item = Result<T, E>>, T, E> Stream for TryChunksTimeout<S, T, E> {
    type Item = Result<Vec<T>, E>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut this = self.project();
        if let Some(error) = this.error.take() {
            return Poll::Ready(Some(Err(error)));
        }
        while !*this.ended {
            match this.source.as_mut().poll_next(cx) {
                Poll::Ready(Some(Ok(item))) => {
                    if let Some(chunk) = this.chunk.add(item) {
                        return Poll::Ready(Some(Ok(chunk)));
                    }
                }
                Poll::Ready(Some(Err(error))) => {
                    let Some(chunk) = this.chunk.take() else { return Poll::Ready(Some(Err(error))) };
                    *this.error = Some(error);
                    return Poll::Ready(Some(Ok(chunk)));
                }
                Poll::Ready(None) => *this.ended = true,
                Poll::Pending => return this.chunk.poll_due(cx).map(|chunk| chunk.map(Ok)),
            }
        }
        Poll::Ready(this.chunk.take().map(Ok))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let (least, most) = self.chunk.size_hint(if self.ended { (0, Some(0)) } else { self.source.size_hint() });
        let error = usize::from(self.error.is_some());
        (least.saturating_add(error), most.and_then(|most| most.checked_add(error)))
    }
}

impl<S: Stream<Item = Result<T, E>>, T, E> FusedStream for TryChunksTimeout<S, T, E> {
    fn is_terminated(&self) -> bool {
        self.ended && self.chunk.items.is_empty() && self.error.is_none()
    }
}

impl<S: fmt::Debug, T, E> fmt::Debug for TryChunksTimeout<S, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TryChunksTimeout")
            .field("source", &self.source)
            .field("n", &self.chunk.n)
            .field("timeout", &self.chunk.timeout)
            .field("held", &self.chunk.items.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
