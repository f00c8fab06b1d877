//! [`Publisher`]: one record with PutRecord, many records with PutRecords, or a sink for a continuous flow.

use std::{fmt, sync::Arc};

use futures::future::join;
use tokio::time::{Duration, Instant, sleep};

use crate::{
    config::limits::check_stream_name,
    connection::Connection,
    error::{
        KinesisError,
        service::{FailureKind, ServiceFailure},
    },
    kinesis::PutEntry,
    publishing::{
        error::PublishError,
        missing_stream::APPEARS_WITHIN,
        options::PublishTo,
        record::{Outgoing, Published},
        sender,
        shared::SinkShared,
        sink::PublishSink,
    },
    util::backoff::doubled,
    wire::envelope,
};

/// Pauses between attempts of one record, if the service refuses it for now.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Publishes records over the connection of a broker. Cheap to clone. It can be taken from a broker that is not
/// connected yet, and works as soon as the broker is connected.
#[derive(Clone)]
pub struct Publisher {
    connection: Arc<Connection>,
}

impl Publisher {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self { connection }
    }

    /// Publishes one record with one `PutRecord` call. Returns the shard and the sequence number that the service
    /// assigned. For more than a few records a second, a [`sink`](Self::sink) needs fewer calls and less CPU.
    ///
    /// ```no_run
    /// # use kinesis_stream::prelude::*;
    /// # async fn example(broker: KinesisBroker) -> Result<(), KinesisError> {
    /// let publisher = broker.publisher();
    /// let connected = broker.connect().await?;
    /// let quake = Outgoing::new("ci", r#"{"mag": 1.27}"#).header("source", "usgs");
    /// let published = publisher.publish("quakes", quake).await?;
    /// println!("{} {}", published.shard(), published.sequence_number());
    /// connected.shutdown().await;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// - [`KinesisError::Invalid`]: the stream's name, the key, or the record is over its limit; nothing was sent.
    /// - [`KinesisError::NotConnected`]: the broker is not connected yet, or was shut down; nothing was sent.
    /// - [`KinesisError::Stream`]: the stream does not exist, or is not active yet. A stream that is not found is tried
    ///   again for five seconds, because a new one may not be known everywhere yet. The same holds for credentials that
    ///   do not load or have expired, and for a KMS key that cannot be used.
    /// - [`KinesisError::Denied`]: the credentials are wrong, or lack `kinesis:PutRecord`.
    /// - [`KinesisError::Service`]: any other failure, after the SDK's retries. After a timeout or a response
    ///   that cannot be read ([`FailureKind::Unreadable`]), the record may be in the
    ///   stream.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: if the future is dropped, the record may or may not be published.
    pub async fn publish(&self, stream: &str, record: Outgoing) -> Result<Published, KinesisError> {
        check_stream_name(stream)?;
        let data = envelope::encode(&record.headers, record.payload.clone())?;
        record.check(&data)?;
        let service = self.connection.service()?;
        let Outgoing { partition_key, explicit_hash_key, .. } = record;
        let entry = PutEntry { partition_key, explicit_hash_key, data };
        let (begun, mut failures) = (Instant::now(), 0);
        let put = loop {
            match service.put(stream, entry.clone()).await {
                Ok(put) => break put,
                Err(failure) if is_refused_for_now(&failure) && begun.elapsed() < APPEARS_WITHIN => {
                    failures += 1;
                    sleep(doubled(FIRST_PAUSE, LONGEST_PAUSE, failures)).await;
                }
                Err(failure) => return Err(KinesisError::refused(stream, failure)),
            }
        };
        Ok(Published { shard: put.shard, sequence_number: put.sequence_number, sub_sequence_number: None })
    }

    /// Publishes many records, up to 500 in a request. Returns one result for each record, in the order given. It sends
    /// like a [`sink`](Self::sink); use it when all records are at hand. `stream` is a name, or a [`PublishTo`] with
    /// settings.
    ///
    /// ```no_run
    /// # use kinesis_stream::prelude::*;
    /// # async fn example(publisher: Publisher, quakes: Vec<Outgoing>) {
    /// for failed in publisher.publish_all("quakes", quakes).await.into_iter().filter_map(Result::err) {
    ///     eprintln!("{failed}");
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// Each record has its own [`PublishError`]. An error that concerns all records, such as an invalid setting, is
    /// returned for each of them, so that every record comes back to the caller.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a dropped future sends nothing more, and records in flight may or may not be published.
    ///
    /// # Panics
    ///
    /// Never: every accepted record gets a result.
    pub async fn publish_all(
        &self,
        stream: impl Into<PublishTo>,
        records: impl IntoIterator<Item = Outgoing, IntoIter: Send>,
    ) -> Vec<Result<Published, PublishError>> {
        let records = records.into_iter();
        let shared = match SinkShared::new(Arc::clone(&self.connection), stream.into()) {
            Ok(shared) => Arc::new(shared),
            Err(cause) => return records.map(|record| Err(PublishError::new(record, 0, cause.clone()))).collect(),
        };
        let submitting = async {
            let mut answers = Vec::new();
            for record in records {
                answers.push(shared.submit(record).await);
            }
            shared.close();
            answers
        };
        let (answers, ()) = join(submitting, sender::run(Arc::clone(&shared))).await;
        let mut results = Vec::with_capacity(answers.len());
        for answer in answers {
            results.push(match answer {
                Ok(answer) => answer.await.expect("the sender resolves every record"),
                Err(refused) => Err(refused),
            });
        }
        results
    }

    /// A sink for records to one stream. It batches records, keeps the order of each partition key, retries failed
    /// entries, and bounds the bytes in flight: see [`PublishSink`]. `stream` is a name, or a [`PublishTo`] with
    /// settings.
    ///
    /// This makes no call. The broker must be connected before the first record is sent, not before.
    ///
    /// ```no_run
    /// # use kinesis_stream::prelude::*;
    /// # async fn example(publisher: Publisher, quakes: Vec<Outgoing>) -> Result<(), Box<dyn std::error::Error>> {
    /// let sink = publisher.sink(PublishTo::new("quakes").order(PublishOrder::Relaxed))?;
    /// stream::iter(quakes).map(Ok).forward(sink).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`KinesisError::Invalid`]: the stream's name or a setting is outside its limits.
    ///
    /// # Panics
    ///
    /// If called outside a tokio runtime.
    pub fn sink(&self, stream: impl Into<PublishTo>) -> Result<PublishSink, KinesisError> {
        Ok(PublishSink::start(SinkShared::new(Arc::clone(&self.connection), stream.into())?))
    }
}

/// Whether the service stored nothing and may accept the same record soon (P4): the stream is new, the credentials are
/// being renewed, or a KMS key is disabled.
fn is_refused_for_now(failure: &ServiceFailure) -> bool {
    matches!(failure.kind(), FailureKind::NotFound | FailureKind::Credentials | FailureKind::KeyUnusable)
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").finish_non_exhaustive()
    }
}
