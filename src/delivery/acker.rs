//! Settling one delivery: ack, commit, nack, or drop.

use std::{fmt, sync::Arc, thread, time::Duration};

use crate::{
    config::{
        redelivery::{Reason, RedeliveryDecision, Wish},
        settings::OnDrop,
    },
    delivery::lease_handle::LeaseToken,
    error::KinesisError,
    state::{
        events::Returned,
        settlement::Settlement,
        shard::{ReturnOutcome, Shard},
        tracker::Ticket,
    },
    types::{commit::Commit, record::Kept},
};

/// The duty to settle one delivery, without its payload. [`Delivery::into_parts`](crate::Delivery::into_parts) returns
/// it. Dropping an acker means the same as dropping its delivery.
#[must_use = "dropping an acker gives its record back; commit or ack it"]
pub struct Acker {
    pub(super) delivered: Box<DeliveredRecord>,
}

/// A delivered record, and what settling it takes. Boxed, because a delivery moves at every step of a pipeline.
pub(super) struct DeliveredRecord {
    pub(super) shard: Arc<Shard>,
    pub(super) ticket: Ticket,
    pub(super) epoch: u64,
    pub(super) attempts: u32,
    /// The record was delivered before, whether or not a handler received it.
    pub(super) is_redelivery: bool,
    /// The record as Kinesis returned it, for a redelivery.
    pub(super) record: Kept,
    settled: bool,
    /// Tells `buffer_by_key` the outcome of the record.
    pub(super) settlement: Option<Settlement>,
}

impl Acker {
    pub(super) fn new(shard: Arc<Shard>, ticket: Ticket, epoch: u64, record: Kept, attempts: u32) -> Self {
        let delivered = DeliveredRecord {
            shard,
            ticket,
            epoch,
            attempts,
            is_redelivery: false,
            record,
            settled: false,
            settlement: None,
        };
        Self { delivered: Box::new(delivered) }
    }

    /// See [`Delivery::lease`](crate::Delivery::lease).
    #[must_use]
    pub fn lease(&self) -> LeaseToken {
        LeaseToken::new(Arc::clone(&self.delivered.shard), self.delivered.epoch)
    }

    /// See [`Delivery::commit`](crate::Delivery::commit).
    ///
    /// # Errors
    ///
    /// The same as [`Delivery::commit`](crate::Delivery::commit).
    ///
    /// # Cancel safety
    ///
    /// The same as [`Delivery::commit`](crate::Delivery::commit).
    pub async fn commit(mut self) -> Result<Commit, KinesisError> {
        let pending = self.delivered.shard.commit(&[self.delivered.ticket]);
        self.note_settled();
        pending.outcome(&self.delivered.shard).await
    }

    /// See [`Delivery::ack`](crate::Delivery::ack).
    pub fn ack(mut self) {
        self.settle();
    }

    /// See [`Delivery::nack`](crate::Delivery::nack).
    pub fn nack(mut self) {
        self.give_back(Wish::Retry, Reason::GivenBack);
    }

    /// See [`Delivery::nack_after`](crate::Delivery::nack_after).
    pub fn nack_after(mut self, pause: Duration) {
        self.give_back(Wish::RetryAfter(pause), Reason::GivenBack);
    }

    /// See [`Delivery::nack_because`](crate::Delivery::nack_because).
    pub fn nack_because(mut self, reason: impl fmt::Display) {
        self.give_back(Wish::Retry, Reason::because(reason));
    }

    /// See [`Delivery::reject`](crate::Delivery::reject).
    pub fn reject(mut self, reason: impl fmt::Display) {
        // The key of the record goes on at once, and does not wait for the dead letter.
        let settlement = self.delivered.settlement.take();
        if let ReturnOutcome::Queued(_) = self.give_back(Wish::Reject, Reason::because(reason))
            && let Some(settlement) = settlement
        {
            settlement.settled();
        }
    }

    /// Gives back a record that no handler received, so that this delivery does not count as an attempt.
    pub(super) fn put_back(&mut self) {
        let attempts = self.delivered.attempts.saturating_sub(1);
        self.return_after(attempts, Wish::Retry, Reason::GivenBack);
    }

    /// Notes that the shard has settled the record.
    pub(super) fn note_settled(&mut self) {
        self.delivered.settled = true;
        if let Some(settlement) = self.delivered.settlement.take() {
            settlement.settled();
        }
    }

    fn settle(&mut self) {
        self.delivered.shard.ack(&[self.delivered.ticket]);
        self.note_settled();
    }

    fn give_back(&mut self, wish: Wish, reason: Reason) -> ReturnOutcome {
        self.return_after(self.delivered.attempts, wish, reason)
    }

    fn return_after(&mut self, attempts: u32, wish: Wish, reason: Reason) -> ReturnOutcome {
        self.delivered.settled = true;
        if let Some(settlement) = &self.delivered.settlement {
            settlement.returned();
        }
        self.delivered.shard.give_back(Returned {
            ticket: self.delivered.ticket,
            shard: self.delivered.shard.id.clone(),
            record: self.delivered.record.clone(),
            attempts,
            wish,
            reason,
            settlement: self.delivered.settlement.take(),
        })
    }
}

impl Drop for Acker {
    fn drop(&mut self) {
        if self.delivered.settled {
            return;
        }
        let context = Arc::clone(&self.delivered.shard.context);
        let reason = if thread::panicking() { Reason::Panicked } else { Reason::Dropped };
        if context.settings.on_drop == OnDrop::Ack && reason == Reason::Dropped && context.lifecycle.can_settle() {
            self.settle();
            return;
        }
        let becomes = match self.give_back(Wish::Retry, reason) {
            ReturnOutcome::Queued(RedeliveryDecision::Redeliver(_)) | ReturnOutcome::Elsewhere => "will be redelivered",
            ReturnOutcome::Queued(RedeliveryDecision::DeadLetter) => {
                "becomes a dead letter, since this was its last attempt"
            }
            ReturnOutcome::Queued(RedeliveryDecision::Error) => {
                "is reported as an error, since this was its last attempt"
            }
            ReturnOutcome::Stale => return,
        };
        if context.lifecycle.is_running() {
            context.warn_of_drop(&self.delivered.shard.id, becomes);
        }
    }
}

impl fmt::Debug for Acker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acker")
            .field("stream", &self.delivered.shard.context.stream)
            .field("shard", &self.delivered.shard.id)
            .field("sequence_number", &self.delivered.record.sequence_number)
            .field("epoch", &self.delivered.epoch)
            .field("attempt", &self.delivered.attempts)
            .finish_non_exhaustive()
    }
}
