//! A sink of records: batches, keeps order, sends again, and tells of each what became of it.

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

/// Publishes to one stream, many records a request. Made by [`Publisher::sink`](crate::Publisher::sink); clones share the
/// records under way, their bounds and their task.
///
/// There are three ways to put a record in, and they mix:
///
/// | way | what became of the record | for |
/// |---|---|---|
/// | `Sink<Outgoing>` | a failure is the error of a later call on the sink | the end of a pipeline: `records.forward(sink)` |
/// | `Sink<(Outgoing, Acker)>` | stored: its delivery is acknowledged. Failed: its delivery comes again, and the failure is the error of a later call on the sink | a pipeline from stream to stream, at least once from end to end |
/// | [`publish`](Self::publish) | is the output of the future, with shard and sequence number | anything else; dropping the future takes nothing back |
///
/// Requests go out by themselves, from a task of the sink, when they are full or their oldest record has
/// [lingered](crate::PublishTo::linger); polling is not needed for it. An entry that fails for now (throttled, a fault
/// inside the service) is sent again after 0.1 s, doubling to 5 s, with as much again by chance; the others of its request
/// are not. If whole requests fail, all of them wait so. What cannot succeed fails at once, and nobody else with it: a
/// request that is refused for one record's sake is sent in halves until that record is alone. [`PublishError`] lists
/// the causes.
///
/// At [`max_in_flight_bytes`](crate::PublishTo::max_in_flight_bytes) it accepts no more until something is settled: senders
/// wait, and nothing is dropped.
///
/// # Errors
///
/// An error of the sink is about the one record that it carries. The sink stays usable, and tells of each failure once, to
/// whichever clone is polled next: before it accepts more, and while it is flushed.
///
/// # Order
///
/// As [`PublishOrder`](crate::PublishOrder) says: by partition key, unless it is relaxed. Records count as given in the order
/// of `start_send`, and of the first polls of [`publish`](Self::publish), as long as each sink handle or stream of
/// futures has one of them at a time.
///
/// # Flushing, closing, dropping
///
/// Flushing, by [`flush`](Self::flush) or [`SinkExt::flush`](futures::SinkExt::flush), sends everything at once and waits until every record that was
/// accepted so far is settled. Closing is flushing, as there is nothing else to close. When the last clone is dropped, what
/// was accepted is still sent, in the background, until it is settled; failures are logged then. A runtime that ends before
/// that leaves them unsent: their deliveries come again. The connection may be shut down meanwhile: what was accepted
/// before is sent, what comes after is answered with [`NotConnected`](crate::KinesisError::NotConnected).
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
    /// Room for the record of the next `start_send`.
    permit: Option<Grant>,
    permit_wait: Option<Waiting<Grant>>,
    flush_wait: Option<Waiting<()>>,
}

type Waiting<T> = Pin<Box<dyn Future<Output = T> + Send + Sync>>;

/// The last one to be dropped closes the shared.
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

    /// Publishes one record in a request with others, and waits until it is stored, or is not going to be.
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
    /// As [`PublishError`] lists them; each carries the record.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped while it waits for room has sent nothing. After that the record is sent all the same.
    ///
    /// # Panics
    ///
    /// Never: a sink answers for every record that it accepted.
    pub async fn publish(&self, record: Outgoing) -> Result<Published, PublishError> {
        let answer = self.handle.0.submit(record).await?;
        answer.await.expect("the sender answers for every record, also when it is dropped")
    }

    /// Sends everything at once, and waits until every record that was accepted so far is settled, through whichever clone
    /// it came.
    ///
    /// # Errors
    ///
    /// The first failure that was not told yet; call it again for the next one. Failures of [`publish`](Self::publish) are
    /// told by that alone.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: sending goes on.
    pub async fn flush(&mut self) -> Result<(), PublishError> {
        self.handle.0.flush().await;
        self.failure()
    }

    /// As [`flush`](Self::flush), and drops this handle.
    ///
    /// # Errors
    ///
    /// The first failure that was not told yet. Others are logged, if this was the last clone.
    ///
    /// # Cancel safety
    ///
    /// Sending goes on.
    pub async fn close(mut self) -> Result<(), PublishError> {
        self.flush().await
    }

    /// How it is doing at this moment. Costs a short lock.
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
