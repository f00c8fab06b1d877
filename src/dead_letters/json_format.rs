//! Dead letters as one JSON object: a pure codec.
//!
//! **Any bytes come back exactly.** A payload or the value of a header is text if it is UTF-8. Otherwise it is Base64,
//! and the name of its field says so. Headers are an array, because their order counts and names may repeat.
//!
//! The object is written in this order of fields, since people read it. `serde_json` escapes the texts.

use std::{
    io::{self, Write},
    str,
};

use aws_sdk_kinesis::primitives::{DateTime, DateTimeFormat};
use aws_smithy_types::base64;
use bytes::Bytes;
use serde_json::{Map, Value};

use crate::{
    dead_letters::dead_letter::{DeadLetter, no_dead_letter},
    error::KinesisError,
    types::record::{Headers, Record},
};

/// Names the format and its version. A field that is added later does not change the version.
const FORMAT: &str = "kinesis-dead-letter/1";

/// The JSON of a dead letter, with a line feed at its end. None if it has more bytes than `most`.
pub(super) fn encode(letter: &DeadLetter, most: usize) -> Option<Bytes> {
    let mut json = Limited { text: Vec::new(), most };
    write_letter(&mut json, letter).ok()?;
    Some(json.text.into())
}

fn write_letter(json: &mut Limited, letter: &DeadLetter) -> io::Result<()> {
    let record = &letter.record;
    json.write_all(b"{\"format\":")?;
    write_text(json, FORMAT)?;
    write_field(json, "stream", &record.stream)?;
    write_field(json, "shard", record.shard.as_str())?;
    write_field(json, "sequence_number", record.sequence_number.as_str())?;
    if let Some(key) = record.partition_key() {
        write_field(json, "partition_key", key)?;
    }
    // Years after 9999 cannot be written.
    let arrived_at =
        record.arrived_at.and_then(|millis| DateTime::from_millis(millis).fmt(DateTimeFormat::DateTime).ok());
    if let Some(arrived_at) = arrived_at {
        write_field(json, "arrived_at", &arrived_at)?;
    }
    write_field(json, "consumer", &letter.consumer)?;
    write!(json, ",\"attempts\":{},\"rejected\":{}", letter.attempts, letter.rejected)?;
    write_field(json, "reason", &letter.reason)?;
    json.write_all(b",\"headers\":[")?;
    for (index, (name, value)) in record.headers.iter().enumerate() {
        json.write_all(if index == 0 { b"{\"name\":" } else { b",{\"name\":" })?;
        write_text(json, name)?;
        write_bytes(json, "value", value)?;
        json.write_all(b"}")?;
    }
    json.write_all(b"]")?;
    write_bytes(json, "payload", &record.payload)?;
    json.write_all(b"}\n")
}

fn write_bytes(json: &mut Limited, name: &str, bytes: &[u8]) -> io::Result<()> {
    if let Ok(text) = str::from_utf8(bytes) {
        return write_field(json, name, text);
    }
    if base64::encoded_length(bytes.len()) > json.most {
        return Err(io::ErrorKind::FileTooLarge.into());
    }
    write_field(json, &format!("{name}_base64"), &base64::encode(bytes))
}

fn write_field(json: &mut Limited, name: &str, text: &str) -> io::Result<()> {
    write!(json, ",\"{name}\":")?;
    write_text(json, text)
}

fn write_text(json: &mut Limited, text: &str) -> io::Result<()> {
    Ok(serde_json::to_writer(json, text)?)
}

/// Text up to a limit, so that control characters, which take six bytes each, do not make it grow without a bound.
struct Limited {
    text: Vec<u8>,
    most: usize,
}

impl Write for Limited {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.text.len() + more.len() > self.most {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.text.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads the JSON of a dead letter.
pub(super) fn parse(json: &[u8]) -> Result<DeadLetter, KinesisError> {
    let Ok(Value::Object(object)) = serde_json::from_slice(json) else {
        return Err(no_dead_letter("neither a JSON object nor a record with the headers of a dead letter"));
    };
    let mut fields = Fields(object);
    match fields.optional_text("format")?.as_deref() {
        Some(FORMAT) => {}
        Some(other) => return Err(no_dead_letter(format!("its format is not {FORMAT}; given: {other}"))),
        None => return Err(no_dead_letter(format!("a JSON object without the format {FORMAT}"))),
    }
    let record = Record {
        stream: fields.text("stream")?.into(),
        shard: fields.text("shard")?.into(),
        sequence_number: fields.text("sequence_number")?.into(),
        partition_key: fields.optional_text("partition_key")?.map(Into::into),
        arrived_at: fields.optional_text("arrived_at")?.map(|text| millis(&text)).transpose()?,
        headers: fields.headers()?,
        payload: fields.bytes("payload")?,
    };
    Ok(DeadLetter {
        record,
        consumer: fields.text("consumer")?.into(),
        attempts: fields.attempts()?,
        rejected: fields.rejected()?,
        reason: fields.text("reason")?.into(),
    })
}

/// The milliseconds since 1970 (UTC) of a time as RFC 3339 has it.
fn millis(text: &str) -> Result<i64, KinesisError> {
    let time = DateTime::from_str(text, DateTimeFormat::DateTimeWithOffset).ok();
    time.and_then(|time| time.to_millis().ok()).ok_or_else(|| no_dead_letter("arrived_at is no time by RFC 3339"))
}

/// The fields of an object that are not read yet.
struct Fields(Map<String, Value>);

impl Fields {
    fn optional_text(&mut self, name: &str) -> Result<Option<String>, KinesisError> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(no_dead_letter(format!("its field {name} is no text"))),
        }
    }

    fn text(&mut self, name: &str) -> Result<String, KinesisError> {
        self.optional_text(name)?.ok_or_else(|| no_dead_letter(format!("its field {name} is missing")))
    }

    /// Bytes as text or as Base64.
    fn bytes(&mut self, name: &str) -> Result<Bytes, KinesisError> {
        let encoded_name = format!("{name}_base64");
        match (self.optional_text(name)?, self.optional_text(&encoded_name)?) {
            (Some(text), None) => Ok(text.into()),
            (None, Some(encoded)) => match base64::decode(encoded) {
                Ok(bytes) => Ok(bytes.into()),
                Err(_) => Err(no_dead_letter(format!("its field {encoded_name} is no Base64"))),
            },
            _ => Err(no_dead_letter(format!("it has not exactly one of the fields {name} and {encoded_name}"))),
        }
    }

    fn headers(&mut self) -> Result<Headers, KinesisError> {
        let list = match self.0.remove("headers") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) => list,
            Some(_) => return Err(no_dead_letter("its field headers is no array")),
        };
        let header = |header| match header {
            Value::Object(object) => {
                let mut fields = Self(object);
                Ok((fields.text("name")?, fields.bytes("value")?))
            }
            _ => Err(no_dead_letter("one of its headers is no object")),
        };
        list.into_iter().map(header).collect::<Result<_, _>>().map(Headers::new)
    }

    fn attempts(&mut self) -> Result<u32, KinesisError> {
        let attempts = self.0.remove("attempts").as_ref().and_then(Value::as_u64);
        let attempts = attempts.and_then(|attempts| u32::try_from(attempts).ok());
        attempts.ok_or_else(|| no_dead_letter("its field attempts is missing or no number"))
    }

    fn rejected(&mut self) -> Result<bool, KinesisError> {
        let rejected = self.0.remove("rejected").as_ref().and_then(Value::as_bool);
        rejected.ok_or_else(|| no_dead_letter("its field rejected is missing or neither true nor false"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dead_letters::tests::{letter, with};

    const MOST: usize = 1 << 20;

    fn json(letter: &DeadLetter) -> String {
        String::from_utf8(encode(letter, MOST).unwrap().to_vec()).unwrap()
    }

    // A7
    #[test]
    fn a_dead_letter_is_one_line_of_json_in_a_fixed_order() {
        let text = with(&[("trace", b"t1")], b"{\"mag\": 2}");
        assert_eq!(
            json(&text),
            concat!(
                r#"{"format":"kinesis-dead-letter/1","stream":"quakes","shard":"shardId-000000000000","#,
                r#""sequence_number":"4959","partition_key":"ak","arrived_at":"2026-12-01T07:11:23.045Z","#,
                r#""consumer":"billing","attempts":5,"rejected":true,"reason":"no \"customer\"","#,
                r#""headers":[{"name":"trace","value":"t1"}],"payload":"{\"mag\": 2}"}"#,
                "\n"
            )
        );
    }

    // A7
    #[test]
    fn bytes_that_are_no_text_are_base64_in_a_field_that_says_so() {
        let json = json(&with(&[("a", b"\0\xff"), ("a", b"")], b"\xfe"));
        let tail = r#""headers":[{"name":"a","value_base64":"AP8="},{"name":"a","value":""}],"payload_base64":"/g=="}"#;
        assert!(json.ends_with(&format!("{tail}\n")), "{json}");
    }

    // A7
    #[test]
    fn what_is_not_known_is_left_out() {
        let mut unknown = letter();
        (unknown.record.partition_key, unknown.record.arrived_at) = (None, None);
        let json = json(&unknown);
        assert!(!json.contains("partition_key") && !json.contains("arrived_at"), "{json}");
        assert_eq!(parse(json.as_bytes()).unwrap(), unknown);
        unknown.record.arrived_at = Some(i64::MAX);
        assert_eq!(parse(&encode(&unknown, MOST).unwrap()).unwrap().record.arrived_at, None);
    }

    // A7
    #[test]
    fn a_dead_letter_over_the_limit_is_refused_before_it_takes_more_memory() {
        for payload in [b"text".repeat(100), b"\xff".repeat(300), b"\x01".repeat(70)] {
            let letter = with(&[], &payload);
            let size = encode(&letter, MOST).unwrap().len();
            assert_eq!(encode(&letter, size).map(|json| json.len()), Some(size));
            assert_eq!(encode(&letter, size - 1), None);
            assert_eq!(encode(&letter, 10), None);
        }
    }

    // A7
    #[test]
    fn fields_may_be_reordered_spaced_and_added() {
        let spaced = r#"
            { "payload": "p", "reason": "r", "rejected": false, "attempts": 1, "consumer": "c", "added": [1],
              "arrived_at": "2026-12-01T08:11:23.045+01:00", "sequence_number": "1", "shard": "a", "stream": "s",
              "partition_key": null, "format": "kinesis-dead-letter/1" }"#;
        let letter = parse(spaced.as_bytes()).unwrap();
        assert_eq!((letter.record.payload.as_ref(), letter.record.headers.len()), (&b"p"[..], 0));
        assert_eq!((letter.record.partition_key, letter.record.arrived_at), (None, Some(1_796_109_083_045)));
    }

    // A7
    #[test]
    fn anything_else_is_refused_with_the_field_that_is_wrong() {
        let whole = json(&with(&[("a", b"b")], b"p"));
        let table = [
            ("plain".to_owned(), "neither a JSON object nor a record with the headers of a dead letter"),
            ("[1]".to_owned(), "neither a JSON object"),
            (r#"{"a":1}"#.to_owned(), "a JSON object without the format kinesis-dead-letter/1"),
            (whole.replace("letter/1", "letter/2"), "given: kinesis-dead-letter/2"),
            (whole.replace("\"shard\"", "\"shart\""), "its field shard is missing"),
            (whole.replace("\"4959\"", "4959"), "its field sequence_number is no text"),
            (whole.replace("07:11", "07-11"), "arrived_at is no time by RFC 3339"),
            (whole.replace("\"attempts\":5", "\"attempts\":-5"), "its field attempts is missing or no number"),
            (whole.replace("\"rejected\":true", "\"rejected\":1"), "its field rejected is missing or neither"),
            (whole.replace("\"payload\":", "\"payload_base64\":"), "its field payload_base64 is no Base64"),
            (whole.replace("\"payload\":", "\"body\":"), "exactly one of the fields payload and payload_base64"),
            (whole.replace("\"name\":", "\"key\":"), "its field name is missing"),
            (whole.replace("\"headers\":[", "\"headers\":[1,"), "one of its headers is no object"),
            (whole.replace("\"headers\":[", "\"headers\":{},\"x\":["), "its field headers is no array"),
        ];
        for (json, problem) in table {
            let refusal = parse(json.as_bytes()).unwrap_err().to_string();
            assert!(refusal.starts_with("invalid dead letter: ") && refusal.contains(problem), "{json}: {refusal}");
        }
    }
}
