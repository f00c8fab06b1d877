//! Publishing: one record at a time, or many a request.

use std::{fmt, sync::Arc};

use futures::future::join;

use self::{error::PublishError, sink::PublishSink};
use crate::{
    config::limits::check_stream_name,
    connection::Connection,
    error::KinesisError,
    kinesis::PutEntry,
    publishing::{
        options::PublishTo,
        record::{Outgoing, Published},
        shared::Shared,
    },
    wire::envelope,
};

pub(crate) mod accumulator;
mod completion;
pub(crate) mod error;
pub(crate) mod options;
mod prepared;
pub(crate) mod record;
mod sender;
mod shared;
pub(crate) mod sink;
pub(crate) mod stats;

/// Publishes records over the connection of a broker. Cheap to clone, and can be taken from a broker before it is
/// connected: it works as soon as that is.
#[derive(Clone)]
pub struct Publisher {
    connection: Arc<Connection>,
}

impl Publisher {
    pub(crate) fn new(connection: Arc<Connection>) -> Self {
        Self { connection }
    }

    /// Publishes one record, with one `PutRecord`, and gives the shard and the sequence number that it got. For more than
    /// a few records a second, a [`sink`](Self::sink) takes less of everything.
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
    /// - [`KinesisError::Stream`]: the stream does not exist, or is not active yet.
    /// - [`KinesisError::Denied`]: the credentials are wrong, or lack `kinesis:PutRecord`.
    /// - [`KinesisError::Service`]: anything else, after the retries of the SDK. After a timeout the record may be in
    ///   the stream nevertheless.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: the record of a dropped future may be published or not.
    pub async fn publish(&self, stream: &str, record: Outgoing) -> Result<Published, KinesisError> {
        check_stream_name(stream)?;
        let data = envelope::encode(&record.headers, record.payload.clone())?;
        record.check(&data)?;
        let service = self.connection.service()?;
        let Outgoing { partition_key, explicit_hash_key, .. } = record;
        let entry = PutEntry { partition_key, explicit_hash_key, data };
        let put = service.put(stream, entry).await.map_err(|failure| KinesisError::refused(stream, failure))?;
        Ok(Published { shard: put.shard, sequence_number: put.sequence_number, sub_sequence_number: None })
    }

    /// Publishes many records, up to 500 a request, and gives what became of each, in their order. It sends as a
    /// [`sink`](Self::sink) does, and is one for a few records that are all there; `stream` takes a [`PublishTo`], too.
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
    /// Each record has its own, as [`PublishError`] lists them: also for what concerns all of them, so that each comes
    /// back.
    ///
    /// # Cancel safety
    ///
    /// Not cancel safe: a dropped future sends no more, and what was under way may be published or not.
    ///
    /// # Panics
    ///
    /// Never: every record that is accepted is answered for.
    pub async fn publish_all(
        &self,
        stream: impl Into<PublishTo>,
        records: impl IntoIterator<Item = Outgoing, IntoIter: Send>,
    ) -> Vec<Result<Published, PublishError>> {
        let records = records.into_iter();
        let shared = match Shared::new(Arc::clone(&self.connection), stream.into()) {
            Ok(shared) => Arc::new(shared),
            Err(cause) => return records.map(|record| Err(PublishError::new(record, 0, cause.clone()))).collect(),
        };
        let handing_in = async {
            let mut answers = Vec::new();
            for record in records {
                answers.push(shared.hand_in(record).await);
            }
            shared.close();
            answers
        };
        let (answers, ()) = join(handing_in, sender::run(Arc::clone(&shared))).await;
        let mut results = Vec::with_capacity(answers.len());
        for answer in answers {
            results.push(match answer {
                Ok(answer) => answer.await.expect("the sender has answered for every record"),
                Err(refused) => Err(refused),
            });
        }
        results
    }

    /// A sink for records to one stream: batches, keeps the order of each key, sends failed ones again, and bounds what is
    /// under way. [`PublishSink`] says how. `stream` is a name, or a [`PublishTo`] with settings.
    ///
    /// No call is made yet, and the broker need not be connected before the first record.
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
    /// [`KinesisError::Invalid`]: the stream's name or a setting is outside of its limits.
    ///
    /// # Panics
    ///
    /// Outside of a tokio runtime.
    pub fn sink(&self, stream: impl Into<PublishTo>) -> Result<PublishSink, KinesisError> {
        Ok(PublishSink::start(Shared::new(Arc::clone(&self.connection), stream.into())?))
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").finish_non_exhaustive()
    }
}
