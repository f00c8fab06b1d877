//! The pages of `GetRecords`: a template, made once, into which each page writes its sequence numbers.

use std::ops::Range;

use aws_smithy_types::base64;

/// The number of digits of a sequence number, the same as in the service.
const DIGITS: usize = 56;

/// The records of a page, with room for their sequence numbers.
#[derive(Debug)]
pub(super) struct Template {
    text: Vec<u8>,
    /// Where to write the sequence numbers.
    numbers: Vec<Range<usize>>,
}

impl Template {
    /// `records` records with this data. They take turns with the first `keys` partition keys.
    pub(super) fn new(records: usize, data: &[u8], keys: usize) -> Self {
        let data = base64::encode(data);
        let mut text = Vec::new();
        let mut numbers = Vec::new();
        for i in 0..records {
            let key = i % keys;
            let before = format!(
                r#"{}{{"ApproximateArrivalTimestamp":1517363399.65,"PartitionKey":"key-{key:06}","Data":"{data}","SequenceNumber":""#,
                if i == 0 { "" } else { "," },
            );
            text.extend_from_slice(before.as_bytes());
            numbers.push(text.len()..text.len() + DIGITS);
            text.resize(text.len() + DIGITS, b'0');
            text.extend_from_slice(br#""}"#);
        }
        Self { text, numbers }
    }

    /// The response with this page of this shard.
    pub(super) fn fill(&self, shard: usize, page: usize, next: Option<String>) -> Vec<u8> {
        let next = next.map_or(r#""ChildShards":[]"#.to_owned(), |next| format!(r#""NextShardIterator":"{next}""#));
        let head = format!(r#"{{"MillisBehindLatest":0,{next},"Records":["#).into_bytes();
        let mut answer = Vec::with_capacity(head.len() + self.text.len() + 2);
        let start = head.len();
        answer.extend_from_slice(&head);
        answer.extend_from_slice(&self.text);
        for (i, place) in self.numbers.iter().enumerate() {
            write_number(&mut answer[start + place.start..start + place.end], shard, page * self.numbers.len() + i);
        }
        answer.extend_from_slice(b"]}");
        answer
    }
}

/// The sequence number of the record at this position of a shard, counted from 0.
pub(super) fn sequence_number(shard: usize, position: usize) -> String {
    format!("49{shard:014}{position:040}")
}

/// Writes that number over as many zeros. Formatting it would cost more than the rest of a response.
fn write_number(zeros: &mut [u8], shard: usize, position: usize) {
    zeros[..2].copy_from_slice(b"49");
    write_digits(&mut zeros[2..16], shard);
    write_digits(&mut zeros[16..], position);
}

fn write_digits(zeros: &mut [u8], mut number: usize) {
    for digit in zeros.iter_mut().rev() {
        if number == 0 {
            return;
        }
        *digit += u8::try_from(number % 10).unwrap_or_default();
        number /= 10;
    }
}

/// The position that a sequence number encodes.
pub(super) fn position(sequence_number: &str) -> Option<usize> {
    sequence_number.get(16..)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sequence_number_has_the_services_length_and_encodes_its_position() {
        let number = sequence_number(3, 1_000_001);
        assert_eq!(number.len(), DIGITS);
        assert_eq!(position(&number), Some(1_000_001));
    }

    #[test]
    fn write_number_writes_the_same_digits_as_formatting() {
        for (shard, position) in [(0, 0), (7, 1), (1_000, 1_234_567_890), (99, usize::MAX)] {
            let mut text = [b'0'; DIGITS];
            write_number(&mut text, shard, position);
            assert_eq!(text, sequence_number(shard, position).as_bytes());
        }
    }
}
