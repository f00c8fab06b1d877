//! A record on its way into a stream, and what the service said when it took it.

use bytes::Bytes;

use crate::{
    error::KinesisError,
    id::{SequenceNumber, ShardId},
    limits,
};

/// A record to publish: a partition key, a payload, and headers if any.
///
/// ```
/// use kinesis_stream::Outgoing;
///
/// let order = Outgoing::new("customer-17", r#"{"order":4711}"#).header("content-type", "application/json");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a record does nothing until it is published"]
pub struct Outgoing {
    pub(crate) partition_key: String,
    pub(crate) payload: Bytes,
    pub(crate) headers: Vec<(String, Bytes)>,
}

impl Outgoing {
    /// A record without headers. Its payload goes out as it is, so any consumer can read it.
    ///
    /// Records of one partition key go to one shard, in order as long as each is published after the one before it was
    /// acknowledged. The key has 1 to 256 Unicode characters; key and data together at most 10 MiB. What breaks a limit
    /// is refused when it is published, before anything is sent.
    pub fn new(partition_key: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Self { partition_key: partition_key.into(), payload: payload.into(), headers: Vec::new() }
    }

    /// Adds a header. Kinesis has none, so headers travel in a small envelope in front of the payload, which a
    /// consumer has to know. A name can be added more than once; the order is kept.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Whether the service can take this record, whose payload and headers make this blob of data.
    pub(crate) fn check(&self, data: &Bytes) -> Result<(), KinesisError> {
        limits::check_record(&self.partition_key, data.len())
    }
}

/// Where a published record stands: the service stored it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub(crate) shard: ShardId,
    pub(crate) sequence_number: SequenceNumber,
}

impl Published {
    /// The shard that the partition key picked.
    #[must_use]
    pub fn shard(&self) -> &ShardId {
        &self.shard
    }

    /// The place of the record in its shard.
    #[must_use]
    pub fn sequence_number(&self) -> &SequenceNumber {
        &self.sequence_number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // P2
    #[test]
    fn headers_keep_their_order_and_may_repeat() {
        let record = Outgoing::new("key", "payload").header("b", "1").header("a", "2").header("b", "3");
        let names: Vec<_> = record.headers.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["b", "a", "b"]);
    }

    // S2
    #[test]
    fn the_size_that_counts_is_that_of_the_enveloped_data() {
        let record = Outgoing::new("k", Bytes::new());
        record.check(&Bytes::from(vec![0; (10 << 20) - 1])).unwrap();
        assert!(record.check(&Bytes::from(vec![0; 10 << 20])).is_err());
        assert!(Outgoing::new("", "payload").check(&Bytes::from_static(b"payload")).is_err());
    }
}
