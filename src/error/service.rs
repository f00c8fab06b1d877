//! A failed call on Kinesis or on a lease store: the layer between the errors of the SDK and [`KinesisError`].
//!
//! [`KinesisError`]: crate::KinesisError

use std::{error::Error, fmt, iter, sync::Arc};

use crate::util::cut::{LONGEST, cut, cut_at};

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
    /// The service does not accept the place at which an iterator should start: it no longer keeps the record of that
    /// sequence number, the number belongs to another shard or stream, or the time is in the future.
    InvalidPosition,
    /// The KMS key of the stream is disabled, missing or not usable in its state.
    KeyUnusable,
    /// No response: the endpoint could not be reached, or the call timed out.
    Unreachable,
    /// The response reports success, but it cannot be read, or what was asked for is missing in it. A record that the
    /// call wrote may be stored.
    Unreadable,
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
    lost_connection: bool,
}

impl ServiceFailure {
    pub(crate) fn new(action: Action, kind: FailureKind, detail: impl AsRef<str>) -> Self {
        let detail = cut(detail.as_ref()).into();
        Self { action, kind, detail, source: None, says_all: false, lost_connection: false }
    }

    pub(crate) fn caused_by(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(kept(source));
        self
    }

    /// Names the proxy on the way.
    pub(crate) fn through(self, proxy: &str) -> Self {
        Self { detail: format!("{} through the proxy {proxy}", self.detail).into(), ..self }
    }

    /// Keeps a source whose text is already part of the detail.
    pub(crate) fn summing_up(self, source: impl Error + Send + Sync + 'static) -> Self {
        Self { says_all: true, ..self.caused_by(source) }
    }

    /// Whether the text says what the source says, so that a log need not show both.
    pub(crate) fn says_all(&self) -> bool {
        self.says_all
    }

    /// Notes that the connection broke before a response began.
    pub(crate) fn on_a_lost_connection(self) -> Self {
        Self { lost_connection: true, ..self }
    }

    /// Whether the connection broke before a response began. Connections may do so at any time.
    pub(crate) fn is_lost_connection(&self) -> bool {
        self.lost_connection
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
        write!(f, "{} failed: {}", self.action, self.detail)?;
        match (self.kind, self.action) {
            (FailureKind::Unreadable, Action::PutRecord | Action::PutRecords) => {
                f.write_str("; the records may be stored")
            }
            _ => Ok(()),
        }
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

/// The error as a source. One whose text is very long, because a server sent a long message, is replaced by the
/// beginning of its text.
fn kept(source: impl Error + Send + Sync + 'static) -> Arc<dyn Error + Send + Sync> {
    let long = iter::once(source.to_string()).chain(causes(&source)).find(|text| text.len() > MESSAGE_LIMIT);
    match long {
        None => Arc::new(source),
        Some(text) => Arc::new(Shortened(cut(&text).into())),
    }
}

/// The beginning of the text of an error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Shortened(Box<str>);

/// The longest text of an error that holds texts from outside, each already cut, and words of this library.
const MESSAGE_LIMIT: usize = 3 * LONGEST;

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
    /// There are no credentials for the store, or it does not accept them. They may load later, so the library repeats
    /// the call; after the [`patience`](crate::KinesisStream::patience) of the subscription the stream yields a
    /// [`KinesisError::Lasting`](crate::KinesisError::Lasting).
    Credentials,
    /// The store cannot work as it is set up: the table is missing or has another key, or the permission is missing.
    Unusable,
}

/// A failed call on a lease store. Made by implementations of
/// [`LeaseStore`](crate::LeaseStore), with the database's own error inside.
#[derive(Clone, thiserror::Error)]
#[error("{message}")]
pub struct StoreError {
    message: Arc<str>,
    kind: StoreErrorKind,
    source: Option<Arc<dyn Error + Send + Sync>>,
    says_all: bool,
    ended_start: bool,
}

impl StoreError {
    /// A failure in words, as in `"the table refused the write"`. Its kind is [`StoreErrorKind::Temporary`]. A very
    /// long text is cut.
    pub fn new(message: impl Into<Arc<str>>) -> Self {
        let message = message.into();
        let message = if message.len() > MESSAGE_LIMIT { cut_at(&message, MESSAGE_LIMIT).into() } else { message };
        Self { message, kind: StoreErrorKind::default(), source: None, says_all: false, ended_start: false }
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
        self.source = Some(kept(source));
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

impl fmt::Debug for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreError")
            .field("message", &self.message)
            .field("kind", &self.kind)
            .field("causes", &causes(self).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::error::{KinesisError, chain::Chain};

    // X3
    #[test]
    fn an_error_is_short_although_a_server_sent_a_long_text() {
        let long = "x".repeat(300_000);
        let service = |summing_up: bool| {
            let failure = ServiceFailure::new(Action::GetRecords, FailureKind::Other, &long);
            let source = io::Error::other(io::Error::other(long.clone()));
            if summing_up { failure.summing_up(source) } else { failure.caused_by(source) }
        };
        let store = || StoreError::new(long.as_str()).caused_by(io::Error::other(long.clone()));
        let errors = [
            KinesisError::Service { stream: "s".into(), source: service(true) },
            KinesisError::Service { stream: "s".into(), source: service(false) },
            KinesisError::Store { stream: "s".into(), shard: None, action: "reading", source: store() },
        ];
        for error in errors {
            let mut texts = vec![format!("{error:?}"), format!("{error:#?}"), Chain(&error).to_string()];
            texts.extend(iter::successors(error.source(), |cause| (*cause).source()).map(|cause| format!("{cause:?}")));
            for text in texts {
                assert!(text.len() < 6_000, "{} bytes: {}", text.len(), cut(&text));
                assert!(text.contains("300000 bytes"), "{text}");
            }
        }
    }

    #[test]
    fn a_source_of_usual_length_keeps_its_type() {
        let failure = ServiceFailure::new(Action::GetRecords, FailureKind::Other, "failed");
        assert!(failure.caused_by(io::Error::other("no route")).source().unwrap().is::<io::Error>());
        let store = StoreError::new("failed").caused_by(io::Error::other("the disk is full"));
        assert_eq!(
            format!("{store:?}"),
            r#"StoreError { message: "failed", kind: Temporary, causes: ["the disk is full"], .. }"#
        );
    }
}
