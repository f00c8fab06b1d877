//! Recognises records that the Kinesis Producer Library aggregated (R12), and builds such records: a pure check and a
//! pure encoder.
//!
//! An [aggregated record](https://github.com/awslabs/amazon-kinesis-producer/blob/master/aggregation-format.md) is a
//! magic, a protobuf message that holds user records, and the MD5 of that message as a trailer. Any payload may begin
//! with the four bytes of the magic. So a blob with a wrong trailer, or with a message that does not parse, is a plain
//! record, as it is for the KCL.

use md5::{Digest, Md5};

#[cfg(not(feature = "kpl"))]
mod disabled;
#[cfg(feature = "kpl")]
mod encode;
mod message;

#[cfg(not(feature = "kpl"))]
pub(crate) use self::disabled::NoAggregates as AggregateFormat;
#[cfg(feature = "kpl")]
pub(crate) use self::encode::AggregateFormat;
#[cfg(all(test, feature = "kpl"))]
pub(crate) use self::encode::decode;

const MAGIC: &[u8] = b"\xf3\x89\x9a\xc2";

/// The size of an MD5.
const TRAILER: usize = 16;

/// Whether this blob holds several user records. A blob without the magic costs one comparison.
pub(crate) fn is_aggregated(blob: &[u8]) -> bool {
    blob.strip_prefix(MAGIC).and_then(<[u8]>::split_last_chunk::<TRAILER>).is_some_and(|(message, trailer)| {
        !message.is_empty() && Md5::digest(message).as_slice() == trailer && message::parses(message)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two user records, `one` and `two`, both with the partition key `key`.
    const MESSAGE: &[u8] = b"\x0a\x03key\x1a\x07\x08\x00\x1a\x03one\x1a\x07\x08\x00\x1a\x03two";
    const MD5: &[u8] = b"\x70\x37\xde\x34\x1d\x8f\xa5\x4f\xb0\x57\xe9\xd8\xcb\x91\xca\xa6";
    const MD5_OF_NOTHING: &[u8] = b"\xd4\x1d\x8c\xd9\x8f\x00\xb2\x04\xe9\x80\x09\x98\xec\xf8\x42\x7e";

    const MD5_OF_X: &[u8] = b"\x9d\xd4\xe4\x61\x26\x8c\x80\x34\xf5\xc8\x56\x4e\x15\x5c\x67\xa6";

    // R12
    #[test]
    fn an_aggregated_record_is_recognised_by_its_magic_and_its_trailer() {
        assert!(is_aggregated(&[MAGIC, MESSAGE, MD5].concat()));
    }

    // R12, K2, K3
    #[test]
    fn every_other_blob_is_a_plain_record() {
        let one_bit_off = [&MD5[..15], &[MD5[15] ^ 1]].concat();
        let table: [(&str, &[&[u8]]); 11] = [
            ("nothing", &[]),
            ("text", &[b"an order"]),
            ("half the magic", &[&MAGIC[..3]]),
            ("the magic alone", &[MAGIC]),
            ("the magic and garbage", &[MAGIC, b"garbage, and more of it than a trailer"]),
            ("the magic and less than a trailer", &[MAGIC, b"garbage"]),
            ("no message, with the right trailer", &[MAGIC, MD5_OF_NOTHING]),
            ("a message that does not parse, with the right trailer", &[MAGIC, b"x", MD5_OF_X]),
            ("a wrong trailer", &[MAGIC, MESSAGE, &one_bit_off]),
            ("a byte behind the trailer", &[MAGIC, MESSAGE, MD5, b"\0"]),
            ("no magic", &[MESSAGE, MD5]),
        ];
        for (name, parts) in table {
            assert!(!is_aggregated(&parts.concat()), "{name}");
        }
    }
}
