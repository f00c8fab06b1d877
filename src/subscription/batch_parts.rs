//! A batch that is processed part by part, and the settling of each part.
//!
//! **In order, a record that failed stays here for its next attempt.** Giving it back would let later records pass it.
//! It goes back only once this instance cannot redeliver it, and then blocks what is behind it.

use std::{mem, sync::Arc, thread, time::Duration};

use tokio::time::Instant;

use super::{
    batch::Batch,
    batch_failures::{AfterCall, RecordEnd},
};
use crate::{
    delivery::{Delivery, ack_all},
    state::settlement::RecordKey,
};

/// The parts of a batch that are not settled yet. Dropping it gives them back.
pub(super) struct BatchParts<T> {
    /// The part that the handler has.
    called: Arc<Batch<T>>,
    /// The records that failed, and the pause before their next attempt, until that was begun.
    retry: Option<(Batch<T>, Option<Duration>)>,
    /// The next one is the last.
    rest: Vec<Batch<T>>,
    in_order: bool,
}

/// What comes next for a batch.
pub(super) enum NextStep<T> {
    /// The handler gets this part.
    Call(Arc<Batch<T>>),
    /// Nothing, for this long.
    Pause(Duration),
    /// All parts are settled, or settling them has no effect any more.
    Done,
    /// This record was given back, and nothing behind it may start.
    Blocked(RecordKey),
}

impl<T> BatchParts<T> {
    /// The whole batch is one part.
    pub(super) fn new(batch: Batch<T>, in_order: bool) -> Self {
        Self { called: Arc::default(), retry: None, rest: vec![batch], in_order }
    }

    pub(super) fn next(&mut self) -> NextStep<T> {
        let part = match self.retry.take() {
            Some((failed, Some(pause))) => {
                self.retry = Some((failed, None));
                return NextStep::Pause(pause);
            }
            Some((failed, None)) if !Self::all_count(&failed) => failed,
            Some((failed, None)) if !keeps(&failed) => return self.give_up(failed),
            Some((failed, None)) => {
                let again = tried_again(failed);
                if again.is_empty() {
                    return self.next();
                }
                again
            }
            None => match self.rest.pop() {
                Some(part) => part,
                None => return NextStep::Done,
            },
        };
        if !Self::all_count(&part) {
            put_back(part);
            self.rest.drain(..).for_each(put_back);
            return NextStep::Done;
        }
        self.called = Arc::new(part);
        NextStep::Call(Arc::clone(&self.called))
    }

    /// Whether the records that failed may still have another attempt here. True if there are none.
    pub(super) fn may_retry(&self) -> bool {
        self.retry.as_ref().is_none_or(|(failed, _)| keeps(failed))
    }

    /// The handler has finished with the part that it has. Does what `then` says for a part of this many records.
    pub(super) fn called(&mut self, then: impl FnOnce(usize) -> AfterCall) {
        // Fails if the handler has kept it. Its records are then settled by their drop.
        let Ok(mut part) = Arc::try_unwrap(mem::take(&mut self.called)) else { return };
        match then(part.len()) {
            AfterCall::Settle(ends) => self.settle(part, ends),
            AfterCall::Halve(first) => {
                if let Some(record) = part.deliveries.first() {
                    record.count_halving();
                }
                let second = part.split_off(first);
                self.rest.extend([second, part]);
            }
        }
    }

    /// Settles a part. There is an end for each record.
    fn settle(&mut self, part: Batch<T>, ends: Vec<RecordEnd>) {
        let (mut done, mut failed, mut pause) = (Vec::with_capacity(part.len()), Batch::default(), Duration::ZERO);
        for (delivery, end) in part.into_iter().zip(ends) {
            match (end, delivery.retry_pause().filter(|_| self.in_order)) {
                (RecordEnd::Done, _) => done.push(delivery),
                (RecordEnd::Retry(_), Some(own)) => {
                    pause = pause.max(own);
                    failed.deliveries.push(delivery);
                }
                (RecordEnd::Retry(None), None) => delivery.nack(),
                (RecordEnd::Retry(Some(reason)), None) => delivery.nack_because(reason),
                (RecordEnd::Reject(reason), _) => delivery.reject(reason),
            }
        }
        ack_all(done);
        self.retry = (!failed.is_empty()).then_some((failed, Some(pause)));
    }

    /// Gives back records that failed, and everything behind them.
    fn give_up(&mut self, failed: Batch<T>) -> NextStep<T> {
        let first = failed.deliveries.first().map(Delivery::record_key);
        failed.nack();
        self.rest.drain(..).for_each(put_back);
        first.map_or(NextStep::Done, NextStep::Blocked)
    }

    /// Whether settling the records of a part has an effect. They are all of one generation.
    fn all_count(part: &Batch<T>) -> bool {
        part.deliveries.first().is_some_and(Delivery::counts)
    }
}

impl<T> Drop for BatchParts<T> {
    /// The handler did not finish with the part that it has. A mere drop would acknowledge it under `ack_on_drop`.
    fn drop(&mut self) {
        if let Some((failed, _)) = self.retry.take() {
            failed.nack();
        }
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

/// Whether this instance may redeliver the records of a part.
fn keeps<T>(part: &Batch<T>) -> bool {
    part.deliveries.first().is_some_and(Delivery::may_be_redelivered)
}

/// The records of a part, at their next attempt. Those that are too old by now go back to the stream, which disposes of
/// them.
fn tried_again<T>(failed: Batch<T>) -> Batch<T> {
    let now = Instant::now();
    let (old, mut again): (Batch<T>, Batch<T>) = failed.into_iter().partition(|delivery| delivery.is_too_old(now));
    old.nack_after(Duration::ZERO);
    again.deliveries.iter_mut().for_each(Delivery::try_again);
    again
}
