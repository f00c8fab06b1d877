//! Everything that a pipeline needs, in one import: `use kinesis_stream::prelude::*;`
//!
//! The combinators are those of [`futures`]. They lack two things, which are added here:
//! [`chunks_timeout`](StreamTimeoutExt::chunks_timeout), that of tokio-stream, for whatever a pipeline made of deliveries
//! (deliveries themselves come in [`batches`](Subscription::batches)), and
//! [`buffer_by_key`](DeliveryStreamExt::buffer_by_key). Importing the `StreamExt` of both futures and tokio-stream would
//! make most calls ambiguous; importing this does not.
//!
//! # Which one
//!
//! | to | use | order in which work begins | what an error does |
//! |---|---|---|---|
//! | work on many at once | [`try_for_each_concurrent`](TryStreamExt::try_for_each_concurrent) | that of the stream | ends it |
//! | the same, and never end | [`for_each_concurrent`](StreamExt::for_each_concurrent) | that of the stream | is yours to look at |
//! | pass results on as they come | [`try_buffer_unordered`](TryStreamExt::try_buffer_unordered) | that of the stream | is passed on |
//! | pass results on in order | [`try_buffered`](TryStreamExt::try_buffered), [`buffered`](StreamExt::buffered) | that of the stream | is passed on |
//! | work on many at once, of each key on one | [`buffer_by_key`](DeliveryStreamExt::buffer_by_key) | that of the stream, after the one before of its key | is passed on |
//! | write in batches | [`batches`](Subscription::batches) | that of the stream | is passed on |
//! | the same, of what deliveries became | [`chunks_timeout`](StreamTimeoutExt::chunks_timeout), [`ready_chunks`](StreamExt::ready_chunks) | that of the stream | is in the batch |
//! | feed a sink | [`forward`](StreamExt::forward) | that of the stream | ends it |
//!
//! A pipeline that ends at an error, or is dropped, gives back what is in flight in it. Nothing of it is lost.
//!
//! # One after the other, many at once
//!
//! [`map_ok`](TryStreamExt::map_ok) makes futures of deliveries, and `try_buffer_unordered` runs so many of them at once. It
//! passes errors on; what comes behind it ends at the first one. Behind [`tolerant`](Subscription::tolerant) those are only
//! errors that matter.
//!
//! ```
//! use kinesis_stream::prelude::*;
//! # async fn store(quake: &[u8]) -> Result<usize, KinesisError> { Ok(1) }
//!
//! async fn count(quakes: Subscription) -> Result<usize, KinesisError> {
//!     quakes
//!         .tolerant()
//!         .map_ok(async |delivery| {
//!             let rows = store(delivery.payload()).await?;
//!             delivery.commit().await?;
//!             Ok(rows)
//!         })
//!         .try_buffer_unordered(64)
//!         .try_fold(0, async |sum, rows| Ok(sum + rows))
//!         .await
//! }
//! ```
//!
//! `buffered` runs as many at once and gives results in the order of the stream, so that what is settled behind it is settled
//! in order, too:
//!
//! ```
//! use kinesis_stream::prelude::*;
//! # async fn locate(quake: &[u8]) -> String { String::new() }
//!
//! async fn print(quakes: Subscription) -> Result<(), KinesisError> {
//!     let mut located = quakes
//!         .tolerant()
//!         .map(async |item| {
//!             let delivery = item?;
//!             let place = locate(delivery.payload()).await;
//!             Ok::<_, KinesisError>(delivery.map(|_| place))
//!         })
//!         .buffered(64);
//!     while let Some(delivery) = located.try_next().await? {
//!         println!("{}", delivery.payload());
//!         delivery.ack();
//!     }
//!     Ok(())
//! }
//! ```
//!
//! `for_each_concurrent` ends only with the stream. What a failed one means is up to the function: here it comes again.
//!
//! ```
//! use kinesis_stream::prelude::*;
//! # async fn store(quake: &[u8]) -> Result<(), std::io::Error> { Ok(()) }
//!
//! async fn keep(quakes: Subscription) {
//!     quakes
//!         .for_each_concurrent(64, async |item| match item {
//!             Ok(delivery) => match store(delivery.payload()).await {
//!                 Ok(()) => delivery.ack(),
//!                 Err(error) => {
//!                     eprintln!("attempt {}: {error}", delivery.attempt());
//!                     delivery.nack();
//!                 }
//!             },
//!             Err(error) => eprintln!("{error}"),
//!         })
//!         .await;
//! }
//! ```
//!
//! # In batches
//!
//! `chunks_timeout` fills a batch until it is full or has waited long enough; one `commit_all` settles it.
//!
//! ```
//! use std::time::Duration;
//!
//! use kinesis_stream::prelude::*;
//! # async fn insert(rows: &[Delivery]) {}
//!
//! async fn archive(quakes: Subscription) -> Result<(), KinesisError> {
//!     quakes
//!         .tolerant()
//!         .chunks_timeout(500, Duration::from_millis(50))
//!         .map(|batch| batch.into_iter().collect::<Result<Vec<Delivery>, KinesisError>>())
//!         .try_for_each(async |batch| {
//!             insert(&batch).await;
//!             commit_all(batch).await.map(drop)
//!         })
//!         .await
//! }
//! ```
//!
//! `ready_chunks` waits for nothing: a batch is what is there, up to a page of a shard and more. While the batch before is
//! written, the next one gathers. [`try_ready_chunks`](TryStreamExt::try_ready_chunks) is the same without looking for errors in
//! the batch.
//!
//! ```
//! use kinesis_stream::prelude::*;
//! # async fn insert(rows: &[Delivery]) {}
//!
//! async fn archive(quakes: Subscription) -> Result<(), KinesisError> {
//!     let mut batches = quakes.tolerant().ready_chunks(500);
//!     while let Some(batch) = batches.next().await {
//!         let batch: Vec<Delivery> = batch.into_iter().collect::<Result<_, _>>()?;
//!         insert(&batch).await;
//!         commit_all(batch).await?;
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # With other streams and sinks
//!
//! [`take_until`](StreamExt::take_until) ends a pipeline when a future is done. What was not handed out by then is
//! not settled, and is read by the next subscription. ([`Closer::close`](crate::Closer::close) does the same from anywhere, and waits
//! for what is in flight.)
//!
//! ```
//! use std::time::Duration;
//!
//! use kinesis_stream::prelude::*;
//!
//! async fn for_an_hour(mut quakes: Subscription) -> Result<(), KinesisError> {
//!     let hour = tokio::time::sleep(Duration::from_secs(3600));
//!     let mut some = (&mut quakes).take_until(Box::pin(hour));
//!     while let Some(delivery) = some.try_next().await? {
//!         delivery.ack();
//!     }
//!     assert!(quakes.close().await.is_clean());
//!     Ok(())
//! }
//! ```
//!
//! [`stream::select`] merges another stream in, such as a clock. It takes turns, so neither starves the other, and it ends
//! when both have ended: [`take_while`](StreamExt::take_while) or an end of one's own, as here, ends it with the records.
//!
//! ```
//! use std::time::Duration;
//!
//! use kinesis_stream::prelude::*;
//!
//! enum Event {
//!     Quake(Delivery),
//!     Tick,
//!     End,
//! }
//!
//! async fn rate(quakes: Subscription) -> Result<(), KinesisError> {
//!     let records = quakes.tolerant().map_ok(Event::Quake).chain(stream::iter([Ok(Event::End)]));
//!     let ticker = tokio::time::interval(Duration::from_secs(10));
//!     let ticks = stream::unfold(ticker, async |mut ticker| {
//!         ticker.tick().await;
//!         Some((Ok(Event::Tick), ticker))
//!     });
//!     let mut events = std::pin::pin!(stream::select(records, ticks));
//!     let mut seen = 0;
//!     while let Some(event) = events.try_next().await? {
//!         match event {
//!             Event::Quake(delivery) => {
//!                 seen += 1;
//!                 delivery.ack();
//!             }
//!             Event::Tick => println!("{} quakes in ten seconds", std::mem::take(&mut seen)),
//!             Event::End => break,
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! [`forward`](StreamExt::forward) feeds a sink, which settles what it has written. It flushes and closes the sink when the
//! stream ends, and ends at the first error of either.
//!
//! ```
//! use kinesis_stream::prelude::*;
//! # async fn insert(row: &[u8]) -> Result<(), KinesisError> { Ok(()) }
//!
//! async fn feed(quakes: Subscription) -> Result<(), KinesisError> {
//!     let table = sink::unfold((), async |(), delivery: Delivery| {
//!         insert(delivery.payload()).await?;
//!         delivery.commit().await?;
//!         Ok::<_, KinesisError>(())
//!     });
//!     quakes.tolerant().forward(table).await
//! }
//! ```

use std::time::Duration;

pub use futures::{FutureExt, SinkExt, Stream, StreamExt, TryFutureExt, TryStreamExt, future, sink, stream};
use tokio_stream::adapters::ChunksTimeout;

pub use crate::{
    Acker, Batch, Batches, Commit, ConnectedKinesisBroker, Delivery, DeliveryStreamExt, ErrorClass, KinesisBroker,
    KinesisError, KinesisPosition, KinesisStream, OnDrop, Outgoing, PublishError, PublishOrder, PublishSink, PublishTo,
    Publisher, Seeker, Subscription, commit_all,
};

/// The adapter of tokio-stream that the combinators of futures lack.
pub trait StreamTimeoutExt: Stream {
    /// Collects items until there are `max` of them, or until `duration` has passed since the first. See
    /// [`tokio_stream::StreamExt::chunks_timeout`].
    ///
    /// # Panics
    ///
    /// If `max` is zero.
    fn chunks_timeout(self, max: usize, duration: Duration) -> ChunksTimeout<Self>
    where
        Self: Sized,
    {
        tokio_stream::StreamExt::chunks_timeout(self, max, duration)
    }
}

impl<S: Stream> StreamTimeoutExt for S {}
