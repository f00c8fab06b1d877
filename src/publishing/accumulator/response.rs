//! What an answer means for each record of its request.

use std::{collections::VecDeque, sync::Arc};

use tokio::time::Instant;

use super::{Item, Lanes, Parcel, Settled};
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

impl<T> Lanes<T> {
    /// Takes the answer to a request.
    pub(crate) fn answer(&mut self, flight: u64, answer: Answer, now: Instant) {
        let Some(parcels) = self.flights.remove(&flight) else { return };
        match answer {
            Ok(results) => {
                self.gate.open();
                self.settled.reserve(parcels.len());
                self.sort(parcels, results, now);
            }
            // The service does not say which record it dislikes, and the others have done nothing.
            Err(failure) if failure.kind() == FailureKind::Rejected && parcels.len() > 1 => self.halve(parcels),
            Err(failure) if is_final(&failure) => {
                for parcel in parcels {
                    self.refuse(parcel, &failure);
                }
            }
            Err(failure) => {
                self.gate.close(now, &mut self.backoff);
                for parcel in parcels {
                    if let Some(parcel) = self.again(parcel, &failure, now) {
                        self.make_ready(parcel);
                    }
                }
            }
        }
    }

    /// A result for each: those that failed for now rest together, so that they go out together again.
    fn sort(&mut self, parcels: Vec<Parcel<T>>, results: Vec<Result<Put, ServiceFailure>>, now: Instant) {
        let mut failed = Vec::new();
        for (parcel, result) in parcels.into_iter().zip(results) {
            match result {
                Ok(put) => self.stored(parcel, &put),
                Err(failure) if is_final(&failure) => self.refuse(parcel, &failure),
                Err(failure) => failed.extend(self.again(parcel, &failure, now)),
            }
        }
        let Some(attempts) = failed.iter().map(|parcel| parcel.attempts).max() else { return };
        let until = now + self.backoff.pause(attempts);
        for parcel in failed {
            let until = until.min(parcel.first.accepted + self.rules.timeout);
            self.resting.insert((until, parcel.first.ticket), parcel);
        }
    }

    fn halve(&mut self, mut parcels: Vec<Parcel<T>>) {
        let half = parcels.split_off(parcels.len() / 2);
        self.suspects.extend([parcels, half]);
    }

    /// The parcel, if it may be sent again.
    fn again(&mut self, mut parcel: Parcel<T>, failure: &ServiceFailure, now: Instant) -> Option<Parcel<T>> {
        self.counts.throttles += u64::from(failure.kind() == FailureKind::Throttled);
        parcel.last = Some(failure.clone());
        if parcel.attempts >= self.rules.attempts {
            self.give_up(parcel, now, true);
            return None;
        }
        self.counts.retries += parcel.len() as u64;
        Some(parcel)
    }

    fn stored(&mut self, parcel: Parcel<T>, put: &Put) {
        let is_aggregate = parcel.len() > 1;
        for item in parcel.items() {
            self.counts.published += 1;
            self.counts.bytes += item.size() as u64;
        }
        let mut places = 0..;
        self.settle(parcel, |_| {
            Ok(Published {
                shard: put.shard.clone(),
                sequence_number: put.sequence_number.clone(),
                sub_sequence_number: places.next().filter(|_| is_aggregate),
            })
        });
    }

    fn refuse(&mut self, parcel: Parcel<T>, failure: &ServiceFailure) {
        let error = match failure.kind() {
            FailureKind::Rejected => {
                KinesisError::Refused { stream: Arc::clone(&self.stream), source: failure.clone() }
            }
            _ => KinesisError::refused(&self.stream, failure.clone()),
        };
        self.settle(parcel, |_| Err(error.clone()));
    }

    /// Settles what is not sent any more. Its lane is free after it, unless the rest of the parcel is in it.
    pub(super) fn give_up(&mut self, mut parcel: Parcel<T>, now: Instant, frees_lane: bool) {
        let (stream, attempts, source) = (Arc::clone(&self.stream), parcel.attempts, parcel.last.clone());
        parcel.lane = parcel.lane.filter(|_| frees_lane);
        self.settle(parcel, |item| {
            Err(KinesisError::GaveUp {
                stream: Arc::clone(&stream),
                attempts,
                waited: now.saturating_duration_since(item.accepted),
                source: source.clone(),
            })
        });
    }

    /// Settles every record of a parcel; the next one of its lane is ready.
    pub(super) fn settle(
        &mut self,
        parcel: Parcel<T>,
        mut outcome: impl FnMut(&Item<T>) -> Result<Published, KinesisError>,
    ) {
        let (lane, attempts) = (parcel.lane, parcel.attempts);
        for item in parcel.into_items() {
            let outcome = outcome(&item);
            self.counts.failed += u64::from(outcome.is_err());
            let Item { record, receipt, .. } = *item;
            self.settled.push(Settled { record, receipt, attempts, outcome });
        }
        let Some(lane) = lane else { return };
        match self.queues.get_mut(&lane).and_then(VecDeque::pop_front) {
            Some(next) => self.make_ready(Parcel::new(Some(lane), next)),
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
