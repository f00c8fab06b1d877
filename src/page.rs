//! One answer of GetRecords, made ready to be handed out record by record.

use std::vec;

use bytes::Bytes;

use crate::{aggregate, budget::Grant, envelope, id::SequenceNumber, record::Headers, service::RawRecord};

/// A record of a page, taken out of its wire forms.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) sequence_number: SequenceNumber,
    pub(crate) partition_key: Option<Box<str>>,
    pub(crate) arrived_at: Option<i64>,
    pub(crate) content: Content,
}

/// What a record holds.
#[derive(Debug)]
pub(crate) enum Content {
    /// One user record.
    Plain { payload: Bytes, headers: Headers },
    /// Several, aggregated by the Kinesis Producer Library (R12).
    Aggregated(Bytes),
}

impl From<RawRecord> for Entry {
    fn from(raw: RawRecord) -> Self {
        let content = if aggregate::is_aggregated(&raw.data) {
            Content::Aggregated(raw.data)
        } else {
            let (headers, payload) = envelope::decode(raw.data);
            Content::Plain { payload, headers }
        };
        Self {
            sequence_number: raw.sequence_number,
            partition_key: raw.partition_key.map(String::into_boxed_str),
            arrived_at: raw.arrived_at,
            content,
        }
    }
}

/// The records of one read that were not handed out yet. Its bytes count against the subscription's budget until it
/// is dropped.
#[derive(Debug)]
pub(crate) struct Page {
    generation: u64,
    entries: vec::IntoIter<Entry>,
    grant: Grant,
}

impl Page {
    pub(crate) fn new(generation: u64, records: Vec<RawRecord>, grant: Grant) -> Self {
        let entries: Vec<Entry> = records.into_iter().map(Entry::from).collect();
        Self { generation, entries: entries.into_iter(), grant }
    }

    /// The opening of the shard under which it was read.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The sequence number of the next record.
    pub(crate) fn peek(&self) -> Option<&SequenceNumber> {
        self.entries.as_slice().first().map(|entry| &entry.sequence_number)
    }

    /// The next record.
    pub(crate) fn take(&mut self) -> Option<Entry> {
        self.entries.next()
    }

    /// Says that nothing of it can be handed out for now, so that other shards are still read.
    pub(crate) fn park(&mut self) {
        self.grant.park();
    }

    /// Says that it can be handed out again.
    pub(crate) fn unpark(&mut self) {
        self.grant.unpark();
    }
}
