//! The books as the subscription and its deliveries see them: what goes out and how it comes back.

use std::sync::Arc;

use tokio::time::{Duration, Instant};

use super::{LeaseTerm, Shard, ShardRecord, TermProgress};
use crate::{
    config::redelivery::Next,
    error::KinesisError,
    state::{
        events::{Redelivery, Returned},
        settlement::Settlement,
        tracker::Ticket,
    },
    types::{commit::Commit, id::SequenceNumber},
    util::watched::Watched,
};

/// Store writes that may fail, one after the other, before a waiting commit is told. With the pauses between them that
/// is about a second and a half, or half a minute where each of them, and the renewals between them, have to time out.
const FAILURES_BEFORE_ERROR: u32 = 5;

/// Whether a record may go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandOut {
    /// It is entered under this ticket and the epoch of the lease.
    Out(Ticket, u64),
    /// Not now: the shard is at its bound, or its lease is in doubt.
    NotNow,
    /// Never: the opening of the shard to which it belongs is over.
    Over,
}

/// Where a record is that was taken out of somebody's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    /// It waits here for this.
    Here(Next),
    /// Its shard is being handed over or let go, or the subscription closes: it comes again with whoever has the shard next.
    Elsewhere,
    /// It no longer counts.
    Over,
}

/// A record that was settled to be covered by a stored checkpoint.
#[derive(Debug)]
pub(crate) enum Committing {
    /// There is nothing to wait for.
    Done(Commit),
    /// The keeper is asked for a write that covers everything below the offset.
    Waits { progress: Watched<TermProgress>, upto: u64, failures: u32 },
}

impl Shard {
    /// Enters the next record of a page.
    pub(crate) fn hand_out(&self, generation: u64, number: &SequenceNumber, now: Instant) -> HandOut {
        self.write(|state| {
            let ShardRecord { term: Some(term), tracker, full, .. } = state else { return HandOut::Over };
            if tracker.generation() != generation || term.is_leaving() {
                return HandOut::Over;
            }
            if !tracker.has_room(self.context.settings.max_in_flight) || !term.is_valid(now) {
                return HandOut::NotNow;
            }
            *full = None;
            term.handed_out();
            HandOut::Out(tracker.hand_out(number.clone(), now), term.held.epoch)
        })
    }

    /// Enters that a record goes out once more.
    pub(crate) fn hand_out_again(&self, ticket: Ticket, now: Instant) -> HandOut {
        let out = self.take_up(ticket, now);
        if let HandOut::Out(..) = out {
            self.count(|counts| counts.redeliveries += 1);
        }
        out
    }

    /// Enters that a record that was given back is in somebody's hands again: the user's, or those of the writer of dead
    /// letters. Bounds do not hold it back: it is among the open ones already.
    pub(crate) fn take_up(&self, ticket: Ticket, now: Instant) -> HandOut {
        self.write(|state| {
            let Some(term) = &state.term else { return HandOut::Over };
            let epoch = term.held.epoch;
            if term.is_leaving() {
                return HandOut::Over;
            }
            if !term.is_valid(now) {
                return HandOut::NotNow;
            }
            if !state.tracker.hand_out_again(ticket) {
                return HandOut::Over;
            }
            HandOut::Out(ticket, epoch)
        })
    }

    /// Settles records; the checkpoint goes out with the next write.
    pub(crate) fn ack(&self, tickets: &[Ticket]) {
        self.settle(tickets, |_, _| ());
    }

    /// Settles a record whose attempts are spent, once it is where such records go, and tells whoever waits for it.
    pub(crate) fn settle_spent(&self, ticket: Ticket, settlement: Option<Settlement>) {
        self.ack(&[ticket]);
        if let Some(settlement) = settlement {
            settlement.settled();
        }
    }

    /// Settles records and asks for one checkpoint that covers them.
    pub(crate) fn commit(&self, tickets: &[Ticket]) -> Committing {
        self.settle(tickets, |state, stale| {
            let Some(term) = state.term.as_mut().filter(|_| !stale) else {
                return Committing::Done(Commit::Superseded);
            };
            let Some(mark) = state.tracker.watermark() else { return Committing::Done(Commit::Deferred) };
            term.want(mark.upto);
            if !tickets.iter().all(|ticket| state.tracker.covers(*ticket)) {
                return Committing::Done(Commit::Deferred);
            }
            let progress = term.progress();
            let failures = progress.read(|progress| progress.failures);
            Committing::Waits { progress, upto: mark.upto, failures }
        })
    }

    /// Takes a record back from the user, to hand it out again after a pause, or to be rid of it if its attempts are spent.
    pub(crate) fn give_back(&self, returned: Returned) -> Back {
        self.put_down(returned, |returned| self.dispose(returned))
    }

    /// Takes a record out of somebody's hands, still unsettled. `wait` puts it where it waits, and says what for. A record that
    /// will not come again in this opening of its shard is dropped.
    pub(crate) fn put_down(&self, returned: Returned, wait: impl FnOnce(Returned) -> Next) -> Back {
        let ticket = returned.ticket;
        let (counts, leaves) = self.write_and_ring(|state| {
            let counts = state.tracker.give_back(ticket) && state.term.is_some();
            (counts, state.term.as_ref().is_some_and(LeaseTerm::is_leaving))
        });
        if !counts {
            return Back::Over;
        }
        if leaves || !self.context.lifecycle.is_running() {
            return Back::Elsewhere;
        }
        let next = wait(returned);
        // The opening may have come to its end, and what waited been dropped, just before.
        if self.write(|state| !state.goes_on(ticket.generation())) {
            self.drop_waiting();
        }
        Back::Here(next)
    }

    /// Whether settling this record, or giving it back, still changes anything.
    pub(crate) fn counts(&self, ticket: Ticket) -> bool {
        self.write(|state| state.term.is_some() && ticket.generation() == state.tracker.generation())
    }

    /// Drops what waits to come again, or to be a dead letter, and will not: its opening of the shard is over.
    pub(super) fn drop_waiting(&self) {
        let over = self.write(|state| {
            let generation = state.tracker.generation();
            if state.goes_on(generation) { generation.saturating_sub(1) } else { generation }
        });
        let is_over = |returned: &Returned| returned.shard == self.id && returned.ticket.generation() <= over;
        self.context.dead_letter_queue.forget(is_over);
        self.context.events.forget(is_over);
    }

    fn dispose(&self, returned: Returned) -> Next {
        let (context, now) = (&self.context, Instant::now());
        let next = context.settings.retries.next(returned.attempts);
        if let Next::DeadLetter | Next::Error = next {
            self.count(|counts| counts.spent += 1);
        }
        match next {
            Next::Again(pause) => context.events.due(Redelivery::Again(returned), now + pause),
            Next::DeadLetter => context.dead_letter_queue.push(returned),
            Next::Error => context.events.due(Redelivery::Spent(returned, None), now),
        }
        next
    }

    /// Keeps a record that was due while the lease is in doubt.
    pub(crate) fn keep_for_later(&self, due: Redelivery, now: Instant) {
        self.context.events.due(due, now + Duration::from_secs(1));
    }

    /// Settles records, and then does what depends on whether any of them was stale.
    fn settle<T>(&self, tickets: &[Ticket], then: impl FnOnce(&mut ShardRecord, bool) -> T) -> T {
        let max = self.context.settings.max_in_flight;
        let (result, freed) = self.write_and_ring(|state| {
            let had_room = state.tracker.has_room(max);
            let mut stale = false;
            for ticket in tickets {
                stale |= !state.tracker.settle(*ticket);
            }
            (then(state, stale), !had_room && state.tracker.has_room(max))
        });
        if freed {
            self.room.notify_waiters();
        }
        result
    }
}

impl Committing {
    /// Waits for the store.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the write goes out whether or not anyone waits.
    pub(crate) async fn outcome(self, shard: &Shard) -> Result<Commit, KinesisError> {
        let (progress, upto, before) = match self {
            Self::Done(commit) => return Ok(commit),
            Self::Waits { progress, upto, failures } => (progress, upto, failures),
        };
        let settled = |seen: &TermProgress| seen.upto >= upto || seen.failures - before >= FAILURES_BEFORE_ERROR;
        // Without an answer the tenure is over, and its last word counts.
        let _ = progress.wait_for(|seen| settled(seen).then_some(())).await;
        let seen = progress.read(Clone::clone);
        if seen.upto >= upto {
            return Ok(Commit::Stored);
        }
        match &seen.error {
            Some(source) if settled(&seen) => Err(KinesisError::Store {
                stream: Arc::clone(&shard.context.stream),
                shard: Some(shard.id.clone()),
                action: "storing a checkpoint",
                source: source.clone(),
            }),
            _ => Ok(Commit::Superseded),
        }
    }
}
