//! One answer of GetRecords, handed out record by record.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    vec,
};

use bytes::Bytes;

use crate::{
    budget::Grant,
    kinesis::RawRecord,
    types::{id::SequenceNumber, record::Kept},
    wire::{aggregate, envelope},
};

/// A record of a page, taken out of its wire forms.
#[derive(Debug)]
pub(crate) enum PageEntry {
    /// One user record.
    Plain(Kept),
    /// Several, aggregated by the Kinesis Producer Library (R12).
    Aggregated { sequence_number: SequenceNumber, partition_key: Option<Box<str>>, data: Bytes },
}

impl PageEntry {
    fn new(raw: RawRecord, sequence_number: SequenceNumber) -> Self {
        let RawRecord { data, partition_key, arrived_at, .. } = raw;
        let partition_key = partition_key.map(String::into_boxed_str);
        if aggregate::is_aggregated(&data) {
            return Self::Aggregated { sequence_number, partition_key, data };
        }
        let (headers, payload) = envelope::decode(data);
        Self::Plain(Kept { payload, headers, partition_key, sequence_number, arrived_at })
    }
}

/// The weight of a page, in the gauge of its shard as long as it lives.
#[derive(Debug)]
pub(crate) struct Weight {
    gauge: Arc<AtomicUsize>,
    bytes: usize,
}

impl Weight {
    pub(crate) fn new(gauge: &Arc<AtomicUsize>, bytes: usize) -> Self {
        gauge.fetch_add(bytes, Ordering::Relaxed);
        Self { gauge: Arc::clone(gauge), bytes }
    }
}

impl Drop for Weight {
    fn drop(&mut self) {
        self.gauge.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The records of one read that were not handed out yet. Its bytes count against the subscription's budget until it
/// is dropped.
#[derive(Debug)]
pub(crate) struct Page {
    generation: u64,
    records: vec::IntoIter<RawRecord>,
    grant: Grant,
    _weight: Weight,
}

impl Page {
    pub(crate) fn new(generation: u64, records: Vec<RawRecord>, grant: Grant, weight: Weight) -> Self {
        Self { generation, records: records.into_iter(), grant, _weight: weight }
    }

    /// The opening of the shard under which it was read.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The sequence number of the next record.
    pub(crate) fn peek(&self) -> Option<SequenceNumber> {
        self.records.as_slice().first().map(|record| record.sequence_number.as_str().into())
    }

    /// Whether all were taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.as_slice().is_empty()
    }

    /// The next record, whose number [`peek`](Self::peek) gave. It is unwrapped here and not with its page: that would
    /// move each of them once more.
    pub(crate) fn take(&mut self, number: SequenceNumber) -> Option<PageEntry> {
        self.records.next().map(|raw| PageEntry::new(raw, number))
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
