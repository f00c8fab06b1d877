//! Whether bytes are the protobuf message of an aggregated record: a check of its structure, which copies nothing.
//!
//! ```text
//! message AggregatedRecord { repeated string partition_key_table = 1; repeated string explicit_hash_key_table = 2;
//!                            repeated Record records = 3; }
//! message Record { required uint64 partition_key_index = 1; optional uint64 explicit_hash_key_index = 2;
//!                  required bytes data = 3; repeated Tag tags = 4; }
//! message Tag { required string key = 1; optional string value = 2; }
//! ```
//!
//! Like the parser of the KCL, it passes over unknown fields, and over known ones of another type. A message without a
//! required field does not parse.

/// The value of a field.
#[derive(Clone, Copy)]
enum Value<'a> {
    Number,
    Bytes(&'a [u8]),
    Fixed,
}

/// Whether the bytes parse as an aggregated record.
pub(super) fn parses(message: &[u8]) -> bool {
    all_fields(message, |number, value| match (number, value) {
        (3, Value::Bytes(record)) => is_record(record),
        _ => true,
    })
}

fn is_record(record: &[u8]) -> bool {
    let (mut has_index, mut has_data) = (false, false);
    let parses = all_fields(record, |number, value| {
        match (number, value) {
            (1, Value::Number) => has_index = true,
            (3, Value::Bytes(_)) => has_data = true,
            (4, Value::Bytes(tag)) => return is_tag(tag),
            _ => {}
        }
        true
    });
    parses && has_index && has_data
}

fn is_tag(tag: &[u8]) -> bool {
    let mut has_key = false;
    let parses = all_fields(tag, |number, value| {
        has_key |= matches!((number, value), (1, Value::Bytes(_)));
        true
    });
    parses && has_key
}

/// Whether the message consists of whole fields, each of which is as it should be.
fn all_fields<'a>(mut message: &'a [u8], mut is_good: impl FnMut(u64, Value<'a>) -> bool) -> bool {
    while !message.is_empty() {
        match field(&mut message) {
            Some((number, value)) if is_good(number, value) => {}
            _ => return false,
        }
    }
    true
}

/// Takes a field from the front. Groups, which protobuf has given up, do not parse.
fn field<'a>(from: &mut &'a [u8]) -> Option<(u64, Value<'a>)> {
    let tag = varint(from)?;
    let (number, kind) = (tag >> 3, tag & 7);
    if number == 0 || u32::try_from(tag).is_err() {
        return None;
    }
    let value = match kind {
        0 => varint(from).map(|_| Value::Number)?,
        1 => take(from, 8).map(|_| Value::Fixed)?,
        2 => {
            let length = usize::try_from(varint(from)?).ok()?;
            Value::Bytes(take(from, length)?)
        }
        5 => take(from, 4).map(|_| Value::Fixed)?,
        _ => return None,
    };
    Some((number, value))
}

/// Takes a number of up to ten bytes, seven bits in each.
fn varint(from: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for place in 0..10 {
        let (byte, rest) = from.split_first()?;
        *from = rest;
        number |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

fn take<'a>(from: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (front, rest) = from.split_at_checked(length)?;
    *from = rest;
    Some(front)
}

#[cfg(test)]
mod tests {
    use super::*;

    // R12
    #[test]
    fn only_whole_fields_with_the_required_ones_parse() {
        let table: [(&str, &[u8], bool); 16] = [
            ("no user record", b"\x0a\x03key", true),
            ("a user record", b"\x1a\x05\x08\x00\x1a\x01x", true),
            ("an explicit hash key", b"\x1a\x07\x08\x00\x10\x00\x1a\x01x", true),
            ("a tag", b"\x1a\x0a\x08\x00\x1a\x01x\x22\x03\x0a\x01k", true),
            ("an unknown field", b"\x78\x01", true),
            ("unknown fixed numbers", b"\x79\x01\x02\x03\x04\x05\x06\x07\x08\x7d\x01\x02\x03\x04", true),
            ("a known field of another type", b"\x08\x01", true),
            ("a field without a value", b"\x78", false),
            ("half a number", b"\x78\x80", false),
            ("a number of eleven bytes", b"\x78\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", false),
            ("a length past the end", b"\x0a\x04key", false),
            ("field number 0", b"\x02\x00", false),
            ("a group", b"\x0b\x0c", false),
            ("a user record without data", b"\x1a\x02\x08\x00", false),
            ("a user record without a key", b"\x1a\x03\x1a\x01x", false),
            ("a tag without a key", b"\x1a\x0a\x08\x00\x1a\x01x\x22\x03\x12\x01v", false),
        ];
        for (name, message, expected) in table {
            assert_eq!(parses(message), expected, "{name}");
        }
    }
}
