//! Dead letters as the original record with headers in front of its own: a pure codec.
//!
//! **Headers are added; none is replaced or left out.** The added ones come first, so a lookup by name finds them even
//! if the producer used the same names. A record that dies twice shows both origins, the newest one first. The reason
//! is the last of them, so the headers after it are those of the record.

use std::{iter::Peekable, str};

use bytes::Bytes;

use crate::{
    dead_letters::dead_letter::{DeadLetter, no_dead_letter},
    error::KinesisError,
    types::record::{Headers, Record},
    wire::envelope,
};

/// The prefix of the names of the added headers.
const PREFIX: &str = "kinesis-dead-letter-";

/// The data of a dead letter in an envelope.
pub(super) fn encode(letter: &DeadLetter) -> Result<Bytes, KinesisError> {
    let own = letter.record.headers.iter().map(|(name, value)| (name.to_owned(), value.clone()));
    let headers: Vec<(String, Bytes)> = added(letter).chain(own).collect();
    envelope::encode(&headers, letter.record.payload.clone())
}

/// The partition key of the dead letter of a record. One without a key gets its sequence number as its key: such keys
/// spread evenly over the shards, and a repeated write goes to the same shard.
pub(super) fn partition_key(record: &Record) -> &str {
    record.partition_key().unwrap_or(record.sequence_number.as_str())
}

fn added(letter: &DeadLetter) -> impl Iterator<Item = (String, Bytes)> {
    let record = &letter.record;
    let headers = [
        ("stream", Some(record.stream.to_string())),
        ("shard", Some(record.shard.to_string())),
        ("sequence-number", Some(record.sequence_number.to_string())),
        ("arrived-at", record.arrived_at.map(|millis| millis.to_string())),
        ("consumer", Some(letter.consumer.to_string())),
        ("attempts", Some(letter.attempts.to_string())),
        ("rejected", letter.rejected.then(|| "true".to_owned())),
        ("reason", Some(letter.reason.to_string())),
    ];
    headers.into_iter().filter_map(|(name, value)| Some((format!("{PREFIX}{name}"), Bytes::from(value?))))
}

/// Whether a record with these headers is a dead letter in this format.
pub(super) fn is_one(headers: &Headers) -> bool {
    headers.iter().next().and_then(|(name, _)| name.strip_prefix(PREFIX)) == Some("stream")
}

/// Reads a dead letter from the headers, the payload and the partition key of its record.
pub(super) fn parse(headers: &Headers, payload: Bytes, key: Option<&str>) -> Result<DeadLetter, KinesisError> {
    let mut added = Added(headers.iter().peekable());
    let mut record = Record {
        stream: added.text("stream")?.into(),
        shard: added.text("shard")?.into(),
        sequence_number: added.text("sequence-number")?.into(),
        arrived_at: added.optional("arrived-at")?.map(|text| number("arrived-at", text)).transpose()?,
        payload,
        headers: Headers::default(),
        partition_key: None,
    };
    let consumer = added.text("consumer")?.into();
    let attempts = number("attempts", added.text("attempts")?)?;
    let rejected = added.optional("rejected")?.is_some();
    let reason = added.text("reason")?.into();
    record.headers = Headers::new(added.0.map(|(name, value)| (name.to_owned(), value.clone())).collect());
    record.partition_key = key.filter(|key| *key != record.sequence_number.as_str()).map(Into::into);
    Ok(DeadLetter { record, consumer, attempts, rejected, reason })
}

fn number<T: str::FromStr>(name: &str, text: &str) -> Result<T, KinesisError> {
    text.parse().map_err(|_| no_dead_letter(format!("its header {PREFIX}{name} is no number")))
}

/// The headers that are not read yet.
struct Added<I: Iterator>(Peekable<I>);

impl<'a, I: Iterator<Item = (&'a str, &'a Bytes)>> Added<I> {
    fn optional(&mut self, name: &str) -> Result<Option<&'a str>, KinesisError> {
        let found = self.0.next_if(|(header, _)| header.strip_prefix(PREFIX) == Some(name));
        let text = found.map(|(_, value)| str::from_utf8(value)).transpose();
        text.map_err(|_| no_dead_letter(format!("its header {PREFIX}{name} is no text")))
    }

    fn text(&mut self, name: &str) -> Result<&'a str, KinesisError> {
        self.optional(name)?.ok_or_else(|| no_dead_letter(format!("its header {PREFIX}{name} is missing")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dead_letters::tests::{letter, with};

    fn parsed(letter: &DeadLetter) -> DeadLetter {
        let (headers, payload) = envelope::decode(encode(letter).unwrap());
        parse(&headers, payload, Some(partition_key(&letter.record))).unwrap()
    }

    // A7, S5
    #[test]
    fn the_added_headers_come_before_those_of_the_record() {
        let letter = with(&[("kinesis-dead-letter-reason", b"an older one"), ("trace", b"\xff")], b"payload");
        let (headers, payload) = envelope::decode(encode(&letter).unwrap());
        let texts: Vec<_> = headers.iter().map(|(name, value)| (name, String::from_utf8_lossy(value))).collect();
        assert_eq!(
            texts,
            [
                ("kinesis-dead-letter-stream", "quakes".into()),
                ("kinesis-dead-letter-shard", "shardId-000000000000".into()),
                ("kinesis-dead-letter-sequence-number", "4959".into()),
                ("kinesis-dead-letter-arrived-at", "1796109083045".into()),
                ("kinesis-dead-letter-consumer", "billing".into()),
                ("kinesis-dead-letter-attempts", "5".into()),
                ("kinesis-dead-letter-rejected", "true".into()),
                ("kinesis-dead-letter-reason", "no \"customer\"".into()),
                ("kinesis-dead-letter-reason", "an older one".into()),
                ("trace", "\u{fffd}".into()),
            ]
        );
        assert_eq!((payload.as_ref(), parsed(&letter)), (&b"payload"[..], letter));
    }

    // A7
    #[test]
    fn what_is_not_known_is_left_out_and_a_record_without_a_key_comes_back_without_one() {
        let mut unknown = letter();
        (unknown.record.partition_key, unknown.record.arrived_at, unknown.rejected) = (None, None, false);
        assert_eq!(partition_key(&unknown.record), "4959");
        assert_eq!(parsed(&unknown), unknown);
    }

    // A7
    #[test]
    fn a_header_that_is_missing_or_no_text_or_number_is_named() {
        let refusal = |index: usize, value: Option<&'static [u8]>| {
            let mut headers: Vec<_> = added(&letter()).collect();
            match value {
                Some(value) => headers[index].1 = Bytes::from_static(value),
                None => drop(headers.remove(index)),
            }
            parse(&Headers::new(headers), Bytes::new(), None).unwrap_err().to_string()
        };
        let prefix = "invalid dead letter: its header kinesis-dead-letter-";
        assert_eq!(refusal(1, None), format!("{prefix}shard is missing"));
        assert_eq!(refusal(7, None), format!("{prefix}reason is missing"));
        assert_eq!(refusal(4, Some(b"\xff")), format!("{prefix}consumer is no text"));
        assert_eq!(refusal(5, Some(b"many")), format!("{prefix}attempts is no number"));
        assert_eq!(refusal(3, Some(b"today")), format!("{prefix}arrived-at is no number"));
    }
}
