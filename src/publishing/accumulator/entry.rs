//! What becomes one entry of a request.

use std::iter;

use bytes::Bytes;
use tokio::time::Instant;

use crate::{
    error::service::ServiceFailure, kinesis::PutEntry, publishing::record::Outgoing, wire::aggregate::AggregateFormat,
};

/// A record that was accepted. It is boxed from then on, since it moves through several collections.
#[derive(Debug)]
pub(super) struct AcceptedRecord<T> {
    /// Grows with every record that is accepted.
    pub(super) ticket: u64,
    pub(super) record: Outgoing,
    /// The payload in the envelope of its headers.
    pub(super) data: Bytes,
    pub(super) accepted: Instant,
    pub(super) completion: T,
}

impl<T> AcceptedRecord<T> {
    /// As the service counts.
    pub(super) fn size(&self) -> usize {
        self.data.len() + self.record.partition_key.len()
    }
}

/// One record, or several of one key and hash that are aggregated.
#[derive(Debug)]
pub(super) struct QueuedEntry<T> {
    /// None where no order is kept.
    pub(super) lane: Option<u64>,
    pub(super) first: Box<AcceptedRecord<T>>,
    rest: Vec<Box<AcceptedRecord<T>>>,
    /// As the service counts.
    size: usize,
    /// How often it was sent.
    pub(super) attempts: u32,
    /// Why it failed the last time.
    pub(super) last: Option<ServiceFailure>,
}

impl<T> QueuedEntry<T> {
    pub(super) fn new(lane: Option<u64>, first: Box<AcceptedRecord<T>>) -> Self {
        Self { lane, size: first.size(), first, rest: Vec::new(), attempts: 0, last: None }
    }

    pub(super) fn size(&self) -> usize {
        self.size
    }

    pub(super) fn entry(&self) -> PutEntry {
        let Outgoing { partition_key, explicit_hash_key, .. } = &self.first.record;
        let data = if self.rest.is_empty() { self.first.data.clone() } else { self.aggregated() };
        PutEntry { partition_key: partition_key.clone(), explicit_hash_key: *explicit_hash_key, data }
    }

    /// How many records it is.
    pub(super) fn len(&self) -> usize {
        1 + self.rest.len()
    }

    pub(super) fn items(&self) -> impl Iterator<Item = &AcceptedRecord<T>> {
        iter::once(&self.first).chain(&self.rest).map(Box::as_ref)
    }

    pub(super) fn into_items(self) -> impl Iterator<Item = Box<AcceptedRecord<T>>> {
        iter::once(self.first).chain(self.rest)
    }

    /// Parts it before the first record that is not so. The older part comes first.
    pub(super) fn split_at(self, is_so: impl Fn(&AcceptedRecord<T>) -> bool) -> (Option<Self>, Option<Self>) {
        let Self { lane, attempts, last, .. } = &self;
        let (lane, attempts, last) = (*lane, *attempts, last.clone());
        let mut older: Vec<_> = self.into_items().collect();
        let later = older.split_off(older.iter().position(|item| !is_so(item)).unwrap_or(older.len()));
        let entry = |items: Vec<Box<AcceptedRecord<T>>>| {
            let mut items = items.into_iter();
            let mut entry = Self { attempts, last: last.clone(), ..Self::new(lane, items.next()?) };
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
