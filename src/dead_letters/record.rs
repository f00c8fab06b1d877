//! The record that holds a dead letter: a pure encoding.
//!
//! **JSON that does not fit falls back to the envelope,** which adds a few hundred bytes only. JSON makes a record grow
//! by a third if it is no text, and by its escapes otherwise. If not even the envelope fits, the stream yields an error
//! that carries the record: leaving headers out would produce dead letters that nobody can trace.

use bytes::Bytes;

use crate::{
    config::{limits, redelivery::DeadLetterFormat},
    dead_letters::{dead_letter::DeadLetter, header_format, json_format},
    error::KinesisError,
};

/// A record for the dead-letter stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DeadLetterRecord {
    pub(super) partition_key: String,
    pub(super) data: Bytes,
}

/// The record for a dead letter, in this format if it fits.
pub(super) fn record(letter: &DeadLetter, format: DeadLetterFormat) -> Result<DeadLetterRecord, KinesisError> {
    let partition_key = header_format::partition_key(&letter.record);
    let json = match format {
        DeadLetterFormat::Json => json_format::encode(letter, limits::most_data(partition_key)),
        DeadLetterFormat::Envelope => None,
    };
    let data = json.map_or_else(|| header_format::encode(letter), Ok)?;
    limits::check_record(partition_key, data.len())?;
    Ok(DeadLetterRecord { partition_key: partition_key.to_owned(), data })
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, option, prelude::*};

    use super::*;
    use crate::{
        dead_letters::tests::with,
        types::record::{Headers, Record},
    };

    fn read(letter: &DeadLetter, format: DeadLetterFormat) -> (usize, DeadLetter) {
        let DeadLetterRecord { partition_key, data } = record(letter, format).unwrap();
        (data.len(), DeadLetter::parse(&partition_key, data).unwrap())
    }

    // A7, S2
    #[test]
    fn json_that_does_not_fit_falls_back_to_the_envelope_and_reads_the_same() {
        let table = [(vec![b'.'; 8 << 20], true), (vec![0xff; 8 << 20], false), (vec![1; 2 << 20], false)];
        for (payload, is_json) in table {
            let whole = with(&[("trace", b"t1")], &payload);
            let (json, letter) = read(&whole, DeadLetterFormat::Json);
            let (envelope, same) = read(&whole, DeadLetterFormat::Envelope);
            assert_eq!((json != envelope, letter == whole, same == whole), (is_json, true, true));
        }
        let most = (10 << 20) - 2;
        let refusal = record(&with(&[], &vec![b'.'; most]), DeadLetterFormat::Json).unwrap_err().to_string();
        assert!(refusal.starts_with("invalid record size: at most 10485760 bytes"), "{refusal}");
    }

    fn bytes() -> impl Strategy<Value = Bytes> {
        let text = ".{0,20}".prop_map(Bytes::from);
        let json = r#"[\{\}"\\a:1,]{0,20}"#.prop_map(Bytes::from);
        let envelope = vec(any::<u8>(), 0..20).prop_map(|tail| Bytes::from([b"RSK2\0\0\0\0", &tail[..]].concat()));
        prop_oneof![text, json, envelope, vec(any::<u8>(), 0..40).prop_map(Bytes::from)]
    }

    fn letters() -> impl Strategy<Value = DeadLetter> {
        let names = prop_oneof![Just("kinesis-dead-letter-reason".to_owned()), Just("a".to_owned()), ".{0,8}"];
        let place = (".{1,8}", ".{1,8}", "[0-9]{1,56}", option::of("[^0-9].{0,8}"));
        let why = (".{0,8}", any::<u32>(), any::<bool>(), ".{0,20}");
        let arrived_at = option::of(-62_135_596_800_000..253_402_300_800_000_i64);
        (place, why, arrived_at, vec((names, bytes()), 0..5), bytes()).prop_map(
            |(place, why, arrived_at, headers, payload)| {
                let record = Record {
                    payload,
                    headers: Headers::new(headers),
                    partition_key: place.3.map(Into::into),
                    stream: place.0.into(),
                    shard: place.1.into(),
                    sequence_number: place.2.into(),
                    arrived_at,
                };
                DeadLetter { record, consumer: why.0.into(), attempts: why.1, rejected: why.2, reason: why.3.into() }
            },
        )
    }

    proptest! {
        // A7, S5
        #[test]
        fn any_record_comes_back_exactly_from_each_format(letter in letters()) {
            for format in [DeadLetterFormat::Json, DeadLetterFormat::Envelope] {
                prop_assert_eq!(&read(&letter, format).1, &letter);
            }
        }

        // A7
        #[test]
        fn no_data_panics(data in bytes()) {
            let _ = DeadLetter::parse("k", data);
        }
    }
}
