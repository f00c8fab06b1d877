//! A record to publish, and the service's receipt for it.

use std::fmt;

use bytes::Bytes;

use crate::{
    config::limits,
    dead_letters::dead_letter::DeadLetter,
    error::KinesisError,
    types::{
        id::{SequenceNumber, ShardId},
        record::Record,
    },
    util::redacted::Length,
};

/// A record to publish: a partition key, a payload, and headers if any.
///
/// ```
/// use kinesis_stream::Outgoing;
///
/// let order = Outgoing::new("customer-17", r#"{"order":4711}"#).header("content-type", "application/json");
/// ```
///
/// `Debug` shows lengths and the names of headers, so that keys and payloads do not end up in logs.
#[derive(Clone, PartialEq, Eq)]
#[must_use = "a record does nothing until it is published"]
pub struct Outgoing {
    pub(crate) partition_key: String,
    pub(crate) payload: Bytes,
    pub(crate) headers: Vec<(String, Bytes)>,
    pub(crate) explicit_hash_key: Option<u128>,
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<_> = self.headers.iter().map(|(name, value)| (name, Length(value.len()))).collect();
        f.debug_struct("Outgoing")
            .field("partition_key", &Length(self.partition_key.len()))
            .field("payload", &Length(self.payload.len()))
            .field("headers", &headers)
            .finish_non_exhaustive()
    }
}

impl Outgoing {
    /// A record without headers. Its payload goes out as it is, so any consumer can read it.
    ///
    /// Records of one partition key go to one shard. They stay in order if each is published after the previous one was
    /// acknowledged. The key has 1 to 256 Unicode characters; key and data together have at most 10 MiB. Publishing
    /// refuses a record that breaks a limit before it sends anything.
    pub fn new(partition_key: impl Into<String>, payload: impl Into<Bytes>) -> Self {
        Self {
            partition_key: partition_key.into(),
            payload: payload.into(),
            headers: Vec::new(),
            explicit_hash_key: None,
        }
    }

    /// Adds a header. Kinesis has no headers, so they travel in a small envelope in front of the payload. The consumer
    /// must know that envelope. A name can occur more than once; the order is kept.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Sends the record to the shard that owns this hash, and not to the shard that owns the MD5 of the partition key.
    /// Use it to address one shard, or to spread one key over shards. Every 128-bit number is valid.
    ///
    /// Order still follows the partition key: a sink in [`PublishOrder::ByKey`] has one record of a *partition key* in
    /// flight, with any hash keys.
    ///
    /// ```
    /// # use kinesis_stream::Outgoing;
    /// // The upper half of all hashes: the second of two even shards.
    /// let order = Outgoing::new("customer-17", r#"{"order":4711}"#).explicit_hash_key(1 << 127);
    /// # drop(order);
    /// ```
    pub fn explicit_hash_key(mut self, hash: u128) -> Self {
        self.explicit_hash_key = Some(hash);
        self
    }

    /// The partition key.
    #[must_use]
    pub fn partition_key(&self) -> &str {
        &self.partition_key
    }

    /// The payload, without the headers.
    #[must_use]
    pub fn payload(&self) -> &Bytes {
        &self.payload
    }

    /// Checks the limits of the service. `data` is the payload in the envelope of its headers.
    pub(crate) fn check(&self, data: &Bytes) -> Result<(), KinesisError> {
        limits::check_record(&self.partition_key, data.len())
    }
}

impl DeadLetter {
    /// The original record, to be published again: its partition key, headers and payload. A record without a partition
    /// key gets its sequence number as its key.
    pub fn original(&self) -> Outgoing {
        let Record { payload, headers, partition_key, sequence_number, .. } = self.record();
        Outgoing {
            partition_key: partition_key.as_deref().unwrap_or(sequence_number.as_str()).to_owned(),
            payload: payload.clone(),
            headers: headers.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect(),
            explicit_hash_key: None,
        }
    }
}

/// How a [`PublishSink`](crate::PublishSink) orders records.
///
/// `PutRecords` promises no order, and a failed record is resent after others of its request were stored. Order has a
/// cost: only one record of a key can be in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PublishOrder {
    /// The records of a partition key are stored in the order in which the sink accepted them. A request holds at most
    /// one record of a key, and the next one waits until that one is stored or has failed. Different keys do not wait
    /// for each other.
    ///
    /// The rate that follows is about one record per key and round trip: at 20 ms, 50 a second of each key. Many keys
    /// make up for it, and so does aggregation (feature `kpl`), where everything that waits of a key goes out as one
    /// entry.
    ///
    /// A request whose answer was lost is sent again, so a record may be stored twice, and after a timeout its second
    /// copy may come after later ones: the *first* copies are in order.
    ///
    /// It is the order of one sink, its clones included: two sinks do not know of each other.
    #[default]
    ByKey,
    /// Records go out as soon as there is room, any number of a key at a time. No order is promised, not even inside a
    /// request.
    Relaxed,
}

/// Where a published record stands: the service stored it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Published {
    pub(crate) shard: ShardId,
    pub(crate) sequence_number: SequenceNumber,
    pub(crate) sub_sequence_number: Option<u64>,
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

    /// The place inside its aggregate, from 0, of a record that was aggregated: those of one aggregate share a sequence
    /// number. None for any other record.
    #[must_use]
    pub fn sub_sequence_number(&self) -> Option<u64> {
        self.sub_sequence_number
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
