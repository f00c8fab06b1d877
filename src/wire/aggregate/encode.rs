//! Builds an aggregated record from user records that share a partition key and an explicit hash key.

use bytes::{BufMut, Bytes, BytesMut};
use md5::{Digest, Md5};
use prost::{Message, encoding::encoded_len_varint};

use super::{MAGIC, TRAILER};

#[derive(Clone, PartialEq, Message)]
struct AggregatedRecord {
    #[prost(string, repeated, tag = "1")]
    partition_keys: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    explicit_hash_keys: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    records: Vec<UserRecord>,
}

#[derive(Clone, PartialEq, Message)]
struct UserRecord {
    #[prost(uint64, required, tag = "1")]
    partition_key: u64,
    #[prost(uint64, optional, tag = "2")]
    explicit_hash_key: Option<u64>,
    #[prost(bytes = "bytes", required, tag = "3")]
    data: Bytes,
}

/// The key and hash that the user records of one aggregate share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AggregateFormat<'a> {
    partition_key: &'a str,
    explicit_hash_key: Option<u128>,
}

impl<'a> AggregateFormat<'a> {
    pub(crate) fn new(partition_key: &'a str, explicit_hash_key: Option<u128>) -> Self {
        Self { partition_key, explicit_hash_key }
    }

    /// The size of an aggregate without records.
    pub(crate) fn empty(self) -> usize {
        let hash = self.explicit_hash_key.map_or(0, |hash| field(digits(hash)));
        MAGIC.len() + field(self.partition_key.len()) + hash + TRAILER
    }

    /// How much a user record with `data` bytes adds to it.
    pub(crate) fn record(self, data: usize) -> usize {
        let indices = if self.explicit_hash_key.is_some() { 4 } else { 2 };
        field(indices + field(data))
    }

    pub(crate) fn encode(self, records: impl Iterator<Item = Bytes>) -> Bytes {
        let explicit_hash_key = self.explicit_hash_key.map(|_| 0);
        let message = AggregatedRecord {
            partition_keys: vec![self.partition_key.to_owned()],
            explicit_hash_keys: self.explicit_hash_key.iter().map(u128::to_string).collect(),
            records: records.map(|data| UserRecord { partition_key: 0, explicit_hash_key, data }).collect(),
        };
        let message = message.encode_to_vec();
        let mut blob = BytesMut::with_capacity(MAGIC.len() + message.len() + TRAILER);
        blob.put_slice(MAGIC);
        blob.put_slice(&message);
        blob.put_slice(&Md5::digest(&message));
        blob.freeze()
    }
}

/// The data of the user records, for tests; none if the blob is no aggregate.
#[cfg(test)]
pub(crate) fn decode(blob: &Bytes) -> Option<Vec<Bytes>> {
    let message = super::is_aggregated(blob).then(|| &blob[MAGIC.len()..blob.len() - TRAILER])?;
    Some(AggregatedRecord::decode(message).ok()?.records.into_iter().map(|record| record.data).collect())
}

/// The size of a field with a one-byte tag and `content` bytes.
fn field(content: usize) -> usize {
    1 + encoded_len_varint(content as u64) + content
}

fn digits(number: u128) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::wire::aggregate::is_aggregated;

    fn decoded(blob: &Bytes) -> AggregatedRecord {
        AggregatedRecord::decode(&blob[MAGIC.len()..blob.len() - TRAILER]).unwrap()
    }

    #[test]
    fn the_wire_format_is_the_one_of_the_kinesis_producer_library() {
        let records = [Bytes::from_static(b"one"), Bytes::from_static(b"two")];
        let blob = AggregateFormat::new("key", None).encode(records.into_iter());
        let message = b"\x0a\x03key\x1a\x07\x08\x00\x1a\x03one\x1a\x07\x08\x00\x1a\x03two";
        let md5 = b"\x70\x37\xde\x34\x1d\x8f\xa5\x4f\xb0\x57\xe9\xd8\xcb\x91\xca\xa6";
        assert_eq!(blob, [MAGIC, message, md5].concat());

        let blob = AggregateFormat::new("k", Some(7)).encode([Bytes::from_static(b"x")].into_iter());
        let message = b"\x0a\x01k\x12\x017\x1a\x07\x08\x00\x10\x00\x1a\x01x";
        assert_eq!(blob[MAGIC.len()..blob.len() - TRAILER], message[..]);
    }

    proptest! {
        #[test]
        fn every_aggregate_has_the_announced_size_and_decodes_to_its_records(
            key in ".{1,200}",
            hash in proptest::option::of(prop_oneof![Just(0), Just(9), Just(10), Just(u128::MAX), any::<u128>()]),
            records in vec(vec(any::<u8>(), 0..300), 1..20),
        ) {
            let format = AggregateFormat::new(&key, hash);
            let records: Vec<Bytes> = records.into_iter().map(Bytes::from).collect();
            let blob = format.encode(records.iter().cloned());
            let announced = format.empty() + records.iter().map(|data| format.record(data.len())).sum::<usize>();
            prop_assert_eq!(blob.len(), announced);
            prop_assert!(is_aggregated(&blob));
            let inside = decoded(&blob);
            prop_assert_eq!(inside.partition_keys, vec![key]);
            prop_assert_eq!(inside.explicit_hash_keys, hash.iter().map(u128::to_string).collect::<Vec<_>>());
            prop_assert_eq!(inside.records.into_iter().map(|record| record.data).collect::<Vec<_>>(), records);
        }
    }
}
