//! Publishing one record at a time.

use std::{fmt, sync::Arc};

use crate::{
    connection::Connection,
    envelope,
    error::KinesisError,
    limits::check_stream_name,
    outgoing::{Outgoing, Published},
};

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

    /// Publishes one record, with one `PutRecord`, and gives the shard and the sequence number that it got.
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
        let put = service
            .put(stream, &record.partition_key, data)
            .await
            .map_err(|failure| KinesisError::refused(stream, failure))?;
        Ok(Published { shard: put.shard, sequence_number: put.sequence_number })
    }
}

impl fmt::Debug for Publisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Publisher").finish_non_exhaustive()
    }
}
