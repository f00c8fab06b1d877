//! [`KinesisError`]: one variant for each error that a caller handles differently.
//!
//! - [`service`]: failures of single calls on Kinesis and on the lease store, which errors carry as their source.
//! - [`chain`]: an error and its causes in one line, for logs.
//! - [`work`]: which work of a subscription an error interrupts, and whether waiting can end it.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    error::{
        chain::Chain,
        service::{Action, FailureKind, ServiceFailure, StoreError},
    },
    types::{
        id::{SequenceNumber, ShardId},
        record::Record,
    },
};

pub(crate) mod chain;
pub(crate) mod service;
pub(crate) mod work;

/// The error of every call and of every stream of this crate.
///
/// An error in a subscription's stream does not end the stream, except after class [`Fatal`](ErrorClass::Fatal):
/// [`class`](Self::class) says whether the library already handles it. The error of a call is final for that call.
///
/// The error is cheap to clone. Its text says what failed. Its [`source`](std::error::Error::source) is the cause and
/// leads to the SDK's own error. Print the sources as well when somebody must learn the reason.
///
/// `Debug` shows the text of the error and of its causes, and no data of a record. So a `main` that returns this error
/// prints a readable line.
#[derive(Clone, thiserror::Error)]
#[non_exhaustive]
pub enum KinesisError {
    /// A setting or an argument is outside its limits. Nothing was sent.
    #[error("invalid {what}: {problem}")]
    #[non_exhaustive]
    Invalid {
        /// The setting or argument, by its name in the API.
        what: &'static str,
        /// The limit and the given value.
        problem: String,
    },

    /// The broker is not connected yet, or was shut down.
    #[error("not connected: the broker has not been connected yet, or was shut down")]
    NotConnected,

    /// This consumer already reads the stream through another live subscription on the same connection.
    #[error(
        "stream {stream} is already read by a live subscription of this broker and consumer; drop or close that one first"
    )]
    #[non_exhaustive]
    AlreadySubscribed {
        /// The stream.
        stream: Arc<str>,
    },

    /// The stream does not exist, or did not become active in time.
    #[error("stream {stream} cannot be used")]
    #[non_exhaustive]
    Stream {
        /// The stream.
        stream: Arc<str>,
        /// The response of the service.
        source: ServiceFailure,
    },

    /// The credentials are missing, wrong or expired, or do not allow this call.
    #[error("access denied: {action} on stream {stream}")]
    #[non_exhaustive]
    Denied {
        /// The permission that is missing.
        action: Action,
        /// The stream.
        stream: Arc<str>,
        /// The response of the service.
        source: ServiceFailure,
    },

    /// The [`dead_letter`](crate::KinesisStream::dead_letter) stream does not exist, is being deleted, or did not become
    /// active in time. From `subscribe`.
    #[error(
        "stream {stream}: its dead-letter stream {dead_letter} cannot be used; correct the name, create the stream, or \
         set dead_letter_if_missing"
    )]
    #[non_exhaustive]
    DeadLetterStream {
        /// The stream that is read.
        stream: Arc<str>,
        /// The dead-letter stream.
        dead_letter: Arc<str>,
        /// The response of the service.
        source: ServiceFailure,
    },

    /// A call that is not part of reading a shard failed for another reason, for example an unreachable endpoint.
    #[error("stream {stream}: a call on Kinesis failed")]
    #[non_exhaustive]
    Service {
        /// The stream.
        stream: Arc<str>,
        /// What failed and why.
        source: ServiceFailure,
    },

    /// Listing the shards failed. Reading continues. The library retries after at most one
    /// [`list_interval`](crate::KinesisStream::list_interval).
    #[error("stream {stream}: the shards could not be listed; the library retries")]
    #[non_exhaustive]
    List {
        /// The stream.
        stream: Arc<str>,
        /// What failed and why.
        source: ServiceFailure,
    },

    /// A read of one shard failed. The reader retries after one second. After eleven failures in a row, or a minute of
    /// them, it gives the shard up if another instance can take it. Otherwise it continues with growing pauses. No
    /// record is lost.
    #[error(
        "stream {stream}, shard {shard}: a read failed ({failures} in a row; {})",
        if *.gave_up { "the reader gave up; a new one starts at the next listing" } else { "the reader retries" }
    )]
    #[non_exhaustive]
    Read {
        /// The stream.
        stream: Arc<str>,
        /// The shard.
        shard: ShardId,
        /// Failed reads in a row, this one included.
        failures: u32,
        /// Whether the reader gave up after this failure.
        gave_up: bool,
        /// What failed and why.
        source: ServiceFailure,
    },

    /// The lease store failed. The library retries, and the class is [`Transient`](ErrorClass::Transient). From
    /// `subscribe` the error is final, and the class is [`Fatal`](ErrorClass::Fatal). If a lease cannot be renewed for
    /// its whole time to live, its shard delivers no records until a renewal succeeds.
    #[error("stream {stream}{}: the lease store failed while {action}", shard.as_ref().map(|s| format!(", shard {s}")).unwrap_or_default())]
    #[non_exhaustive]
    Store {
        /// The stream.
        stream: Arc<str>,
        /// The shard of the lease. None if the call read all leases of the stream.
        shard: Option<ShardId>,
        /// What the library was doing.
        action: &'static str,
        /// The store's own error.
        source: StoreError,
    },

    /// Another instance holds the shard now, or its lease row was deleted. Records in flight are redelivered there, and
    /// their commits return [`Commit::Superseded`](crate::Commit::Superseded).
    #[error("stream {stream}, shard {shard}: the lease of epoch {epoch} is lost, {}", match owner {
        Some(owner) => format!("{owner} holds the shard now"),
        None => "no instance holds the shard now".to_owned(),
    })]
    #[non_exhaustive]
    LeaseLost {
        /// The stream.
        stream: Arc<str>,
        /// The shard.
        shard: ShardId,
        /// The epoch that ended.
        epoch: u64,
        /// The instance that holds the shard now.
        owner: Option<Arc<str>>,
    },

    /// A [`seek`](crate::Seeker::seek) could not move some shards. They continue at their old position; all others
    /// moved.
    #[error(
        "stream {stream}: {} could not be moved; reading continues at their old position",
        shards.iter().map(|shard| format!("shard {shard}")).collect::<Vec<_>>().join(", ")
    )]
    #[non_exhaustive]
    Seek {
        /// The stream.
        stream: Arc<str>,
        /// The shards that stayed at their old position.
        shards: Vec<ShardId>,
        /// Why the first of them could not be moved.
        source: ServiceFailure,
    },

    /// This subscription does not read the shard that a [`seek`](crate::Seeker::seek) names: another instance holds it,
    /// it was read to its end, or it does not exist.
    #[error("stream {stream}: shard {shard} is not being read by this subscription")]
    #[non_exhaustive]
    NotHeld {
        /// The stream.
        stream: Arc<str>,
        /// The shard.
        shard: ShardId,
    },

    /// Two live subscriptions use one `owner_id`. This one was fenced by the other one and stops.
    #[error(
        "stream {stream}, shard {shard}: another live process uses the owner id {owner} (it took epoch {epoch}); \
         give every process its own owner id"
    )]
    #[non_exhaustive]
    DuplicateOwner {
        /// The stream.
        stream: Arc<str>,
        /// The shard that both wanted.
        shard: ShardId,
        /// The id that both use.
        owner: Arc<str>,
        /// The epoch of the other process.
        epoch: u64,
    },

    /// A record in which the Kinesis Producer Library aggregated several user records. The library does not deliver it
    /// as data. This error takes its place in the order of the shard, and the record counts as settled.
    #[error(
        "stream {stream}, shard {shard}, sequence number {sequence_number}: a record aggregated by the Kinesis Producer \
         Library ({} bytes), which is not split into its user records; turn aggregation off in the producer",
        data.len()
    )]
    #[non_exhaustive]
    AggregatedRecord {
        /// The stream.
        stream: Arc<str>,
        /// The shard.
        shard: ShardId,
        /// The record.
        sequence_number: SequenceNumber,
        /// The partition key of the aggregate. Each user record inside has its own key.
        partition_key: Option<Arc<str>>,
        /// The bytes of the record, magic and trailer included.
        data: Bytes,
    },

    /// A record used up its [`max_attempts`](crate::KinesisStream::max_attempts) or was
    /// [rejected](crate::Delivery::reject), and it cannot become a dead letter.
    /// The library does not redeliver it. This error takes its place and carries the record, which counts as settled.
    #[error(
        "stream {}, shard {}, sequence number {}: {} attempt {attempts}: {reason}{}",
        record.stream(), record.shard(), record.sequence_number(),
        if *rejected { "rejected in" } else { "given up after" },
        if source.is_some() { "; it cannot be a dead letter either" } else { "" }
    )]
    #[non_exhaustive]
    AttemptsSpent {
        /// The record as it was read, with its position.
        record: Arc<Record>,
        /// How many times this process delivered it.
        attempts: u32,
        /// Whether it was [rejected](crate::Delivery::reject). False if it used up its attempts, or was
        /// [too old](crate::KinesisStream::max_age) for a dead letter that could not be written.
        rejected: bool,
        /// The reason of the last attempt: the text given to [`nack_because`](crate::Delivery::nack_because) or
        /// [`reject`](crate::Delivery::reject), or `given back`, `dropped`, `dropped by a panic`.
        reason: Arc<str>,
        /// Why it could not become a dead letter: the service refused it, or it is too large together with the added
        /// headers. None if no [`dead_letter`](crate::KinesisStream::dead_letter) stream is set.
        source: Option<ServiceFailure>,
    },

    /// A record that used up its attempts could not be written to the dead-letter stream. The library retries. Until
    /// the write succeeds, the record stays unsettled and the checkpoint stays before it. The rest of the shard
    /// continues.
    #[error(
        "stream {stream}, shard {shard}, sequence number {sequence_number}: the record could not be written to the \
         dead-letter stream {dead_letter}; the library retries"
    )]
    #[non_exhaustive]
    DeadLetter {
        /// The stream.
        stream: Arc<str>,
        /// The shard.
        shard: ShardId,
        /// The record.
        sequence_number: SequenceNumber,
        /// The stream for dead letters.
        dead_letter: Arc<str>,
        /// What failed and why.
        source: ServiceFailure,
    },

    /// The service no longer accepts the position of a checkpoint: the record is older than the retention period, or
    /// belongs to another shard. Reading restarts at the oldest available record. The records in between are gone.
    #[error(
        "stream {stream}, shard {shard}: the checkpoint {checkpoint} no longer points to an available record; reading \
         restarts at the oldest one"
    )]
    #[non_exhaustive]
    CheckpointLost {
        /// The stream.
        stream: Arc<str>,
        /// The shard.
        shard: ShardId,
        /// The record that the checkpoint names.
        checkpoint: SequenceNumber,
        /// The response of the service. None if it accepted the checkpoint and then returned nothing for a minute while
        /// it reported the lag of the whole retention period.
        source: Option<ServiceFailure>,
    },

    /// A shard left the stream before it was read to its end: its records are older than the retention period. The
    /// library releases its lease and reads its children.
    #[error("stream {stream}, shard {shard} is gone before it was read to its end; its children start without it")]
    #[non_exhaustive]
    ShardGone {
        /// The stream.
        stream: Arc<str>,
        /// The shard.
        shard: ShardId,
    },

    /// The stream was deleted and created again under its name. The library ignores the checkpoints of the old stream
    /// and reads the new one from its oldest record.
    #[error("stream {stream} was deleted and created again; the new one is read from its start")]
    #[non_exhaustive]
    StreamRecreated {
        /// The stream.
        stream: Arc<str>,
    },

    /// A failure that only a person can end has lasted for the [`patience`](crate::KinesisStream::patience) of the
    /// subscription: a missing permission, a missing lease table or dead-letter stream, a table with another key, or a
    /// KMS key that cannot be used. The library keeps trying, and yields this error once per patience.
    /// [`SubscriptionStats::failing`](crate::SubscriptionStats::failing) shows the failure from its beginning.
    #[error("stream {stream}: a failure has lasted for {} s, and only a person can end it", lasted.as_secs())]
    #[non_exhaustive]
    Lasting {
        /// The stream.
        stream: Arc<str>,
        /// The time since the first such failure. No call of this kind has succeeded since.
        lasted: Duration,
        /// The last failure: [`Read`](Self::Read), [`List`](Self::List), [`Store`](Self::Store) or
        /// [`DeadLetter`](Self::DeadLetter).
        source: Arc<Self>,
    },

    /// The service refuses this record permanently, for example because it is too large for the stream. It was sent
    /// alone, so no other record is affected.
    #[error("stream {stream}: the service refuses the record")]
    #[non_exhaustive]
    Refused {
        /// The stream.
        stream: Arc<str>,
        /// The response of the service.
        source: ServiceFailure,
    },

    /// The sink retried a record until its time or its attempts were used up. If a response was lost
    /// or could not be read, the record may be in the stream. After three responses that could not be read, the sink
    /// gives up earlier, because each of these requests may have stored it.
    #[error("stream {stream}: a record could not be published in {attempts} attempts and {waited:?}")]
    #[non_exhaustive]
    GaveUp {
        /// The stream.
        stream: Arc<str>,
        /// How many times it was sent. Zero if it was never sent.
        attempts: u32,
        /// The time since the sink accepted it.
        waited: Duration,
        /// The last failure. None if it was never sent.
        source: Option<ServiceFailure>,
    },

    /// The tasks of a subscription ended before it was closed: their runtime was shut down, or the lease store
    /// panicked. The subscription ends after this error, and its leases expire. For a record of a sink: the runtime
    /// ended before the service confirmed the record.
    #[error(
        "stream {stream}: the tasks that worked on it ended: their runtime was shut down, or the lease store panicked"
    )]
    #[non_exhaustive]
    Interrupted {
        /// The stream.
        stream: Arc<str>,
    },

    /// The Kinesis stream was deleted. The subscription ends after this error.
    #[error("stream {stream} is gone")]
    #[non_exhaustive]
    StreamGone {
        /// The stream.
        stream: Arc<str>,
        /// The response of the service.
        source: ServiceFailure,
    },
}

/// How much an error matters to the consumer of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The library handles it, and no record is lost.
    /// [`Subscription::tolerant`](crate::Subscription::tolerant) logs and drops these errors.
    Transient,
    /// The library skipped records that the service no longer keeps, and reads on. It is logged at ERROR, and
    /// [`SubscriptionStats::errors`](crate::SubscriptionStats::errors) counts it. `tolerant` drops these errors, too.
    Loss,
    /// The library keeps trying, but only a person can end the failure, and it has lasted for the
    /// [`patience`](crate::KinesisStream::patience) of the subscription.
    Lasting,
    /// The library will not deliver this record, or did not publish it.
    Record,
    /// The subscription ends after this error, or the call failed permanently.
    Fatal,
}

impl fmt::Debug for KinesisError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KinesisError::{:?}({})", self.class(), Chain(self))
    }
}

impl KinesisError {
    /// The class of the error, which tells what to do.
    ///
    /// ```
    /// use kinesis_stream::{ErrorClass, KinesisError};
    ///
    /// assert_eq!(KinesisError::NotConnected.class(), ErrorClass::Fatal);
    /// ```
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Store { source, .. } if source.ended_start() => ErrorClass::Fatal,
            Self::List { .. }
            | Self::Read { .. }
            | Self::Store { .. }
            | Self::LeaseLost { .. }
            | Self::Seek { .. }
            | Self::NotHeld { .. }
            | Self::DeadLetter { .. } => ErrorClass::Transient,
            Self::CheckpointLost { .. } | Self::ShardGone { .. } | Self::StreamRecreated { .. } => ErrorClass::Loss,
            Self::Lasting { .. } => ErrorClass::Lasting,
            Self::AggregatedRecord { .. } | Self::AttemptsSpent { .. } | Self::Refused { .. } | Self::GaveUp { .. } => {
                ErrorClass::Record
            }
            Self::Invalid { .. }
            | Self::NotConnected
            | Self::AlreadySubscribed { .. }
            | Self::Stream { .. }
            | Self::DeadLetterStream { .. }
            | Self::Denied { .. }
            | Self::Service { .. }
            | Self::DuplicateOwner { .. }
            | Self::Interrupted { .. }
            | Self::StreamGone { .. } => ErrorClass::Fatal,
        }
    }

    /// The error for a failed call that concerns the whole stream.
    pub(crate) fn refused(stream: &str, source: ServiceFailure) -> Self {
        let stream = Arc::from(stream);
        match source.kind() {
            FailureKind::NotFound | FailureKind::NotReady => Self::Stream { stream, source },
            FailureKind::Denied | FailureKind::Credentials => Self::Denied { action: source.action(), stream, source },
            _ => Self::Service { stream, source },
        }
    }

    pub(crate) fn invalid(what: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid { what, problem: problem.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // X3
    #[test]
    fn debug_shows_the_text_and_its_causes_and_no_data_of_a_record() {
        let aggregated = KinesisError::AggregatedRecord {
            stream: "s".into(),
            shard: "a".into(),
            sequence_number: "5".into(),
            partition_key: Some("secret".into()),
            data: vec![b'x'; 1 << 20].into(),
        };
        let debug = format!("{aggregated:?}");
        assert!(debug.starts_with("KinesisError::Record(stream s, shard a, sequence number 5"), "{debug}");
        assert!(debug.len() < 300 && !debug.contains("secret") && !debug.contains("xxx"), "{debug}");
        let source = ServiceFailure::new(Action::GetRecords, FailureKind::Other, "out of order");
        let refused = KinesisError::refused("s", source);
        assert!(format!("{refused:?}").ends_with("out of order)"), "{refused:?}");
    }
}
