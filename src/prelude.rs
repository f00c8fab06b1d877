//! Everything that a pipeline needs, in one import: `use kinesis_stream::prelude::*;`
//!
//! It has the types of this crate that pipelines name, the combinators of [`futures`], and what those lack:
//! [`buffer_by_key`] and [`buffer_by_shard`](DeliveryStreamExt::buffer_by_shard), [`chunks_timeout`] and
//! [`try_chunks_timeout`].
//! If you also import the `StreamExt` of tokio-stream, calls such as `.map` and `.next` become ambiguous; call that
//! trait by its full path instead.
//!
//! Which combinator to use:
//!
//! | to | use | an error of the stream or the handler |
//! |---|---|---|
//! | work on many records at once | [`try_for_each_concurrent`] | ends the pipeline |
//! | the same, and never end at an error | [`for_each_concurrent`] | reaches your function |
//! | pass results on as they complete | [`try_buffer_unordered`] | is passed on |
//! | pass results on in order | [`try_buffered`], [`buffered`] | is passed on |
//! | work on many keys at once, on each key in order | [`buffer_by_key`] | is passed on |
//! | write batches | [`batches`] | is passed on |
//! | write batches and have them settled | [`batches`] and [`process`] | of the stream: ends it; of the handler: halves the batch |
//! | chunk what you made of deliveries | [`try_chunks_timeout`] | comes after the items before it |
//! | the same, of any items | [`chunks_timeout`], [`ready_chunks`] | is inside the chunk |
//! | feed a sink | [`forward`] | ends the pipeline |
//!
//! [`try_for_each_concurrent`]: TryStreamExt::try_for_each_concurrent
//! [`for_each_concurrent`]: StreamExt::for_each_concurrent
//! [`try_buffer_unordered`]: TryStreamExt::try_buffer_unordered
//! [`try_buffered`]: TryStreamExt::try_buffered
//! [`buffered`]: StreamExt::buffered
//! [`buffer_by_key`]: DeliveryStreamExt::buffer_by_key
//! [`batches`]: Subscription::batches
//! [`process`]: Batches::process
//! [`chunks_timeout`]: ChunkStreamExt::chunks_timeout
//! [`try_chunks_timeout`]: TryChunkStreamExt::try_chunks_timeout
//! [`ready_chunks`]: StreamExt::ready_chunks
//! [`forward`]: StreamExt::forward
//!
//! If a pipeline ends at an error, or is dropped, the library redelivers the records that it held. None is lost.
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
//! `docs/cookbook.md` in the repository has a program for each row, and for retries, dead letters, replay and shutdown.

pub use futures::{FutureExt, SinkExt, Stream, StreamExt, TryFutureExt, TryStreamExt, future, sink, stream};

pub use crate::{
    Acker, Batch, BatchFailures, Batches, ChunkStreamExt, Commit, ConnectedKinesisBroker, Delivery, DeliveryStreamExt,
    ErrorClass, KinesisBroker, KinesisError, KinesisPosition, KinesisStream, OnDrop, Outgoing, PublishError,
    PublishOrder, PublishSink, PublishTo, Publisher, Seeker, Subscription, TryChunkStreamExt, commit_all,
};
