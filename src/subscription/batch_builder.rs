//! Which batch a record goes into, and when a batch is done. Bookkeeping only: it reads the clock and waits for
//! nothing.
//!
//! **Batches by shard are filled in parallel,** each with a deadline. Closing a batch whenever the shard changes would
//! make one batch of each small page of many quiet shards. A batch that is due goes out before one that is full, so a
//! busy shard keeps no quiet one waiting.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::batch::Batch;
use crate::delivery::Delivery;

/// Whether a batch may hold records of several shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grouping {
    Mixed,
    /// Records of one shard and one generation of it, so all under one lease.
    ByShard,
}

/// A batch that is being filled. It holds at least one record.
#[derive(Debug)]
struct OpenBatch<T> {
    since: Instant,
    batch: Batch<T>,
}

/// The batches that are being filled: one, or one for each shard.
#[derive(Debug)]
pub(super) struct BatchBuilder<T> {
    pub(super) size: usize,
    pub(super) max_wait: Duration,
    pub(super) grouping: Grouping,
    /// In the order of their first records, so also in the order in which they are due.
    open: Vec<OpenBatch<T>>,
    /// The index of the batch that got the last record.
    last: usize,
    /// Batches that are done, in the order in which they were.
    closed: VecDeque<Batch<T>>,
}

impl<T> BatchBuilder<T> {
    pub(super) fn new(size: usize, max_wait: Duration, grouping: Grouping) -> Self {
        Self { size, max_wait, grouping, open: Vec::new(), last: 0, closed: VecDeque::new() }
    }

    /// Adds a record.
    pub(super) fn add(&mut self, delivery: Delivery<T>) {
        let mut place = self.place(&delivery);
        // Records of an earlier generation of the shard go out first, in a batch without this one.
        if let Some(at) = place.filter(|at| !self.shares_generation(*at, &delivery)) {
            self.close(at);
            place = None;
        }
        let at = place.unwrap_or_else(|| {
            self.open.push(OpenBatch { since: Instant::now(), batch: Batch::default() });
            self.open.len() - 1
        });
        let deliveries = &mut self.open[at].batch.deliveries;
        deliveries.push(delivery);
        self.last = at;
        if deliveries.len() >= self.size {
            self.close(at);
        }
    }

    /// A full batch, if there is one. If an unfinished batch is due by then, it goes first.
    pub(super) fn take_closed(&mut self) -> Option<Batch<T>> {
        if self.closed.is_empty() {
            return None;
        }
        let due = self.due().is_some_and(|due| due <= Instant::now());
        if due { self.take_first() } else { self.closed.pop_front() }
    }

    /// When the first unfinished batch is due. None if there is no such batch, or if it waits without a limit.
    pub(super) fn due(&self) -> Option<Instant> {
        self.open.first()?.since.checked_add(self.max_wait)
    }

    /// The first unfinished batch.
    pub(super) fn take_first(&mut self) -> Option<Batch<T>> {
        (!self.open.is_empty()).then(|| self.open.remove(0).batch)
    }

    /// Whether it holds no record.
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty() && self.closed.is_empty()
    }

    /// Gives back all records: no handler has seen them.
    pub(super) fn give_back(&mut self) {
        let open = self.open.drain(..).map(|open| open.batch);
        self.closed.drain(..).chain(open).flatten().for_each(Delivery::put_back);
    }

    /// The index of the batch for this record. Records come in runs of one shard, so it tries the last one first.
    fn place(&self, delivery: &Delivery<T>) -> Option<usize> {
        let takes = |open: &OpenBatch<T>| match self.grouping {
            Grouping::Mixed => true,
            Grouping::ByShard => open.batch.deliveries.first().is_some_and(|first| first.shares_shard(delivery)),
        };
        let last = Some(self.last).filter(|last| self.open.get(*last).is_some_and(takes));
        last.or_else(|| self.open.iter().position(takes))
    }

    fn shares_generation(&self, at: usize, delivery: &Delivery<T>) -> bool {
        let first = self.open[at].batch.deliveries.first();
        self.grouping == Grouping::Mixed || first.is_some_and(|first| first.shares_generation(delivery))
    }

    fn close(&mut self, at: usize) {
        self.closed.push_back(self.open.remove(at).batch);
    }
}
