//! A record as it is kept and as it is delivered: values only.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};

use bytes::Bytes;

use crate::{
    types::id::{SequenceNumber, ShardId},
    util::redacted::{HiddenPayload, Length},
};

/// The headers of a record: names and values in the order in which the producer put them. Cheap to clone.
///
/// Kinesis has no headers; a small envelope in front of the payload carries them. A name may occur more than once.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers(Option<Arc<[(String, Bytes)]>>);

impl Headers {
    pub(crate) fn new(headers: Vec<(String, Bytes)>) -> Self {
        Self((!headers.is_empty()).then(|| headers.into()))
    }

    /// The first value under this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Bytes> {
        self.iter().find_map(|(n, value)| (n == name).then_some(value))
    }

    /// Names and values, in order.
    #[must_use]
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Bytes)> {
        self.0.as_deref().unwrap_or_default().iter().map(|(name, value)| (name.as_str(), value))
    }

    /// The number of headers.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.as_deref().map_or(0, <[_]>::len)
    }

    /// Whether the record has no headers.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter().map(|(name, value)| (name, Length(value.len())))).finish()
    }
}

/// A record and its position in the stream. `T` is the payload: its bytes, or the value that they were decoded to.
///
/// `Debug` shows no payload, no header values and no partition key, so that they do not end up in logs. `{:#?}` shows
/// the beginning of the payload.
#[derive(Clone, PartialEq, Eq)]
pub struct Record<T = Bytes> {
    pub(crate) payload: T,
    pub(crate) headers: Headers,
    pub(crate) partition_key: Option<Box<str>>,
    pub(crate) stream: Arc<str>,
    pub(crate) shard: ShardId,
    pub(crate) sequence_number: SequenceNumber,
    pub(crate) arrived_at: Option<i64>,
}

impl<T> Record<T> {
    /// The payload, without the envelope of its headers.
    pub fn payload(&self) -> &T {
        &self.payload
    }

    /// The payload alone.
    pub fn into_payload(self) -> T {
        self.payload
    }

    /// The headers; empty if the producer set none.
    pub fn headers(&self) -> &Headers {
        &self.headers
    }

    /// The partition key. `None` if the stream itself distributes records over its shards and the producer set no key.
    pub fn partition_key(&self) -> Option<&str> {
        self.partition_key.as_deref()
    }

    /// The name of the stream.
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// The id of the shard that the record was read from.
    pub fn shard(&self) -> &ShardId {
        &self.shard
    }

    /// The position of the record in its shard.
    pub fn sequence_number(&self) -> &SequenceNumber {
        &self.sequence_number
    }

    /// Roughly when the service received the record: in milliseconds at best, and neither accurate nor in order
    /// ([`ApproximateArrivalTimestamp`](https://docs.aws.amazon.com/kinesis/latest/APIReference/API_Record.html)).
    pub fn arrived_at(&self) -> Option<SystemTime> {
        system_time(self.arrived_at?)
    }
}

impl<T: fmt::Debug> fmt::Debug for Record<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Record")
            .field("stream", &self.stream)
            .field("shard", &self.shard)
            .field("sequence_number", &self.sequence_number)
            .field("arrived_at", &self.arrived_at)
            .field("partition_key", &self.partition_key.as_ref().map(|key| Length(key.len())))
            .field("headers", &self.headers)
            .field("payload", &HiddenPayload(&self.payload))
            .finish()
    }
}

/// The part of a record that is kept for as long as the record may be redelivered. The stream and the shard are not
/// in it: the state of the shard knows them.
#[derive(Clone)]
pub(crate) struct Kept {
    pub(crate) payload: Bytes,
    pub(crate) headers: Headers,
    pub(crate) partition_key: Option<Box<str>>,
    pub(crate) sequence_number: SequenceNumber,
    pub(crate) arrived_at: Option<i64>,
}

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = Length(self.payload.len());
        f.debug_struct("Kept")
            .field("sequence_number", &self.sequence_number)
            .field("payload", &bytes)
            .finish_non_exhaustive()
    }
}

impl Kept {
    /// The whole record, as it is delivered.
    pub(crate) fn into_record(self, stream: Arc<str>, shard: ShardId) -> Record {
        let Self { payload, headers, partition_key, sequence_number, arrived_at } = self;
        Record { payload, headers, partition_key, stream, shard, sequence_number, arrived_at }
    }
}

/// The time that is this many milliseconds after 1970 (UTC); none if the platform cannot represent it.
pub(crate) fn system_time(unix_millis: i64) -> Option<SystemTime> {
    let distance = Duration::from_millis(unix_millis.unsigned_abs());
    if unix_millis < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    }
}
