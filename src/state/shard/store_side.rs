//! The books as the coordinator and the keeper see them: leases come, are paid for, and go.

use std::{
    mem,
    sync::{Arc, atomic::Ordering},
};

use tokio::{
    sync::futures::Notified,
    time::{Duration, Instant},
};

use super::{Began, LeaseTerm, Opening, Said, Shard, ShardRecord, StoreOp};
use crate::{
    config::position::{Checkpoint, Origin},
    error::service::StoreError,
    kinesis::ListedShard,
    lease::{Held, Lease},
    state::stats::{ShardState, ShardStats},
    types::close_report::OpenShard,
};

/// How long a shard may stand at its bound before a warning names its oldest open record.
const FULL_WARNING: Duration = Duration::from_secs(30);

/// A store call that the keeper makes, under the lease to which it belongs.
#[derive(Clone, Debug)]
pub(crate) struct InFlightOp {
    pub(crate) store_op: StoreOp,
    pub(crate) held: Held,
    /// To which the duty belongs.
    generation: u64,
}

impl Shard {
    /// Opens the books under a lease that was taken by a call sent at `sent_at`.
    pub(crate) fn begin(&self, lease: &Lease, held: Held, sent_at: Instant) -> Opening {
        let epoch = held.epoch;
        let term = LeaseTerm::new(held, sent_at, lease.checkpoint.is_some(), &self.context.settings);
        let stop = term.stop.clone();
        self.write(|state| {
            state.term = Some(term);
            state.gave_up = false;
            state.full = None;
            state.counts.checkpoint = lease.checkpoint.clone().map(|checkpoint| (checkpoint, sent_at));
            Opening { generation: state.tracker.begin(), epoch, stop }
        })
    }

    /// Closes the books: every delivery that is out is superseded from here on.
    pub(crate) fn retire(&self) {
        self.write(|state| {
            state.term = None;
            state.aside = None;
            state.tracker.begin();
        });
        self.drop_waiting();
        self.room.notify_waiters();
    }

    /// Stops reading; what is in the user's hands may be settled until then.
    pub(crate) fn leave(&self, until: Instant) {
        self.write_and_ring(|state| {
            if let Some(term) = &mut state.term {
                term.leave(until);
                state.aside = None;
            }
        });
        self.drop_waiting();
        self.room.notify_waiters();
    }

    /// Hands the shard over to the instance that asked for it, if this is still the lease that it saw. What is in the user's
    /// hands may be settled until then. False if there is nothing to begin.
    pub(crate) fn hand_over(&self, epoch: u64, until: Instant) -> bool {
        let begins = self.write_and_ring(|state| {
            let opened = state.began.as_ref().and_then(|began| began.origin.as_checkpoint());
            let asked = state.term.as_mut().filter(|term| term.held.epoch == epoch && !term.is_leaving());
            let Some(term) = asked else { return false };
            term.hand_over(until, opened);
            state.aside = None;
            true
        });
        if begins {
            self.drop_waiting();
            self.room.notify_waiters();
        }
        begins
    }

    /// Enters whether the shard takes no more records by its listing, and who holds it by its row.
    pub(crate) fn seen(&self, closed: bool, row: Option<&Lease>) {
        let holder = row.and_then(|row| Some((row.owner.clone()?, row.epoch)));
        self.write(|state| {
            state.said.closed = closed;
            state.elsewhere = holder.filter(|(owner, _)| *owner != self.context.owner);
        });
    }

    /// Until when the lease of this epoch is held, if nothing renews it. None if it is over.
    pub(crate) fn held_until(&self, epoch: u64) -> Option<Instant> {
        self.write(|state| {
            let term = state.term.as_ref().filter(|term| term.held.epoch == epoch)?;
            Some(term.deadline())
        })
    }

    /// Told when that may have changed.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.room.notified()
    }

    /// Whether it counts as this instance's share.
    pub(crate) fn is_share(&self) -> bool {
        self.write(|state| state.term.as_ref().is_some_and(LeaseTerm::is_open))
    }

    /// Whether it takes up room among the leases of this instance.
    pub(crate) fn is_working(&self) -> bool {
        self.write(|state| state.term.as_ref().is_some_and(LeaseTerm::is_working))
    }

    /// Whether the shard is held by this subscription, also while it is on its way out.
    pub(crate) fn is_held(&self) -> bool {
        self.write(|state| state.term.is_some())
    }

    /// Whether its last reader gave up.
    pub(crate) fn was_given_up(&self) -> bool {
        self.write(|state| state.gave_up)
    }

    /// Notes a listing: the first one after the lease of a shard that was given up makes it one like any other again. Tells
    /// whether it did.
    pub(crate) fn was_listed(&self) -> bool {
        self.write(|state| state.term.is_none() && mem::take(&mut state.gave_up))
    }

    /// Whether this subscription read the shard to its end and stored that.
    pub(crate) fn ended_here(&self) -> bool {
        self.write(|state| state.ended_here)
    }

    /// Whether the shard was opened before in this subscription.
    pub(crate) fn has_begun(&self) -> bool {
        self.write(|state| state.began.is_some())
    }

    /// The children of a shard that this subscription read to its end, as far as its last page told them.
    pub(crate) fn children(&self) -> Vec<ListedShard> {
        self.write(|state| if state.ended_here { mem::take(&mut state.children) } else { Vec::new() })
    }

    /// Whether the shard is held and its last page was read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.write(|state| state.term.as_ref().is_some_and(LeaseTerm::is_at_end))
    }

    /// Whether the shard is held and nothing more of it is read.
    pub(crate) fn is_at_tip(&self) -> bool {
        self.write(|state| state.term.as_ref().is_some_and(LeaseTerm::is_at_tip))
    }

    /// Whether the service said that there is no such shard.
    pub(crate) fn is_denied(&self) -> bool {
        self.write(|state| state.said.denied)
    }

    /// Starts from nothing: the shard is that of another stream, of the same name.
    pub(crate) fn reset(&self) {
        self.retire();
        self.write(|state| {
            (state.began, state.children) = (None, Vec::new());
            (state.ended_here, state.gave_up, state.said) = (false, false, Said::default());
        });
    }

    /// Whether the shard is being read under a lease that is to stay.
    pub(crate) fn can_move(&self) -> bool {
        self.write(|state| state.term.as_ref().is_some_and(LeaseTerm::can_move))
    }

    /// Whether this instance reads or has read the shard, and it is not another one's by now.
    pub(crate) fn is_own(&self) -> bool {
        self.write(|state| match &state.term {
            Some(term) => !term.is_handed_over(),
            None => state.elsewhere.is_none(),
        })
    }

    /// Begins a new generation at another place, under the same lease. None if the shard can no longer be moved.
    pub(crate) fn seek(&self, origin: &Origin) -> Option<Opening> {
        let opening = self.write(|state| {
            let term = state.term.as_mut().filter(|term| term.can_move())?;
            term.seek();
            let (epoch, stop) = (term.held.epoch, term.stop.clone());
            let over = state.counts.checkpoint.as_ref().map(|(checkpoint, _)| checkpoint.clone());
            state.began = Some(Began { origin: origin.clone(), over, moved: false });
            (state.aside, state.full, state.ended_here) = (None, None, false);
            state.children.clear();
            Some(Opening { generation: state.tracker.begin(), epoch, stop })
        });
        if opening.is_some() {
            self.drop_waiting();
            self.room.notify_waiters();
        }
        opening
    }

    /// Begins a new generation that nothing is read in: the shard is let go, and opened anew later, as if for the first
    /// time. One that is on its way to another instance stays on it.
    pub(crate) fn forget(&self) {
        self.write_and_ring(|state| {
            if let Some(term) = &mut state.term {
                if term.is_handed_over() {
                    return;
                }
                term.seek();
                term.leave(Instant::now());
            }
            state.tracker.begin();
            (state.began, state.aside) = (None, None);
            (state.ended_here, state.gave_up) = (false, false);
            state.children.clear();
        });
        self.drop_waiting();
        self.room.notify_waiters();
    }

    /// Remembers where the shard was opened, if it is the first time.
    pub(crate) fn begins_at(&self, origin: Origin) {
        self.write(|state| {
            let over = state.counts.checkpoint.as_ref().map(|(checkpoint, _)| checkpoint.clone());
            state.began.get_or_insert(Began { origin, over, moved: false });
        });
    }

    /// Where the shard was opened first, if its row, which holds this checkpoint, knows of nothing that came of it.
    pub(crate) fn begins_again_at(&self, checkpoint: Option<&Checkpoint>) -> Option<Origin> {
        self.write(|state| {
            let began = state.began.as_ref()?;
            let untouched = checkpoint.is_none() || !began.moved && began.over.as_ref() == checkpoint;
            untouched.then(|| began.origin.clone())
        })
    }

    /// What is to be done now, entered as begun.
    pub(crate) fn op(&self, now: Instant) -> Option<InFlightOp> {
        self.write(|state| {
            let term = state.term.as_mut()?;
            let store_op = term.store_op(&state.tracker, now, &self.context.settings)?;
            term.begun();
            Some(InFlightOp { store_op, held: term.held.clone(), generation: state.tracker.generation() })
        })
    }

    /// When this shard must be looked at again, apart from the keeper's rounds.
    pub(crate) fn look_again_at(&self) -> Option<Instant> {
        let interval = self.context.settings.checkpoint_interval;
        self.write(|state| state.term.as_ref()?.look_again_at(&state.tracker, interval))
    }

    /// Enters that an errand was applied. False if its lease is over.
    pub(crate) fn applied(&self, op: &InFlightOp, sent_at: Instant) -> bool {
        let current = self.write_and_ring(|state| {
            let Some(term) = state.term.as_mut().filter(|term| term.held == op.held) else { return false };
            let is_current = op.generation == state.tracker.generation();
            term.applied(&op.store_op, is_current, sent_at, &self.context.settings);
            state.ended_here |= is_current && op.store_op.ends_shard();
            if let StoreOp::Save(checkpoint, _) = &op.store_op {
                state.counts.checkpoint = Some((checkpoint.clone(), sent_at));
                match &mut state.began {
                    Some(began) if is_current => began.moved = true,
                    Some(began) => began.over = Some(checkpoint.clone()),
                    None => {}
                }
            }
            true
        });
        self.room.notify_waiters();
        current
    }

    /// Enters that an errand failed or that its outcome is unknown. False if its lease is over.
    pub(crate) fn failed(&self, op: &InFlightOp, error: &StoreError, now: Instant) -> bool {
        self.write(|state| {
            let Some(term) = state.term.as_mut().filter(|term| term.held == op.held) else { return false };
            term.failed(&op.store_op, error, now);
            true
        })
    }

    /// Whether this is still the lease under which the shard is held.
    pub(crate) fn holds(&self, held: &Held) -> bool {
        self.write(|state| state.term.as_ref().is_some_and(|term| term.held == *held))
    }

    /// What is unsettled.
    pub(crate) fn open_deliveries(&self) -> Option<OpenShard> {
        self.write(|state| {
            let (oldest, _) = state.tracker.oldest()?;
            Some(OpenShard { shard: self.id.clone(), deliveries: state.tracker.open(), oldest: oldest.clone() })
        })
    }

    /// Names the oldest open record of a shard that has stood at its bound for long (A5).
    pub(crate) fn warn_if_full(&self, now: Instant) {
        let warning = self.write(|state| {
            if state.tracker.has_room(self.context.settings.max_in_flight) {
                state.full = None;
                return None;
            }
            let (since, said) = state.full.get_or_insert((now, false));
            if *said || now < *since + FULL_WARNING {
                return None;
            }
            *said = true;
            let (oldest, since) = state.tracker.oldest()?;
            Some((oldest.clone(), now - since, state.tracker.open()))
        });
        if let Some((oldest, age, open)) = warning {
            tracing::warn!(
                stream = %self.context.stream, shard = %self.id, sequence_number = %oldest, ?age, open,
                "the shard stands still: its bound of unsettled deliveries is reached, and this one has been open longest"
            );
        }
    }

    /// A snapshot for [`SubscriptionStats`](crate::SubscriptionStats).
    pub(crate) fn stats(&self) -> ShardStats {
        let now = Instant::now();
        self.write(|state| ShardStats {
            shard: self.id.clone(),
            state: state.describe(),
            owner: state.holder().map(|(owner, _)| Arc::clone(owner)),
            epoch: state.holder().map(|(_, epoch)| epoch),
            behind: state.counts.behind,
            bytes_held: self.bytes_held.load(Ordering::Relaxed),
            in_flight: state.tracker.open(),
            oldest: state.tracker.oldest().map(|(number, since)| (number.clone(), now - since)),
            checkpoint: state.counts.checkpoint.as_ref().map(|(at, since)| (at.clone(), now - *since)),
            reads: state.counts.reads,
            throttles: state.counts.throttles,
            redeliveries: state.counts.redeliveries,
            spent: state.counts.spent,
            dead_letters: state.counts.dead_letters,
            last_error: state.counts.last_error.clone(),
        })
    }
}

impl ShardRecord {
    fn describe(&self) -> ShardState {
        match &self.term {
            Some(term) if term.is_leaving() => ShardState::Draining,
            Some(term) if term.is_at_end() => ShardState::Ending,
            Some(term) if term.is_at_tip() => ShardState::AtTip,
            Some(_) => ShardState::Reading,
            None if matches!(self.counts.checkpoint, Some((Checkpoint::ShardEnd, _))) => ShardState::Ended,
            None if self.elsewhere.is_some() => ShardState::Elsewhere,
            None => ShardState::Released,
        }
    }

    /// Who holds the shard and under which epoch, as far as is known here.
    fn holder(&self) -> Option<(&Arc<str>, u64)> {
        match &self.term {
            Some(term) => Some((&term.held.owner, term.held.epoch)),
            None => self.elsewhere.as_ref().map(|(owner, epoch)| (owner, *epoch)),
        }
    }
}
