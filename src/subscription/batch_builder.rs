//! Which batch a record goes into, and when that one is done: pure, with the time passed in.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use crate::{delivery::Delivery, subscription::batch::Batch};

/// Whether a batch may hold records of several shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grouping {
    Mixed,
    /// Records of one shard and one opening of it, and so of one lease.
    ByShard,
}

/// A batch that is being filled; it holds at least one record.
#[derive(Debug)]
struct Open {
    since: Instant,
    batch: Batch,
}

/// The batches that are being filled: one, or one a shard.
#[derive(Debug)]
pub(super) struct BatchBuilder {
    pub(super) size: usize,
    pub(super) max_wait: Duration,
    grouping: Grouping,
    /// In the order of their first records, and so in the order in which they are due.
    open: Vec<Open>,
    /// Where the last record went.
    last: usize,
    /// These take no more, whatever their time.
    closed: VecDeque<Batch>,
}

impl BatchBuilder {
    pub(super) fn new(size: usize, max_wait: Duration, grouping: Grouping) -> Self {
        Self { size, max_wait, grouping, open: Vec::new(), last: 0, closed: VecDeque::new() }
    }

    /// Takes a record in.
    pub(super) fn add(&mut self, delivery: Delivery) {
        let mut place = self.place(&delivery);
        // What an earlier opening of the shard delivered is not mixed with it, and goes out before it.
        if let Some(at) = place.filter(|at| !self.is_of_opening(*at, &delivery)) {
            self.close(at);
            place = None;
        }
        let at = place.unwrap_or_else(|| {
            self.open.push(Open { since: Instant::now(), batch: Batch::default() });
            self.open.len() - 1
        });
        let deliveries = &mut self.open[at].batch.deliveries;
        deliveries.push(delivery);
        self.last = at;
        if deliveries.len() >= self.size {
            self.close(at);
        }
    }

    /// A batch that takes no more, if there is one; those whose time has come go before it.
    pub(super) fn take_closed(&mut self) -> Option<Batch> {
        if self.closed.is_empty() {
            return None;
        }
        let due = self.due().is_some_and(|due| due <= Instant::now());
        if due { self.take_first() } else { self.closed.pop_front() }
    }

    /// When the first of those that are being filled is done. None if there is none, or if it waits for ever.
    pub(super) fn due(&self) -> Option<Instant> {
        self.open.first()?.since.checked_add(self.max_wait)
    }

    /// The first of those that are being filled.
    pub(super) fn take_first(&mut self) -> Option<Batch> {
        (!self.open.is_empty()).then(|| self.open.remove(0).batch)
    }

    /// Gives back what nobody has seen.
    pub(super) fn give_back(&mut self) {
        let open = self.open.drain(..).map(|open| open.batch);
        self.closed.drain(..).chain(open).flatten().for_each(Delivery::put_back);
    }

    /// Which batch takes the record. Records come in runs of one shard, so the last one is the likeliest.
    fn place(&self, delivery: &Delivery) -> Option<usize> {
        let takes = |open: &Open| match self.grouping {
            Grouping::Mixed => true,
            Grouping::ByShard => open.batch.deliveries.first().is_some_and(|first| first.shares_shard(delivery)),
        };
        let last = Some(self.last).filter(|last| self.open.get(*last).is_some_and(takes));
        last.or_else(|| self.open.iter().position(takes))
    }

    fn is_of_opening(&self, at: usize, delivery: &Delivery) -> bool {
        let first = self.open[at].batch.deliveries.first();
        self.grouping == Grouping::Mixed || first.is_some_and(|first| first.shares_generation(delivery))
    }

    fn close(&mut self, at: usize) {
        self.closed.push_back(self.open.remove(at).batch);
    }
}
