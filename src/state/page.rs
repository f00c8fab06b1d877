//! The records of one GetRecords response, delivered one by one.

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

/// A record of a page, decoded from its wire form.
#[derive(Debug)]
pub(crate) enum PageEntry {
    /// One user record.
    Plain(Kept),
    /// Several user records, aggregated by the Kinesis Producer Library (R12).
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

/// The bytes of a page, added to the gauge of its shard as long as this lives.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    gauge: Arc<AtomicUsize>,
    bytes: usize,
}

impl HeldBytes {
    pub(crate) fn new(gauge: &Arc<AtomicUsize>, bytes: usize) -> Self {
        gauge.fetch_add(bytes, Ordering::Relaxed);
        Self { gauge: Arc::clone(gauge), bytes }
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.gauge.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The records of one read that are not delivered yet. The bytes of the whole page count against the subscription's
/// budget until the page is dropped.
#[derive(Debug)]
pub(crate) struct Page {
    generation: u64,
    records: vec::IntoIter<RawRecord>,
    grant: Grant,
    _held: HeldBytes,
}

impl Page {
    pub(crate) fn new(generation: u64, records: Vec<RawRecord>, grant: Grant, held: HeldBytes) -> Self {
        Self { generation, records: records.into_iter(), grant, _held: held }
    }

    /// The generation of the shard in which it was read.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// The sequence number of the next record.
    pub(crate) fn peek(&self) -> Option<SequenceNumber> {
        self.records.as_slice().first().map(|record| record.sequence_number.as_str().into())
    }

    /// Whether all records are taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.records.as_slice().is_empty()
    }

    /// The next record. Its number comes from [`peek`](Self::peek). Decoding it with its page instead would move
    /// each record once more.
    pub(crate) fn take(&mut self, number: SequenceNumber) -> Option<PageEntry> {
        self.records.next().map(|raw| PageEntry::new(raw, number))
    }

    /// Parks its bytes while none of its records can be delivered, so that other shards can still be read.
    pub(crate) fn park(&mut self) {
        self.grant.park();
    }

    /// Ends that: its records can be delivered again.
    pub(crate) fn unpark(&mut self) {
        self.grant.unpark();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::RECORD_OVERHEAD;

    // A5
    #[test]
    fn the_budget_counts_what_an_empty_record_takes() {
        // A sequence number has 56 digits, and an allocator rounds its block and that of a short key up.
        let allocations = 64 + 32;
        assert_eq!(RECORD_OVERHEAD, size_of::<RawRecord>() + allocations);
    }
}
