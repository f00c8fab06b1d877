//! [`PublishSink`]: the handle of a sink. It batches records, keeps order, retries, and reports every record's result.
//!
//! **A dropped sink keeps sending** until all records that it accepted are settled: it has accepted them, and
//! deliveries depend on them. Records that are dropped with their runtime settle as interrupted, and their ackers give
//! the deliveries back, whatever a drop means for that subscription.
//!
//! **A failure is reported to the sink as well as to the acker.** A nack alone would retry a record that can never
//! succeed, without an end. The error ends a `forward`, and the record is redelivered when the pipeline starts again. A
//! user who wants to continue calls `PublishSink::publish`, where each failure is a value.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use futures::Sink;

use super::{error::PublishError, prepared::Prepared, stats::PublishStats};
use crate::{
    budget::Grant,
    delivery::Acker,
    publishing::{
        completion::Completion,
        record::{Outgoing, Published},
        sender,
        shared::SinkShared,
    },
};

/// Publishes to one stream, many records per request. Made by [`Publisher::sink`](crate::Publisher::sink). Clones share
/// the records in flight, the bounds and the task.
///
/// There are three ways to send a record, and you can mix them:
///
/// | way | result of the record | use it for |
/// |---|---|---|
/// | `Sink<Outgoing>` | a later call on the sink returns the failure | the end of a pipeline: `records.forward(sink)` |
/// | `Sink<(Outgoing, Acker)>` | stored: the delivery is acknowledged. Failed: the delivery is redelivered, and a later call on the sink returns the failure | a pipeline from stream to stream, at least once end to end |
/// | [`publish`](Self::publish) | the future returns it, with shard and sequence number | everything else; dropping the future does not take the record back |
///
/// A task of the sink sends a request when it is full or when its oldest record has
/// [lingered](crate::PublishTo::linger). You need not poll the sink for that. The sink retries a throttled entry, or
/// one that failed inside the service, after 0.1 s; the pause doubles to 5 s, plus up to as much again as jitter. It
/// does not resend the other entries of that request. If a whole request fails, all requests back off. Permanent errors
/// fail only the record that caused them: the sink splits a refused request in halves until that record is alone.
/// [`PublishError`] lists the causes.
///
/// At [`max_in_flight_bytes`](crate::PublishTo::max_in_flight_bytes), the sink accepts no record until others settle.
/// Senders wait; nothing is dropped.
///
/// # Errors
///
/// An error of the sink concerns the one record that it carries. The sink stays usable. It reports each failure once,
/// to the clone that is polled next: before it accepts more records, and during a flush.
///
/// # Order
///
/// [`PublishOrder`](crate::PublishOrder) decides: by partition key, unless relaxed. The order is that of the
/// `start_send` calls and of the first polls of [`publish`](Self::publish), if each handle or stream of futures has one
/// of them at a time.
///
/// # Flushing, closing, dropping
///
/// [`flush`](Self::flush) and [`SinkExt::flush`](futures::SinkExt::flush) send everything at once and wait until every
/// record accepted so far is settled. Closing does the same. After the last clone is dropped, the task still sends the
/// accepted records and logs their failures. If the runtime ends first, those records stay unsent and their deliveries
/// are redelivered. If the connection is shut down meanwhile, records accepted before it are still sent, and later ones
/// fail with [`NotConnected`](crate::KinesisError::NotConnected).
///
/// ```no_run
/// use kinesis_stream::prelude::*;
///
/// # async fn example(broker: ConnectedKinesisBroker, quakes: Subscription) -> Result<(), KinesisError> {
/// // Strong earthquakes go on to another stream. Each is acknowledged once it is stored there.
/// let alerts = broker.publisher().sink("alerts")?;
/// quakes
///     .tolerant()
///     .try_filter_map(async |quake| {
///         if !quake.payload().starts_with(b"M 7") {
///             quake.ack();
///             return Ok(None);
///         }
///         let alert = Outgoing::new(quake.partition_key().unwrap_or("unknown"), quake.payload().clone());
///         Ok(Some((alert, Acker::from(quake))))
///     })
///     .forward(alerts.sink_err_into())
///     .await
/// # }
/// ```
#[must_use = "a sink does nothing until records are sent"]
pub struct PublishSink {
    handle: Arc<Handle>,
    /// The permit for the record of the next `start_send`.
    permit: Option<Grant>,
    permit_wait: Option<Waiting<Grant>>,
    flush_wait: Option<Waiting<()>>,
}

type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send + Sync>>;

/// Closes the shared state when the last handle is dropped.
struct Handle(Arc<SinkShared>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl PublishSink {
    /// Starts the sender. Panics outside of a tokio runtime.
    pub(super) fn start(shared: SinkShared) -> Self {
        let shared = Arc::new(shared);
        tokio::spawn(sender::run(Arc::clone(&shared)));
        Self::of(Arc::new(Handle(shared)))
    }

    fn of(handle: Arc<Handle>) -> Self {
        Self { handle, permit: None, permit_wait: None, flush_wait: None }
    }

    /// Publishes one record in a request with others. Waits until the record is stored or has failed.
    ///
    /// ```no_run
    /// # use kinesis_stream::prelude::*;
    /// # async fn example(sink: PublishSink) -> Result<(), PublishError> {
    /// let published = sink.publish(Outgoing::new("ci", r#"{"mag": 1.27}"#)).await?;
    /// println!("{} {}", published.shard(), published.sequence_number());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// See [`PublishError`]; each carries the record.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped while it waits for room has sent nothing. Later, the sink sends the record although the
    /// future is dropped.
    ///
    /// # Panics
    ///
    /// Never: every accepted record gets a result.
    pub async fn publish(&self, record: Outgoing) -> Result<Published, PublishError> {
        let answer = self.handle.0.submit(record).await?;
        answer.await.expect("the sender resolves every record, also when it is dropped")
    }

    /// Sends everything at once. Waits until every record accepted so far, through any clone, is settled.
    ///
    /// # Errors
    ///
    /// The first failure that no call has returned yet; call `flush` again for the next one. Failures of
    /// [`publish`](Self::publish) are returned by its own future only.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: sending continues.
    pub async fn flush(&mut self) -> Result<(), PublishError> {
        self.handle.0.flush().await;
        self.failure()
    }

    /// Like [`flush`](Self::flush), and drops this handle.
    ///
    /// # Errors
    ///
    /// The first failure that no call has returned yet. If this was the last clone, the others are logged.
    ///
    /// # Cancel safety
    ///
    /// Sending continues.
    pub async fn close(mut self) -> Result<(), PublishError> {
        self.flush().await
    }

    /// A snapshot of the sink. Takes a short lock.
    #[must_use]
    pub fn stats(&self) -> PublishStats {
        self.handle.0.stats()
    }

    fn failure(&self) -> Result<(), PublishError> {
        self.handle.0.failure().map_or(Ok(()), Err)
    }

    fn poll_permit(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PublishError>> {
        self.failure()?;
        if self.permit.is_none() {
            self.permit = self.permit_wait.is_none().then(|| self.handle.0.try_admit(None)).flatten();
        }
        if self.permit.is_none() {
            let shared = &self.handle.0;
            let permit_wait = self.permit_wait.get_or_insert_with(|| {
                let shared = Arc::clone(shared);
                Box::pin(async move { shared.admit(None).await })
            });
            self.permit = Some(ready!(permit_wait.as_mut().poll(cx)));
            self.permit_wait = None;
        }
        Poll::Ready(Ok(()))
    }

    fn put(&mut self, record: Outgoing, completion: Completion) -> Result<(), PublishError> {
        match Prepared::new(record) {
            Ok(prepared) => self.handle.0.accept(prepared, completion, self.permit.take()),
            Err(refused) => {
                completion.give_back();
                Err(refused)
            }
        }
    }

    fn poll_flushed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), PublishError>> {
        self.failure()?;
        let shared = &self.handle.0;
        let flush_wait = self.flush_wait.get_or_insert_with(|| {
            let shared = Arc::clone(shared);
            Box::pin(async move { shared.flush().await })
        });
        ready!(flush_wait.as_mut().poll(cx));
        self.flush_wait = None;
        Poll::Ready(self.failure())
    }
}

impl Clone for PublishSink {
    fn clone(&self) -> Self {
        Self::of(Arc::clone(&self.handle))
    }
}

impl Sink<Outgoing> for PublishSink {
    type Error = PublishError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), PublishError>> {
        self.poll_permit(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, record: Outgoing) -> Result<(), PublishError> {
        self.put(record, Completion::Sink)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), PublishError>> {
        self.poll_flushed(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), PublishError>> {
        self.poll_flushed(cx)
    }
}

impl Sink<(Outgoing, Acker)> for PublishSink {
    type Error = PublishError;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), PublishError>> {
        self.poll_permit(cx)
    }

    fn start_send(mut self: Pin<&mut Self>, (record, acker): (Outgoing, Acker)) -> Result<(), PublishError> {
        self.put(record, Completion::Acker(acker))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), PublishError>> {
        self.poll_flushed(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), PublishError>> {
        self.poll_flushed(cx)
    }
}

impl fmt::Debug for PublishSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublishSink").field("stream", &self.handle.0.stream).finish_non_exhaustive()
    }
}
