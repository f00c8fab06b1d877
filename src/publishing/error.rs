//! A record that was not published.

use std::{error::Error, fmt};

use crate::{error::KinesisError, publishing::record::Outgoing};

/// A record that was not published, and the cause. It carries the record, so nothing is lost: keep it, or send it
/// again.
///
/// The [`cause`](Self::cause) tells what to do:
///
/// | cause | means |
/// |---|---|
/// | [`Invalid`](KinesisError::Invalid) | the record, the stream's name or a setting is outside a limit; nothing was sent |
/// | [`Refused`](KinesisError::Refused) | the service refuses this record: too large for its stream, say |
/// | [`Stream`](KinesisError::Stream), [`Denied`](KinesisError::Denied), [`Service`](KinesisError::Service) | the stream does not exist; the credentials may not put; the stream's KMS key cannot be used: it concerns every record until somebody fixes it |
/// | [`GaveUp`](KinesisError::GaveUp) | the sink retried until the time or the attempts were used up; the record may be in the stream |
/// | [`NotConnected`](KinesisError::NotConnected) | the broker is not connected yet, or was shut down; nothing was sent |
/// | [`Interrupted`](KinesisError::Interrupted) | the runtime ended first; it may be in the stream |
#[derive(Clone, Debug)]
pub struct PublishError(Box<PublishFailure>);

#[derive(Clone, Debug)]
struct PublishFailure {
    record: Outgoing,
    attempts: u32,
    cause: KinesisError,
}

impl PublishError {
    pub(crate) fn new(record: Outgoing, attempts: u32, cause: KinesisError) -> Self {
        Self(Box::new(PublishFailure { record, attempts, cause }))
    }

    /// The record as the caller gave it.
    pub fn record(&self) -> &Outgoing {
        &self.0.record
    }

    /// Why it was not published.
    #[must_use]
    pub fn cause(&self) -> &KinesisError {
        &self.0.cause
    }

    /// How often it was sent.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.0.attempts
    }

    /// The record, to be sent again or put aside, and why it was not published.
    pub fn into_parts(self) -> (Outgoing, KinesisError) {
        (self.0.record, self.0.cause)
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a record of {} bytes was not published", self.0.record.payload.len())
    }
}

impl Error for PublishError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0.cause)
    }
}

/// The cause alone: the record is dropped.
impl From<PublishError> for KinesisError {
    fn from(error: PublishError) -> Self {
        error.0.cause
    }
}
