//! The limits of Kinesis on names, records and reads (S2), checked before a request is sent.
//!
//! Sources: the [CreateStream], [PutRecord], [PutRecords] and [GetRecords] references, and the [developer guide] on
//! large records.
//!
//! [CreateStream]: https://docs.aws.amazon.com/kinesis/latest/APIReference/API_CreateStream.html
//! [GetRecords]: https://docs.aws.amazon.com/kinesis/latest/APIReference/API_GetRecords.html
//! [PutRecord]: https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecord.html
//! [PutRecords]: https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecords.html
//! [developer guide]: https://docs.aws.amazon.com/streams/latest/dev/large-records.html

use std::fmt::Debug;

use crate::error::KinesisError;

/// The longest name of a stream, in characters.
const STREAM_NAME: usize = 128;

/// The longest partition key, in Unicode characters, not in bytes.
const PARTITION_KEY: usize = 256;

/// The largest record, data and partition key together, in bytes. A stream accepts 1 MiB unless its own limit was
/// raised, up to this. Only the service knows that limit, so a record between the two is refused by the service.
const RECORD: usize = 10 << 20;

/// The most records in one PutRecords, and the most bytes of their data and partition keys together.
pub(crate) const REQUEST_RECORDS: usize = 500;
pub(crate) const REQUEST_BYTES: usize = 10 << 20;

/// The most records that one GetRecords returns.
pub(crate) const RECORDS_OF_A_READ: u32 = 10_000;

/// Refuses a value outside its limits.
pub(crate) fn within<T>(what: &'static str, given: T, least: T, most: T) -> Result<(), KinesisError>
where
    T: PartialOrd + Copy + Debug,
{
    if given >= least && given <= most {
        return Ok(());
    }
    Err(KinesisError::invalid(what, format!("{least:?} to {most:?}; given: {given:?}")))
}

/// Whether a stream can have this name.
pub(crate) fn check_stream_name(name: &str) -> Result<(), KinesisError> {
    let invalid = |given: String| {
        let limit = format!("1 to {STREAM_NAME} characters out of letters, digits, '_', '.' and '-'; given: {given}");
        KinesisError::invalid("stream name", limit)
    };
    if let Some(invalid_char) = name.chars().find(|c| !(c.is_ascii_alphanumeric() || "_.-".contains(*c))) {
        return Err(invalid(format!("{invalid_char:?} among them")));
    }
    match name.len() {
        1..=STREAM_NAME => Ok(()),
        length => Err(invalid(format!("{length}"))),
    }
}

/// Whether a record can have this partition key.
pub(crate) fn check_partition_key(key: &str) -> Result<(), KinesisError> {
    match key.chars().count() {
        1..=PARTITION_KEY => Ok(()),
        length => {
            Err(KinesisError::invalid("partition key", format!("1 to {PARTITION_KEY} characters; given: {length}")))
        }
    }
}

/// The most data that a record with this key can have.
pub(crate) fn most_data(key: &str) -> usize {
    RECORD.saturating_sub(key.len())
}

/// Whether a record can have this key and this much data, the envelope of its headers included.
pub(crate) fn check_record(key: &str, data: usize) -> Result<(), KinesisError> {
    check_partition_key(key)?;
    match data.saturating_add(key.len()) {
        ..=RECORD => Ok(()),
        size => {
            let problem = format!("at most {RECORD} bytes of data, headers and partition key together; given: {size}");
            Err(KinesisError::invalid("record size", problem))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(result: Result<(), KinesisError>) -> String {
        result.unwrap_err().to_string()
    }

    // S2
    #[test]
    fn a_stream_name_is_1_to_128_letters_digits_underscores_dots_and_hyphens() {
        for name in ["a", "orders.v2_EU-west", &"x".repeat(128)] {
            check_stream_name(name).unwrap();
        }
        for name in ["", "a b", "a/b", "größe", "a\n", &"x".repeat(129)] {
            assert!(check_stream_name(name).is_err(), "{name:?}");
        }
    }

    // S2
    #[test]
    fn a_partition_key_is_counted_in_characters_not_in_bytes() {
        for key in ["k", &"k".repeat(256), &"ß".repeat(256), &"🦀".repeat(256)] {
            check_partition_key(key).unwrap();
        }
        for key in ["", &"k".repeat(257), &"🦀".repeat(257)] {
            assert!(check_partition_key(key).is_err(), "{key:?}");
        }
    }

    // S2
    #[test]
    fn a_record_is_at_most_10_mib_of_data_and_key_in_bytes() {
        check_record("ß", (10 << 20) - 2).unwrap();
        assert!(check_record("ß", (10 << 20) - 1).is_err());
        assert!(check_record("k", usize::MAX).is_err());
    }

    // S2
    #[test]
    fn a_refusal_names_the_limit_and_the_given_value() {
        assert_eq!(
            problem(check_stream_name(&"x".repeat(129))),
            "invalid stream name: 1 to 128 characters out of letters, digits, '_', '.' and '-'; given: 129"
        );
        assert_eq!(
            problem(check_stream_name("a/b")),
            "invalid stream name: 1 to 128 characters out of letters, digits, '_', '.' and '-'; given: '/' among them"
        );
        assert_eq!(problem(check_partition_key("")), "invalid partition key: 1 to 256 characters; given: 0");
        assert_eq!(
            problem(check_record("key", 10 << 20)),
            "invalid record size: at most 10485760 bytes of data, headers and partition key together; given: 10485763"
        );
    }
}
