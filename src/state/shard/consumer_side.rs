//! The steps of the stream and its deliveries: delivering, settling, giving back.
//!
//! **Settling needs no task and no runtime.** It marks the state and wakes the renewer if a write is due at once. So
//! renewal, checkpoints, the end of a shard and closing never depend on polling, and a commit that nobody polls blocks
//! nothing.
//!
//! **A spent or rejected record without a dead-letter stream is reported like an aggregated one.** It counts as settled once the
//! stream has yielded its error. Each spent record yields an error that carries it, and no newer error replaces it.

use std::sync::Arc;

use tokio::time::{Duration, Instant};

use crate::{
    config::redelivery::{RedeliveryDecision, Wish},
    error::KinesisError,
    state::{
        events::{Redelivery, Returned},
        settlement::Settlement,
        shard::{
            inner::{Shard, ShardInner},
            lease_term::LeaseTerm,
            store_op::StoredProgress,
        },
        tracker::Ticket,
    },
    types::{commit::Commit, id::SequenceNumber},
    util::watched::Watched,
};

/// How many store writes in a row may fail before a waiting commit returns the error. With the pauses between them this
/// takes about 1.5 seconds, or half a minute if each write, and each renewal between them, has to time out.
const FAILURES_BEFORE_ERROR: u32 = 5;

/// Whether a record may be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandOut {
    /// Yes, with this ticket and the epoch of the lease.
    Out(Ticket, u64),
    /// Not now: the shard is at its bound, or its lease is in doubt.
    NotNow,
    /// Never: its generation is over.
    Stale,
}

/// What settling some records came to.
#[derive(Clone, Copy, Debug)]
struct Settled {
    /// How many were unsettled before.
    count: u64,
    /// Whether any ticket was stale, or settled before.
    any_stale: bool,
}

/// What happened to a record that was given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReturnOutcome {
    /// It is queued here for this.
    Queued(RedeliveryDecision),
    /// Its shard is being handed over or released, or the subscription closes: the next holder redelivers it.
    Elsewhere,
    /// Its ticket is stale.
    Stale,
}

/// A commit whose records are settled, and which may have to wait for the store.
#[derive(Debug)]
pub(crate) enum PendingCommit {
    /// The result is known.
    Done(Commit),
    /// The renewer is asked for a write that covers every record below the offset.
    Waiting { progress: Watched<StoredProgress>, upto: u64, failures: u32 },
}

impl Shard {
    /// Delivers the next record of a page.
    pub(crate) fn hand_out(&self, generation: u64, number: &SequenceNumber, now: Instant) -> HandOut {
        self.write(|inner| {
            self.notice_suspension(inner, now);
            let ShardInner { term: Some(term), tracker, full, .. } = inner else { return HandOut::Stale };
            if tracker.generation() != generation || term.is_leaving() {
                return HandOut::Stale;
            }
            if !tracker.has_room(self.context.settings.max_in_flight) || !term.is_valid(now) {
                return HandOut::NotNow;
            }
            *full = None;
            term.handed_out();
            HandOut::Out(tracker.hand_out(number.clone(), now), term.held.epoch)
        })
    }

    /// Redelivers a record.
    pub(crate) fn hand_out_again(&self, ticket: Ticket, now: Instant) -> HandOut {
        let out = self.take_up(ticket, now);
        if let HandOut::Out(..) = out {
            self.count(|counts| counts.redeliveries += 1);
        }
        out
    }

    /// Notes that the user or the dead-letter writer holds a returned record again. The bounds do not hold it back: it
    /// counts as an open record already.
    pub(crate) fn take_up(&self, ticket: Ticket, now: Instant) -> HandOut {
        self.write(|inner| {
            self.notice_suspension(inner, now);
            let Some(term) = &inner.term else { return HandOut::Stale };
            let epoch = term.held.epoch;
            if term.is_leaving() {
                return HandOut::Stale;
            }
            if !term.is_valid(now) {
                return HandOut::NotNow;
            }
            if !inner.tracker.hand_out_again(ticket) {
                return HandOut::Stale;
            }
            HandOut::Out(ticket, epoch)
        })
    }

    /// Settles records; the next checkpoint covers them.
    pub(crate) fn ack(&self, tickets: &[Ticket]) {
        self.settle(tickets, |inner, settled| inner.counts.acked += settled.count);
    }

    /// Settles a spent record, once its dead letter is stored or its error yielded.
    pub(crate) fn settle_spent(&self, ticket: Ticket, settlement: Option<Settlement>) {
        self.settle(&[ticket], |_, _| ());
        if let Some(settlement) = settlement {
            settlement.settled();
        }
    }

    /// Settles records and asks the renewer for one checkpoint that covers them.
    pub(crate) fn commit(&self, tickets: &[Ticket]) -> PendingCommit {
        self.settle(tickets, |inner, settled| {
            inner.counts.acked += settled.count;
            let Some(term) = inner.term.as_mut().filter(|_| !settled.any_stale) else {
                return PendingCommit::Done(Commit::Superseded);
            };
            let Some(mark) = inner.tracker.watermark() else { return PendingCommit::Done(Commit::Deferred) };
            term.want(mark.upto);
            if !tickets.iter().all(|ticket| inner.tracker.covers(*ticket)) {
                return PendingCommit::Done(Commit::Deferred);
            }
            let progress = term.progress();
            let failures = progress.read(|progress| progress.failures);
            PendingCommit::Waiting { progress, upto: mark.upto, failures }
        })
    }

    /// Takes a record back from the user: it is redelivered after a pause, or disposed of if it used up its attempts.
    pub(crate) fn give_back(&self, returned: Returned) -> ReturnOutcome {
        let outcome = self.put_down(returned, |returned| self.dispose(returned));
        if outcome != ReturnOutcome::Stale {
            self.count(|counts| counts.given_back += 1);
        }
        outcome
    }

    /// Takes back an unsettled record. `queue` queues it and says what for. If this generation will not redeliver the
    /// record, it is dropped.
    pub(crate) fn put_down(
        &self,
        returned: Returned,
        queue: impl FnOnce(Returned) -> RedeliveryDecision,
    ) -> ReturnOutcome {
        let ticket = returned.ticket;
        let (counts, leaves) = self.write_and_wake(|inner| {
            let counts = inner.tracker.give_back(ticket) && inner.term.is_some();
            (counts, inner.term.as_ref().is_some_and(LeaseTerm::is_leaving))
        });
        if !counts {
            return ReturnOutcome::Stale;
        }
        if leaves || !self.context.lifecycle.is_running() {
            return ReturnOutcome::Elsewhere;
        }
        let next = queue(returned);
        // The generation may have ended, and its queued records been dropped, just before.
        if self.write(|inner| !inner.delivers(ticket.generation())) {
            self.drop_waiting();
        }
        ReturnOutcome::Queued(next)
    }

    /// Whether settling this record, or giving it back, still has an effect.
    pub(crate) fn counts(&self, ticket: Ticket) -> bool {
        self.write(|inner| inner.term.is_some() && ticket.generation() == inner.tracker.generation())
    }

    /// Whether this instance would redeliver this record if it was given back now.
    pub(crate) fn redelivers(&self, ticket: Ticket) -> bool {
        let is_held = |inner: &mut ShardInner| {
            let stays = inner.term.as_ref().is_some_and(|term| !term.is_leaving());
            stays && ticket.generation() == inner.tracker.generation()
        };
        self.context.lifecycle.is_running() && self.write(is_held)
    }

    /// Drops the queued records of generations that are over: they will be neither redelivered nor dead letters.
    pub(super) fn drop_waiting(&self) {
        let over = self.write(|inner| {
            let generation = inner.tracker.generation();
            if inner.delivers(generation) { generation.saturating_sub(1) } else { generation }
        });
        self.context.dead_letter_queue.forget(&self.id, over);
        self.context.events.forget(&self.id, over);
    }

    fn dispose(&self, returned: Returned) -> RedeliveryDecision {
        let (context, now) = (&self.context, Instant::now());
        let next = context.settings.retries.next(returned.wish, returned.attempts);
        if let RedeliveryDecision::DeadLetter | RedeliveryDecision::Error = next {
            self.count(|counts| {
                counts.spent += 1;
                counts.rejected += u64::from(returned.wish == Wish::Reject);
            });
        }
        match next {
            RedeliveryDecision::Redeliver(pause) => context.events.due(Redelivery::Again(returned), now + pause),
            RedeliveryDecision::DeadLetter => context.dead_letter_queue.push(returned),
            RedeliveryDecision::Error => context.events.due(Redelivery::Spent(returned, None), now),
        }
        next
    }

    /// Postpones a redelivery while the lease is in doubt.
    pub(crate) fn keep_for_later(&self, redelivery: Redelivery, now: Instant) {
        self.context.events.due(redelivery, now + Duration::from_secs(1));
    }

    /// Settles records. `then` runs under the same lock and learns how many were settled.
    fn settle<T>(&self, tickets: &[Ticket], then: impl FnOnce(&mut ShardInner, Settled) -> T) -> T {
        let max = self.context.settings.max_in_flight;
        let (result, freed) = self.write_and_wake(|inner| {
            let had_room = inner.tracker.has_room(max);
            let mut settled = Settled { count: 0, any_stale: false };
            for ticket in tickets {
                if inner.tracker.settle(*ticket) {
                    settled.count += 1;
                } else {
                    settled.any_stale = true;
                }
            }
            (then(inner, settled), !had_room && inner.tracker.has_room(max))
        });
        if freed {
            self.room.notify_waiters();
        }
        result
    }
}

impl PendingCommit {
    /// Waits until the store has the checkpoint, or keeps failing, or the lease term is over.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the renewer writes the checkpoint even if this future is dropped.
    pub(crate) async fn outcome(self, shard: &Shard) -> Result<Commit, KinesisError> {
        let (progress, upto, before) = match self {
            Self::Done(commit) => return Ok(commit),
            Self::Waiting { progress, upto, failures } => (progress, upto, failures),
        };
        let is_decided = |seen: &StoredProgress| seen.upto >= upto || seen.failures - before >= FAILURES_BEFORE_ERROR;
        // None means that the lease term is over: its final progress counts.
        let _ = progress.wait_for(|seen| is_decided(seen).then_some(())).await;
        let seen = progress.read(Clone::clone);
        if seen.upto >= upto {
            return Ok(Commit::Stored);
        }
        match &seen.error {
            Some(source) if is_decided(&seen) => Err(KinesisError::Store {
                stream: Arc::clone(&shard.context.stream),
                shard: Some(shard.id.clone()),
                action: "storing a checkpoint",
                source: source.clone(),
            }),
            _ => Ok(Commit::Superseded),
        }
    }
}
