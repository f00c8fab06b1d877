//! What an answer means for each record of its request.

use std::{collections::VecDeque, sync::Arc};

use tokio::time::Instant;

use super::{AcceptedRecord, Accumulator, QueuedEntry, Settled};
use crate::{
    error::{
        KinesisError,
        service::{FailureKind, ServiceFailure},
    },
    kinesis::Put,
    publishing::record::Published,
};

/// The answer of PutRecords: a result for each entry, in their order, or none at all.
pub(crate) type Answer = Result<Vec<Result<Put, ServiceFailure>>, ServiceFailure>;

impl<T> Accumulator<T> {
    /// Takes the answer to a request.
    pub(crate) fn answer(&mut self, flight: u64, answer: Answer, now: Instant) {
        let Some(entries) = self.flights.remove(&flight) else { return };
        match answer {
            Ok(results) => {
                self.circuit.succeed();
                self.settled.reserve(entries.len());
                self.sort(entries, results, now);
            }
            // The service does not say which record it dislikes, and the others have done nothing.
            Err(failure) if failure.kind() == FailureKind::Rejected && entries.len() > 1 => self.halve(entries),
            Err(failure) if is_final(&failure) => {
                for entry in entries {
                    self.refuse(entry, &failure);
                }
            }
            Err(failure) => {
                // Calls that were under way together fail together, and count once.
                if self.circuit.open_until(now).is_none() {
                    self.circuit.fail(now, |failures| self.backoff.pause(failures));
                }
                for entry in entries {
                    if let Some(entry) = self.again(entry, &failure, now) {
                        self.make_ready(entry);
                    }
                }
            }
        }
    }

    /// A result for each: those that failed for now rest together, so that they go out together again.
    fn sort(&mut self, entries: Vec<QueuedEntry<T>>, results: Vec<Result<Put, ServiceFailure>>, now: Instant) {
        let mut failed = Vec::new();
        for (entry, result) in entries.into_iter().zip(results) {
            match result {
                Ok(put) => self.stored(entry, &put),
                Err(failure) if is_final(&failure) => self.refuse(entry, &failure),
                Err(failure) => failed.extend(self.again(entry, &failure, now)),
            }
        }
        let Some(attempts) = failed.iter().map(|entry| entry.attempts).max() else { return };
        let until = now + self.backoff.pause(attempts);
        for entry in failed {
            let until = until.min(entry.first.accepted + self.rules.timeout);
            self.resting.insert((until, entry.first.ticket), entry);
        }
    }

    fn halve(&mut self, mut entries: Vec<QueuedEntry<T>>) {
        let half = entries.split_off(entries.len() / 2);
        self.suspects.extend([entries, half]);
    }

    /// The entry, if it may be sent again.
    fn again(&mut self, mut entry: QueuedEntry<T>, failure: &ServiceFailure, now: Instant) -> Option<QueuedEntry<T>> {
        self.counts.throttles += u64::from(failure.kind() == FailureKind::Throttled);
        entry.last = Some(failure.clone());
        if entry.attempts >= self.rules.attempts {
            self.give_up(entry, now, true);
            return None;
        }
        self.counts.retries += entry.len() as u64;
        Some(entry)
    }

    fn stored(&mut self, entry: QueuedEntry<T>, put: &Put) {
        let is_aggregate = entry.len() > 1;
        for item in entry.items() {
            self.counts.published += 1;
            self.counts.bytes += item.size() as u64;
        }
        let mut places = 0..;
        self.settle(entry, |_| {
            Ok(Published {
                shard: put.shard.clone(),
                sequence_number: put.sequence_number.clone(),
                sub_sequence_number: places.next().filter(|_| is_aggregate),
            })
        });
    }

    fn refuse(&mut self, entry: QueuedEntry<T>, failure: &ServiceFailure) {
        let error = match failure.kind() {
            FailureKind::Rejected => {
                KinesisError::Refused { stream: Arc::clone(&self.stream), source: failure.clone() }
            }
            _ => KinesisError::refused(&self.stream, failure.clone()),
        };
        self.settle(entry, |_| Err(error.clone()));
    }

    /// Settles what is not sent any more. Its lane is free after it, unless the rest of the entry is in it.
    pub(super) fn give_up(&mut self, mut entry: QueuedEntry<T>, now: Instant, frees_lane: bool) {
        let (stream, attempts, source) = (Arc::clone(&self.stream), entry.attempts, entry.last.clone());
        entry.lane = entry.lane.filter(|_| frees_lane);
        self.settle(entry, |item| {
            Err(KinesisError::GaveUp {
                stream: Arc::clone(&stream),
                attempts,
                waited: now.saturating_duration_since(item.accepted),
                source: source.clone(),
            })
        });
    }

    /// Settles every record of a entry; the next one of its lane is ready.
    pub(super) fn settle(
        &mut self,
        entry: QueuedEntry<T>,
        mut outcome: impl FnMut(&AcceptedRecord<T>) -> Result<Published, KinesisError>,
    ) {
        let (lane, attempts) = (entry.lane, entry.attempts);
        for item in entry.into_items() {
            let outcome = outcome(&item);
            self.counts.failed += u64::from(outcome.is_err());
            let AcceptedRecord { record, completion, .. } = *item;
            self.settled.push(Settled { record, completion, attempts, outcome });
        }
        let Some(lane) = lane else { return };
        match self.queues.get_mut(&lane).and_then(VecDeque::pop_front) {
            Some(next) => self.make_ready(QueuedEntry::new(Some(lane), next)),
            None => drop(self.queues.remove(&lane)),
        }
    }
}

/// Whether the same record would fail in the same way again. A stream that is being created or changed is waited for.
fn is_final(failure: &ServiceFailure) -> bool {
    matches!(
        failure.kind(),
        FailureKind::Rejected | FailureKind::Denied | FailureKind::NotFound | FailureKind::KeyUnusable
    )
}
