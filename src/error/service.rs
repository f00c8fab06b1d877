//! What a failed call on Kinesis was and why it failed: the layer between the SDK's errors and [`KinesisError`].
//!
//! [`KinesisError`]: crate::KinesisError

use std::{error::Error, fmt, sync::Arc};

/// A call on Kinesis. Displays as the permission that the call needs, as in `kinesis:GetRecords`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Action {
    /// `CreateStream`
    CreateStream,
    /// `DescribeStreamSummary`
    DescribeStreamSummary,
    /// `GetRecords`
    GetRecords,
    /// `GetShardIterator`
    GetShardIterator,
    /// `ListShards`
    ListShards,
    /// `PutRecord`
    PutRecord,
    /// `PutRecords`
    PutRecords,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kinesis:{self:?}")
    }
}

/// Why a call failed, sorted by what a caller does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// Too many calls or bytes: the same call is right a little later.
    Throttled,
    /// The shard iterator outlived its five minutes.
    IteratorExpired,
    /// The stream or the shard does not exist.
    NotFound,
    /// The stream is being created, changed or deleted.
    NotReady,
    /// The credentials are missing, wrong, expired, or may not make this call.
    Denied,
    /// The service says that the request is wrong. The same request fails again.
    Rejected,
    /// The KMS key of the stream is disabled, missing or in a state in which it cannot be used.
    KeyUnusable,
    /// No answer: the endpoint could not be reached, or the call timed out.
    Unreachable,
    /// Anything else, a fault inside the service for one.
    Other,
}

/// One failed call on Kinesis. [`source`](Error::source) is the SDK's own error.
#[derive(Clone)]
pub struct ServiceFailure {
    action: Action,
    kind: FailureKind,
    detail: Arc<str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl ServiceFailure {
    pub(crate) fn new(action: Action, kind: FailureKind, detail: impl Into<Arc<str>>) -> Self {
        Self { action, kind, detail: detail.into(), source: None }
    }

    pub(crate) fn caused_by(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// The call that failed.
    #[must_use]
    pub fn action(&self) -> Action {
        self.action
    }

    /// Why it failed.
    #[must_use]
    pub fn kind(&self) -> FailureKind {
        self.kind
    }
}

impl fmt::Display for ServiceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: {}", self.action, self.detail)
    }
}

impl fmt::Debug for ServiceFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceFailure")
            .field("action", &self.action)
            .field("kind", &self.kind)
            .field("detail", &self.detail)
            .finish_non_exhaustive()
    }
}

impl Error for ServiceFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// A lease store could not do what was asked of it. Made by implementations of
/// [`LeaseStore`](crate::LeaseStore), with the database's own error inside.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    message: Arc<str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl StoreError {
    /// A failure in words, as in `"the table refused the write"`.
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        Self { message: message.into(), source: None }
    }

    /// Keeps the database's error as [`source`](Error::source).
    #[must_use]
    pub fn caused_by(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }
}
