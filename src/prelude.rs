//! Everything that a pipeline needs, in one import: `use kinesis_stream::prelude::*;`
//!
//! The combinators are those of [`futures`], and [`chunks_timeout`](StreamTimeoutExt::chunks_timeout) is the one of
//! tokio-stream that they lack. Importing both crates' `StreamExt` would make most calls ambiguous; importing this does
//! not.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use kinesis_stream::prelude::*;
//!
//! # async fn insert(rows: &[Delivery]) {}
//! # async fn example(quakes: Subscription) -> Result<(), KinesisError> {
//! quakes
//!     .tolerant()
//!     .chunks_timeout(500, Duration::from_millis(50))
//!     .map(|batch| batch.into_iter().collect::<Result<Vec<Delivery>, KinesisError>>())
//!     .try_for_each(async |batch| {
//!         insert(&batch).await;
//!         commit_all(batch).await.map(drop)
//!     })
//!     .await
//! # }
//! ```

use std::time::Duration;

pub use futures::{FutureExt, SinkExt, Stream, StreamExt, TryFutureExt, TryStreamExt, future, stream};
use tokio_stream::adapters::ChunksTimeout;

pub use crate::{
    Commit, Delivery, ErrorClass, KinesisBroker, KinesisError, KinesisPosition, KinesisStream, OnDrop, Outgoing,
    Seeker, Subscription, commit_all,
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
