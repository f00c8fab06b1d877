//! One entry of a request: a record, or aggregated records.

use std::iter;

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    error::service::ServiceFailure, kinesis::PutEntry, publishing::record::Outgoing, wire::aggregate::AggregateFormat,
};

/// An accepted record. It is boxed because it moves through several collections.
#[derive(Debug)]
pub(super) struct AcceptedRecord<T> {
    /// Grows with every accepted record.
    pub(super) ticket: u64,
    pub(super) record: Outgoing,
    /// The payload in the envelope of its headers.
    pub(super) data: Bytes,
    pub(super) accepted: Instant,
    pub(super) completion: T,
}

impl<T> AcceptedRecord<T> {
    /// In bytes, as the service counts.
    pub(super) fn size(&self) -> usize {
        self.data.len() + self.record.partition_key.len()
    }
}

/// One record, or several aggregated records of one key and hash.
#[derive(Debug)]
pub(super) struct QueuedEntry<T> {
    /// None if no order is kept.
    pub(super) queue_id: Option<u64>,
    pub(super) first: Box<AcceptedRecord<T>>,
    rest: Vec<Box<AcceptedRecord<T>>>,
    /// In bytes, as the service counts.
    size: usize,
    /// How many times it was sent.
    pub(super) attempts: u32,
    /// How many responses to it could not be read. Each of these requests may have stored it.
    pub(super) unreadable: u32,
    /// The last failure.
    pub(super) last: Option<ServiceFailure>,
}

impl<T> QueuedEntry<T> {
    pub(super) fn new(queue_id: Option<u64>, first: Box<AcceptedRecord<T>>) -> Self {
        Self { queue_id, size: first.size(), first, rest: Vec::new(), attempts: 0, unreadable: 0, last: None }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn entry(&self) -> PutEntry {
        let Outgoing { partition_key, explicit_hash_key, .. } = &self.first.record;
        let data = if self.rest.is_empty() { self.first.data.clone() } else { self.aggregated() };
        PutEntry { partition_key: partition_key.clone(), explicit_hash_key: *explicit_hash_key, data }
    }

    /// The number of records.
    pub(super) fn len(&self) -> usize {
        1 + self.rest.len()
    }

    pub(super) fn items(&self) -> impl Iterator<Item = &AcceptedRecord<T>> {
        iter::once(&self.first).chain(&self.rest).map(Box::as_ref)
    }

    pub(super) fn into_items(self) -> impl Iterator<Item = Box<AcceptedRecord<T>>> {
        iter::once(self.first).chain(self.rest)
    }

    /// Splits before the first record that does not match. The older part comes first.
    pub(super) fn split_at(self, matches: impl Fn(&AcceptedRecord<T>) -> bool) -> (Option<Self>, Option<Self>) {
        let Self { queue_id, attempts, last, .. } = &self;
        let (queue_id, attempts, last) = (*queue_id, *attempts, last.clone());
        let mut older: Vec<_> = self.into_items().collect();
        let later = older.split_off(older.iter().position(|item| !matches(item)).unwrap_or(older.len()));
        let entry = |items: Vec<Box<AcceptedRecord<T>>>| {
            let mut items = items.into_iter();
            let mut entry = Self { attempts, last: last.clone(), ..Self::new(queue_id, items.next()?) };
            items.for_each(|item| entry.add(item));
            Some(entry)
        };
        (entry(older), entry(later))
    }

    /// Whether a record has the same key and hash, and fits into an aggregate of this size.
    pub(super) fn can_add(&self, item: &AcceptedRecord<T>, limit: usize) -> bool {
        let (mine, other) = (&self.first.record, &item.record);
        mine.partition_key == other.partition_key
            && mine.explicit_hash_key == other.explicit_hash_key
            && self.size_with(item) <= limit
    }

    pub(super) fn add(&mut self, item: Box<AcceptedRecord<T>>) {
        self.size = self.size_with(&item);
        self.rest.push(item);
    }

    fn size_with(&self, item: &AcceptedRecord<T>) -> usize {
        let Outgoing { partition_key, explicit_hash_key, .. } = &self.first.record;
        let format = AggregateFormat::new(partition_key, *explicit_hash_key);
        let so_far = if self.rest.is_empty() {
            partition_key.len() + format.empty() + format.record(self.first.data.len())
        } else {
            self.size
        };
        so_far.saturating_add(format.record(item.data.len()))
    }

    fn aggregated(&self) -> Bytes {
        let Outgoing { partition_key, explicit_hash_key, .. } = &self.first.record;
        let records = self.items().map(|item| item.data.clone());
        AggregateFormat::new(partition_key, *explicit_hash_key).encode(records)
    }
}
