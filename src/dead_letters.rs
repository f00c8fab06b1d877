//! The task that writes spent records, those that have used up their attempts, to the dead-letter stream. It runs only
//! if a subscription sets such a stream. `subscription/` starts it; records reach it through `state/dead_letter_queue`.
//!
//! Read in this order:
//!
//! - `writer`: the task,
//! - `circuit`: the circuit breaker, which limits the writes after failures,
//! - `dead_letter`: `DeadLetter`, what is written and read,
//! - `json_format` and `header_format`: its two formats,
//! - `parse`: the data of either format as a dead letter,
//! - `record`: the record that holds it, in one of them.
//!
//! **Why a task writes dead letters.** A record may be given back on any thread, without a runtime, and writing its
//! dead letter must not depend on the stream being polled. The record goes through the dead-letter queue and is settled
//! after its write. So a checkpoint passes a spent record only after its dead letter is stored.
//!
//! **A record that is being written counts as in flight,** so closing and hand-over wait for it. A record in the queue
//! does not count: if the lease goes first, the record is dropped unsettled, and the next reader redelivers it.

mod circuit;
pub(crate) mod dead_letter;
mod header_format;
mod json_format;
mod parse;
mod record;
mod writer;

pub(crate) use crate::dead_letters::writer::start;

/// Reads data as a dead letter, writes it again in each format, and compares.
#[cfg(fuzzing)]
pub(crate) fn fuzz(data: &[u8]) {
    use crate::config::redelivery::DeadLetterFormat;

    let Ok(letter) = dead_letter::DeadLetter::parse("k", bytes::Bytes::copy_from_slice(data)) else { return };
    for format in [DeadLetterFormat::Json, DeadLetterFormat::Envelope] {
        // Not every text is a possible key, and not every header fits into an envelope.
        let Ok(record) = record::record(&letter, format) else { continue };
        let again = dead_letter::DeadLetter::parse(&record.partition_key, record.data).expect("it was written here");
        assert_eq!(again.original(), letter.original());
        assert_eq!(
            (again.reason(), again.attempts(), again.is_rejected()),
            (letter.reason(), letter.attempts(), letter.is_rejected())
        );
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::dead_letter::DeadLetter;
    use crate::types::record::{Headers, Record};

    /// A dead letter for tests.
    pub(super) fn letter() -> DeadLetter {
        let record = Record {
            payload: Bytes::new(),
            headers: Headers::default(),
            partition_key: Some("ak".into()),
            stream: "quakes".into(),
            shard: "shardId-000000000000".into(),
            sequence_number: "4959".into(),
            arrived_at: Some(1_796_109_083_045),
        };
        DeadLetter { record, consumer: "billing".into(), attempts: 5, rejected: true, reason: "no \"customer\"".into() }
    }

    /// The same with these headers and this payload.
    pub(super) fn with(headers: &[(&str, &[u8])], payload: &[u8]) -> DeadLetter {
        let mut letter = letter();
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), Bytes::copy_from_slice(value)));
        letter.record.headers = Headers::new(headers.collect());
        letter.record.payload = Bytes::copy_from_slice(payload);
        letter
    }
}
