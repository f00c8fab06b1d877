//! [`KinesisError`]: one variant for each thing that a caller acts on.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    error::service::{Action, FailureKind, ServiceFailure, StoreError},
    types::{
        id::{SequenceNumber, ShardId},
        record::Record,
    },
};

pub(crate) mod chain;
pub(crate) mod service;

/// What went wrong, where, and what the library does about it.
///
/// As an item of a subscription it is news, not an end: [`class`](Self::class) says whether the library is
/// dealing with it already. As the result of a call it is final for that call.
///
/// The error is cheap to clone. Its text says what failed; the cause is its [`source`](std::error::Error::source), which
/// leads to the SDK's own error. Print the sources, too, where somebody is to learn why.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KinesisError {
    /// A setting or an argument is outside its limits. Nothing was sent.
    #[error("invalid {what}: {problem}")]
    #[non_exhaustive]
    Invalid {
        /// The setting or argument, by its name in the API.
        what: &'static str,
        /// The limit, and the value that was given.
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
        /// The answer of the service.
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
        /// The answer of the service.
        source: ServiceFailure,
    },

    /// A call that is not part of reading a shard failed for another reason: the endpoint is unreachable, say.
    #[error("stream {stream}: a call on Kinesis failed")]
    #[non_exhaustive]
    Service {
        /// The stream.
        stream: Arc<str>,
        /// What failed and why.
        source: ServiceFailure,
    },

    /// Listing the shards failed. What is being read goes on; the next listing is at most a [`list_interval`](crate::KinesisStream::list_interval) away.
    #[error("stream {stream}: the shards could not be listed, which will be tried again")]
    #[non_exhaustive]
    List {
        /// The stream.
        stream: Arc<str>,
        /// What failed and why.
        source: ServiceFailure,
    },

    /// A read of one shard failed. It is repeated after a second; after the eleventh failure in a row the shard is given
    /// up and taken again at the next listing. Nothing is lost.
    #[error(
        "stream {stream}, shard {shard}: a read failed ({failures} in a row; {})",
        if *.gave_up { "the reader gave up and starts anew at the next listing" } else { "it will be repeated" }
    )]
    #[non_exhaustive]
    Read {
        /// The stream.
        stream: Arc<str>,
        /// The shard.
        shard: ShardId,
        /// Failed reads in a row, this one included.
        failures: u32,
        /// This was one too many: the reader stopped.
        gave_up: bool,
        /// What failed and why.
        source: ServiceFailure,
    },

    /// The lease store failed. The write is repeated; a lease that cannot be renewed for its whole time to live
    /// stops handing out records.
    #[error("stream {stream}{}: the lease store failed while {action}", shard.as_ref().map(|s| format!(", shard {s}")).unwrap_or_default())]
    #[non_exhaustive]
    Store {
        /// The stream.
        stream: Arc<str>,
        /// The shard whose lease it is; none when all leases of the stream were asked for.
        shard: Option<ShardId>,
        /// What was being done.
        action: &'static str,
        /// The store's own error.
        source: StoreError,
    },

    /// Another instance holds the shard now, or its lease row was removed. What was in flight comes again there;
    /// its commits answer [`Commit::Superseded`](crate::Commit::Superseded).
    #[error("stream {stream}, shard {shard}: the lease of epoch {epoch} is lost, {}", match owner {
        Some(owner) => format!("{owner} holds the shard now"),
        None => "nobody holds the shard now".to_owned(),
    })]
    #[non_exhaustive]
    LeaseLost {
        /// The stream.
        stream: Arc<str>,
        /// The shard.
        shard: ShardId,
        /// The epoch that ended.
        epoch: u64,
        /// Who holds the shard now.
        owner: Option<Arc<str>>,
    },

    /// Some shards could not be moved by a [`seek`](crate::Seeker::seek): they go on where they were. All others moved.
    #[error(
        "stream {stream}: {} could not be moved and read on where they were",
        shards.iter().map(|shard| format!("shard {shard}")).collect::<Vec<_>>().join(", ")
    )]
    #[non_exhaustive]
    Seek {
        /// The stream.
        stream: Arc<str>,
        /// The shards that stayed where they were.
        shards: Vec<ShardId>,
        /// Why the first of them could not be moved.
        source: ServiceFailure,
    },

    /// The shard that a [`seek`](crate::Seeker::seek) names is not being read by this subscription: another instance holds
    /// it, it was read to its end, or there is no such shard.
    #[error("stream {stream}: shard {shard} is not being read by this subscription")]
    #[non_exhaustive]
    NotHeld {
        /// The stream.
        stream: Arc<str>,
        /// The shard.
        shard: ShardId,
    },

    /// Two live subscriptions use one `owner_id`: this one was fenced by its own name and stops.
    #[error(
        "stream {stream}, shard {shard}: another live process uses the owner id {owner} (it took epoch {epoch}); \
         every process needs an owner id of its own"
    )]
    #[non_exhaustive]
    DuplicateOwner {
        /// The stream.
        stream: Arc<str>,
        /// The shard over which they met.
        shard: ShardId,
        /// The id that both use.
        owner: Arc<str>,
        /// The other one's epoch.
        epoch: u64,
    },

    /// A record that the Kinesis Producer Library aggregated: several user records in one. It is not handed out
    /// as data; this item takes its place and counts as settled.
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
        /// The record's own partition key; its user records have keys of their own inside.
        partition_key: Option<Arc<str>>,
        /// The record as it was read, magic and trailer included.
        data: Bytes,
    },

    /// A record was given back as often as [`max_attempts`](crate::KinesisStream::max_attempts) allows, and no stream takes
    /// it as a dead letter. It is not delivered again: this item takes its place, carries it as it came, and counts as
    /// settled.
    #[error(
        "stream {}, shard {}, sequence number {}: given up after attempt {attempts}: {reason}{}",
        record.stream(), record.shard(), record.sequence_number(),
        if source.is_some() { "; it cannot be a dead letter either" } else { "" }
    )]
    #[non_exhaustive]
    AttemptsSpent {
        /// The record as it came, and where it stood.
        record: Arc<Record>,
        /// How often this process delivered it.
        attempts: u32,
        /// Why it was given back the last time: the words of [`nack_because`](crate::Delivery::nack_because), or
        /// `given back`, `dropped`, `dropped by a panic`.
        reason: Arc<str>,
        /// Why it could not become a dead letter: the service takes no such record, or this library sends none, since it
        /// would be too large with the headers that are added. None where no
        /// [`dead_letter`](crate::KinesisStream::dead_letter) is set.
        source: Option<ServiceFailure>,
    },

    /// A record whose attempts are spent could not be written to the dead-letter stream. The write is repeated; until it
    /// succeeds the record stays unsettled, and the checkpoint of its shard in front of it. The rest of the shard goes on.
    #[error(
        "stream {stream}, shard {shard}, sequence number {sequence_number}: the record could not be written to the \
         dead-letter stream {dead_letter}, which will be tried again"
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

    /// The service no longer takes the place of a checkpoint: the record is older than the retention, or of another
    /// shard. The shard is read from the oldest record that it still keeps; what lay between is no longer there.
    #[error(
        "stream {stream}, shard {shard}: the checkpoint {checkpoint} no longer leads anywhere; reading from the oldest \
         record that is kept"
    )]
    #[non_exhaustive]
    CheckpointLost {
        /// The stream.
        stream: Arc<str>,
        /// The shard.
        shard: ShardId,
        /// The record that the checkpoint names.
        checkpoint: SequenceNumber,
        /// The answer of the service. None where it took the checkpoint and then found nothing for a minute, at the very
        /// end of its retention.
        source: Option<ServiceFailure>,
    },

    /// A shard that was being read is no longer part of the stream, though its end was not reached: its records are older
    /// than the retention. Its lease is released, and its children are no longer held back.
    #[error("stream {stream}, shard {shard} is gone before it was read to its end; its children are read without it")]
    #[non_exhaustive]
    ShardGone {
        /// The stream.
        stream: Arc<str>,
        /// The shard.
        shard: ShardId,
    },

    /// The stream was deleted and created again under its name. The old one's checkpoints are not used: the new one is read
    /// from its oldest record.
    #[error("stream {stream} was deleted and created again; the new one is read from its start")]
    #[non_exhaustive]
    StreamRecreated {
        /// The stream.
        stream: Arc<str>,
    },

    /// The service refuses this record and would refuse it again: it is too large for its stream, say. It was sent alone,
    /// so the others are not concerned.
    #[error("stream {stream}: the service refuses the record")]
    #[non_exhaustive]
    Refused {
        /// The stream.
        stream: Arc<str>,
        /// The answer of the service.
        source: ServiceFailure,
    },

    /// A record was sent until its time or its attempts were used up, and never found to be stored. After a lost answer it
    /// may be in the stream nevertheless.
    #[error("stream {stream}: a record could not be published in {attempts} attempts and {waited:?}")]
    #[non_exhaustive]
    GaveUp {
        /// The stream.
        stream: Arc<str>,
        /// How often it was sent. Zero if its turn never came.
        attempts: u32,
        /// The time since it was accepted.
        waited: Duration,
        /// Why it failed the last time; none if it was never sent.
        source: Option<ServiceFailure>,
    },

    /// The tasks of a subscription ended though nobody closed it: the runtime on which it was started was shut down, or
    /// the lease store panicked. The subscription ends after this item; its leases run out by themselves. For a record that
    /// was given to a sink: the runtime ended before the record was known to be stored.
    #[error(
        "stream {stream}: the tasks that worked on it ended: their runtime was shut down, or the lease store panicked"
    )]
    #[non_exhaustive]
    Interrupted {
        /// The stream.
        stream: Arc<str>,
    },

    /// The Kinesis stream itself is gone. The subscription ends after this item.
    #[error("stream {stream} is gone")]
    #[non_exhaustive]
    StreamGone {
        /// The stream.
        stream: Arc<str>,
        /// The answer of the service.
        source: ServiceFailure,
    },
}

/// How much an error matters to somebody who consumes a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The library deals with it, and nothing is lost that the service still keeps. [`Subscription::tolerant`](crate::Subscription::tolerant) logs
    /// and drops these.
    Transient,
    /// This one record will not be delivered, or was not published.
    Record,
    /// The subscription ends after this item, or the call failed for good.
    Fatal,
}

impl KinesisError {
    /// What to do about it.
    ///
    /// ```
    /// use kinesis_stream::{ErrorClass, KinesisError};
    ///
    /// assert_eq!(KinesisError::NotConnected.class(), ErrorClass::Fatal);
    /// ```
    #[must_use]
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::List { .. }
            | Self::Read { .. }
            | Self::Store { .. }
            | Self::LeaseLost { .. }
            | Self::Seek { .. }
            | Self::NotHeld { .. }
            | Self::DeadLetter { .. }
            | Self::CheckpointLost { .. }
            | Self::ShardGone { .. }
            | Self::StreamRecreated { .. } => ErrorClass::Transient,
            Self::AggregatedRecord { .. } | Self::AttemptsSpent { .. } | Self::Refused { .. } | Self::GaveUp { .. } => {
                ErrorClass::Record
            }
            Self::Invalid { .. }
            | Self::NotConnected
            | Self::AlreadySubscribed { .. }
            | Self::Stream { .. }
            | Self::Denied { .. }
            | Self::Service { .. }
            | Self::DuplicateOwner { .. }
            | Self::Interrupted { .. }
            | Self::StreamGone { .. } => ErrorClass::Fatal,
        }
    }

    /// What a failed call on a stream as a whole means to a caller.
    pub(crate) fn refused(stream: &str, source: ServiceFailure) -> Self {
        let stream = Arc::from(stream);
        match source.kind() {
            FailureKind::NotFound | FailureKind::NotReady => Self::Stream { stream, source },
            FailureKind::Denied => Self::Denied { action: source.action(), stream, source },
            _ => Self::Service { stream, source },
        }
    }

    pub(crate) fn invalid(what: &'static str, problem: impl Into<String>) -> Self {
        Self::Invalid { what, problem: problem.into() }
    }
}
