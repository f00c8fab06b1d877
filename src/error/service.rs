//! A failed call on Kinesis or on a lease store: the layer between the errors of the SDK and [`KinesisError`].
//!
//! [`KinesisError`]: crate::KinesisError

use std::{error::Error, fmt, iter, sync::Arc};

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

/// Why a call failed, grouped by how a caller reacts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FailureKind {
    /// Too many calls or bytes. The same call succeeds a little later.
    Throttled,
    /// The shard iterator outlived its five minutes.
    IteratorExpired,
    /// The stream or the shard does not exist.
    NotFound,
    /// The stream is being created, changed or deleted.
    NotReady,
    /// The credentials may not make this call, or the service does not know them.
    Denied,
    /// The credentials could not be loaded, or they or their signature have expired. The library repeats the call, and
    /// credentials that load mend it.
    Credentials,
    /// The service rejects the request. The same request would fail again.
    Rejected,
    /// The KMS key of the stream is disabled, missing or not usable in its state.
    KeyUnusable,
    /// No response: the endpoint could not be reached, or the call timed out.
    Unreachable,
    /// A fault inside the service: HTTP 500 and above. The same call may succeed later.
    Unavailable,
    /// Anything else.
    Other,
}

/// One failed call on Kinesis. [`source`](Error::source) is the SDK's own error.
///
/// Its text names the call and the response of the service, or says that no response came. The sources tell why.
#[derive(Clone)]
pub struct ServiceFailure {
    action: Action,
    kind: FailureKind,
    detail: Arc<str>,
    source: Option<Arc<dyn Error + Send + Sync>>,
    says_all: bool,
}

impl ServiceFailure {
    pub(crate) fn new(action: Action, kind: FailureKind, detail: impl Into<Arc<str>>) -> Self {
        Self { action, kind, detail: detail.into(), source: None, says_all: false }
    }

    pub(crate) fn caused_by(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Keeps a source whose text is already part of the detail.
    pub(crate) fn summing_up(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self { says_all: true, ..self.caused_by(source) }
    }

    /// Whether the text says what the source says, so that a log need not show both.
    pub(crate) fn says_all(&self) -> bool {
        self.says_all
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
            .field("causes", &causes(self).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl Error for ServiceFailure {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// The texts of all causes, outermost first.
fn causes(error: &(dyn Error + 'static)) -> impl Iterator<Item = String> {
    iter::successors(error.source(), |cause| (*cause).source()).map(ToString::to_string)
}

/// Why a call on a lease store failed, grouped by how the library reacts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The call may succeed later, so the library repeats it. The default.
    #[default]
    Temporary,
    /// The row makes no sense, for example because a person edited it. It holds back its own shard alone, and the
    /// library repeats its writes ever more rarely.
    UnreadableRow,
    /// The store cannot work as it is set up: the table is missing or has another key, or the permission is missing.
    Unusable,
}

/// A failed call on a lease store. Made by implementations of
/// [`LeaseStore`](crate::LeaseStore), with the database's own error inside.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    message: Arc<str>,
    kind: StoreErrorKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
    says_all: bool,
    ended_start: bool,
}

impl StoreError {
    /// A failure in words, as in `"the table refused the write"`. Its kind is [`StoreErrorKind::Temporary`].
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        Self {
            message: message.into(),
            kind: StoreErrorKind::default(),
            source: None,
            says_all: false,
            ended_start: false,
        }
    }

    /// Sets the [`kind`](Self::kind).
    #[must_use]
    pub fn with_kind(self, kind: StoreErrorKind) -> Self {
        Self { kind, ..self }
    }

    /// Why it failed.
    #[must_use]
    pub fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Keeps the database's error as [`source`](Error::source).
    #[must_use]
    pub fn caused_by(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Arc::new(source));
        self
    }

    /// Keeps a source whose text the message holds already.
    #[cfg(any(test, feature = "dynamodb"))]
    pub(crate) fn summing_up(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self { says_all: true, ..self.caused_by(source) }
    }

    /// Marks the failure with which `subscribe` gives up.
    pub(crate) fn ending_start(self) -> Self {
        Self { ended_start: true, ..self }
    }

    /// Whether `subscribe` gave up with this failure.
    pub(crate) fn ended_start(&self) -> bool {
        self.ended_start
    }

    /// Whether the text says what the source says, so that a log need not show both.
    pub(crate) fn says_all(&self) -> bool {
        self.says_all
    }
}
