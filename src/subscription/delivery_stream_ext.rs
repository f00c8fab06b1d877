//! The methods that every stream of deliveries has.

use futures::Stream;

use super::{
    batch_builder::Grouping,
    batches::Batches,
    buffer_by::{BufferBy, QueueBy},
};
use crate::{delivery::Delivery, error::KinesisError};

/// Adds to streams of deliveries what the combinators of [`futures`] lack: work on many deliveries at once, on those of
/// one partition key one after another, and batches. In the [`prelude`](crate::prelude).
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
    /// - **Its futures run only while it is polled,** like those of every buffered stream. If the code behind it
    ///   pauses, a time limit inside of `f` runs on and may end although the work was done. Keep the code behind it
    ///   short, or spawn the work as a task.
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

    /// The deliveries in batches of at most `size`, 1 to 10,000, also of payloads that were mapped before.
    ///
    /// ```
    /// use kinesis_stream::prelude::*;
    /// # async fn insert(rows: &[Delivery<String>]) {}
    ///
    /// async fn archive(quakes: Subscription) -> Result<(), KinesisError> {
    ///     quakes
    ///         .tolerant()
    ///         .map_ok(|quake| quake.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    ///         .batches(500)?
    ///         .try_for_each(async |batch| {
    ///             insert(batch.deliveries()).await;
    ///             batch.commit().await.map(drop)
    ///         })
    ///         .await
    /// }
    /// ```
    ///
    /// A batch waits for more records for 50 ms ([`max_wait`](Batches::max_wait)). [`Subscription::batches`] does the
    /// same, and also makes each read ask for as many records as a batch holds. Here, reads keep their
    /// [`read_limit`](crate::KinesisStream::read_limit). To fill batches, the
    /// [`max_in_flight`](crate::KinesisStream::max_in_flight) has to be at least twice the size; a warning says so
    /// once.
    ///
    /// # Errors
    ///
    /// [`KinesisError::Invalid`] if `size` is outside of its limits. The source is dropped then.
    ///
    /// [`Subscription::batches`]: crate::Subscription::batches
    fn batches(self, size: usize) -> Result<Batches<Self, T, E>, KinesisError> {
        Batches::of_stream(self, size, Grouping::Mixed)
    }

    /// Like [`batches`](Self::batches), but a batch holds records of one shard only, delivered under one
    /// [`epoch`](Delivery::epoch). The batches of all shards are filled in parallel, each with a deadline.
    ///
    /// # Errors
    ///
    /// As [`batches`](Self::batches).
    fn batches_by_shard(self, size: usize) -> Result<Batches<Self, T, E>, KinesisError> {
        Batches::of_stream(self, size, Grouping::ByShard)
    }
}

impl<S, T, E> DeliveryStreamExt<T, E> for S where S: Stream<Item = Result<Delivery<T>, E>> {}
