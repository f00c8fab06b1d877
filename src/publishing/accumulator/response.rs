//! What a response means for each record of its request.
//!
//! **A refused request is halved.** The service does not name the culprit in a reliable way. Nine halvings find one
//! record among five hundred, and only the culprit fails. Halving also finds the request size that a smaller server
//! accepts.

use std::{collections::VecDeque, sync::Arc};

use tokio::time::Instant;

use super::{AcceptedRecord, Accumulator, QueuedEntry, SettledRecord};
use crate::{
    error::{
        KinesisError,
        service::{FailureKind, ServiceFailure},
    },
    kinesis::Put,
    publishing::record::Published,
};

/// How many unreadable responses end the retries of a record. Two repeats pass over a proxy that breaks a response. Each
/// repeat may store the record once more, so there are no more of them.
const UNREADABLE_LIMIT: u32 = 3;

/// The response of PutRecords: one result for each entry, in order, or one failure for all.
pub(crate) type Answer = Result<Vec<Result<Put, ServiceFailure>>, ServiceFailure>;

impl<T> Accumulator<T> {
    /// Takes the response to a request.
    pub(crate) fn answer(&mut self, flight: u64, answer: Answer, now: Instant) {
        let Some(entries) = self.flights.remove(&flight) else { return };
        match answer {
            Ok(results) => {
                self.circuit.succeed();
                self.missing_stream.answered();
                self.settled.reserve(entries.len());
                self.settle_or_retry(entries, results, now);
            }
            // The service does not say which record caused the refusal.
            Err(failure) if failure.kind() == FailureKind::Rejected && entries.len() > 1 => self.halve(entries),
            Err(failure) if self.is_final(&failure, now) => {
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

    /// One result for each entry. Entries with a retryable failure back off together, so that they go out together.
    fn settle_or_retry(
        &mut self,
        entries: Vec<QueuedEntry<T>>,
        results: Vec<Result<Put, ServiceFailure>>,
        now: Instant,
    ) {
        let mut failed = Vec::new();
        for (entry, result) in entries.into_iter().zip(results) {
            match result {
                Ok(put) => self.stored(entry, &put),
                Err(failure) if self.is_final(&failure, now) => self.refuse(entry, &failure),
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

    /// Whether a retry would fail in the same way (P4). A stream that is being created or changed is retried, and so is
    /// one that may still appear. A KMS key that cannot be used may be enabled again.
    fn is_final(&mut self, failure: &ServiceFailure, now: Instant) -> bool {
        match failure.kind() {
            FailureKind::Rejected | FailureKind::Denied => true,
            FailureKind::NotFound => self.missing_stream.stays_missing(now),
            _ => false,
        }
    }

    fn halve(&mut self, mut entries: Vec<QueuedEntry<T>>) {
        let half = entries.split_off(entries.len() / 2);
        self.suspects.extend([entries, half]);
    }

    /// The entry, if it may be retried.
    fn again(&mut self, mut entry: QueuedEntry<T>, failure: &ServiceFailure, now: Instant) -> Option<QueuedEntry<T>> {
        self.counts.throttles += u64::from(failure.kind() == FailureKind::Throttled);
        entry.last = Some(failure.clone());
        entry.unreadable += u32::from(failure.kind() == FailureKind::Unreadable);
        if entry.attempts >= self.rules.attempts || entry.unreadable >= UNREADABLE_LIMIT {
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

    /// Settles records that are not retried any more. Their key queue is free afterwards, unless the rest of the entry
    /// is still in it.
    pub(super) fn give_up(&mut self, mut entry: QueuedEntry<T>, now: Instant, frees_queue: bool) {
        let (stream, attempts, source) = (Arc::clone(&self.stream), entry.attempts, entry.last.clone());
        entry.queue_id = entry.queue_id.filter(|_| frees_queue);
        self.settle(entry, |item| {
            Err(KinesisError::GaveUp {
                stream: Arc::clone(&stream),
                attempts,
                waited: now.saturating_duration_since(item.accepted),
                source: source.clone(),
            })
        });
    }

    /// Settles every record of an entry. The next record of its key queue is ready.
    pub(super) fn settle(
        &mut self,
        entry: QueuedEntry<T>,
        mut outcome: impl FnMut(&AcceptedRecord<T>) -> Result<Published, KinesisError>,
    ) {
        let (queue_id, attempts) = (entry.queue_id, entry.attempts);
        for item in entry.into_items() {
            let outcome = outcome(&item);
            self.counts.failed += u64::from(outcome.is_err());
            let AcceptedRecord { record, completion, .. } = *item;
            self.settled.push(SettledRecord { record, completion, attempts, outcome });
        }
        let Some(queue_id) = queue_id else { return };
        match self.queues.get_mut(&queue_id).and_then(VecDeque::pop_front) {
            Some(next) => self.make_ready(QueuedEntry::new(Some(queue_id), next)),
            None => drop(self.queues.remove(&queue_id)),
        }
    }
}
