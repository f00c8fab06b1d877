//! A batch that is processed part by part, and the settling of each part.

use std::{mem, sync::Arc, thread};

use super::{
    batch::Batch,
    batch_failures::{AfterCall, RecordEnd},
};
use crate::delivery::{Delivery, ack_all};

/// The parts of a batch that are not settled yet. Dropping it gives them back.
pub(super) struct BatchParts<T> {
    /// The part that the handler has.
    called: Arc<Batch<T>>,
    /// The next one is the last.
    rest: Vec<Batch<T>>,
}

impl<T> BatchParts<T> {
    /// The whole batch is one part.
    pub(super) fn new(batch: Batch<T>) -> Self {
        Self { called: Arc::default(), rest: vec![batch] }
    }

    /// The next part. None if there is none, or if settling them has no effect any more.
    pub(super) fn next(&mut self) -> Option<Arc<Batch<T>>> {
        let next = self.rest.pop()?;
        if !next.deliveries.first().is_some_and(Delivery::counts) {
            put_back(next);
            self.rest.drain(..).for_each(put_back);
            return None;
        }
        self.called = Arc::new(next);
        Some(Arc::clone(&self.called))
    }

    /// The handler has finished with the part that it has. Does what `then` says for a part of this many records.
    pub(super) fn called(&mut self, then: impl FnOnce(usize) -> AfterCall) {
        // Fails if the handler has kept it. Its records are then settled by their drop.
        let Ok(mut part) = Arc::try_unwrap(mem::take(&mut self.called)) else { return };
        match then(part.len()) {
            AfterCall::Settle(ends) => settle(part, ends),
            AfterCall::Halve(first) => {
                if let Some(record) = part.deliveries.first() {
                    record.count_halving();
                }
                let second = part.split_off(first);
                self.rest.extend([second, part]);
            }
        }
    }
}

impl<T> Drop for BatchParts<T> {
    /// The handler did not finish with the part that it has. A mere drop would acknowledge it under `ack_on_drop`.
    fn drop(&mut self) {
        self.rest.drain(..).for_each(put_back);
        if let Ok(part) = Arc::try_unwrap(mem::take(&mut self.called))
            && !thread::panicking()
        {
            part.nack();
        }
    }
}

/// Gives back a batch that no handler received, whatever dropping it would mean.
pub(super) fn put_back<T>(batch: Batch<T>) {
    batch.into_iter().for_each(Delivery::put_back);
}

/// Settles a part. There is an end for each record.
fn settle<T>(part: Batch<T>, ends: Vec<RecordEnd>) {
    let mut done = Vec::with_capacity(part.len());
    for (delivery, end) in part.into_iter().zip(ends) {
        match end {
            RecordEnd::Done => done.push(delivery),
            RecordEnd::Retry(None) => delivery.nack(),
            RecordEnd::Retry(Some(reason)) => delivery.nack_because(reason),
            RecordEnd::Reject(reason) => delivery.reject(reason),
        }
    }
    ack_all(done);
}
