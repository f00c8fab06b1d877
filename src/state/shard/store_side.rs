//! The steps of the coordinator, which opens and closes the shard, and of the renewer, which makes its store calls.

use std::{
    mem,
    sync::{Arc, atomic::Ordering},
};

use tokio::{
    sync::futures::Notified,
    time::{Duration, Instant},
};

use crate::{
    config::position::{Checkpoint, Origin},
    error::service::StoreError,
    kinesis::ListedShard,
    lease::{Held, Lease},
    state::{
        shard::{
            inner::{FirstOpening, ServiceStatus, Shard, ShardInner, ShardOpening},
            lease_term::LeaseTerm,
            store_op::StoreOp,
        },
        stats::{ShardState, ShardStats},
    },
    types::close_report::OpenShard,
};

/// How long the bound may block a shard before a warning names its oldest unsettled record.
const FULL_WARNING: Duration = Duration::from_secs(30);

/// A store call that the renewer makes, with the lease under which it makes it.
#[derive(Clone, Debug)]
pub(crate) struct InFlightOp {
    pub(crate) store_op: StoreOp,
    pub(crate) held: Held,
    /// The generation for which the call was due.
    generation: u64,
    /// Few such calls are under way at once: a renewal, or a write for a lease that is being given up.
    pub(crate) is_bounded: bool,
}

/// What the renewer has to do for a shard now.
#[derive(Clone, Debug)]
pub(crate) enum NextOp {
    None,
    /// A bounded call is due and waits until fewer are under way, but no longer than this.
    WaitsUntil(Instant),
    Send(InFlightOp),
}

impl Shard {
    /// Begins a lease term, and with it a generation. The call that took the lease was sent at `sent_at`.
    /// `has_checkpoint`: the row had a checkpoint before.
    pub(crate) fn begin(&self, lease: &Lease, held: Held, has_checkpoint: bool, sent_at: Instant) -> ShardOpening {
        let epoch = held.epoch;
        let settings = &self.context.settings;
        let mut term = LeaseTerm::new(held, sent_at, has_checkpoint, settings);
        term.renew_earlier(self.context.next_renewal_phase(), settings);
        let stop = term.stop.clone();
        self.write(|inner| {
            inner.term = Some(term);
            inner.gave_up = false;
            inner.full = None;
            inner.counts.opened();
            inner.counts.checkpoint = lease.checkpoint.clone().map(|checkpoint| (checkpoint, sent_at));
            ShardOpening { generation: inner.tracker.begin(), epoch, stop }
        })
    }

    /// Ends the lease term: every unsettled delivery is superseded from now on.
    pub(crate) fn retire(&self) {
        self.write(|inner| {
            inner.term = None;
            inner.aside = None;
            inner.tracker.begin();
        });
        self.drop_waiting();
        self.room.notify_waiters();
    }

    /// Stops reading. Unsettled deliveries may be settled until then.
    pub(crate) fn leave(&self, until: Instant) {
        self.write_and_wake(|inner| {
            if let Some(term) = &mut inner.term {
                term.leave(until);
                inner.aside = None;
            }
        });
        self.drop_waiting();
        self.room.notify_waiters();
    }

    /// Begins to hand the shard over to the instance that asked for it, if the lease still has the epoch that it saw.
    /// Unsettled deliveries may be settled until then. False if the epoch differs or the shard is leaving already.
    pub(crate) fn hand_over(&self, epoch: u64, until: Instant) -> bool {
        let begins = self.write_and_wake(|inner| {
            let opened = inner.first_opening.as_ref().and_then(|first| first.origin.as_checkpoint());
            let overrides = inner.overrides_checkpoint();
            let asked = inner.term.as_mut().filter(|term| term.held.epoch == epoch && !term.is_leaving());
            let Some(term) = asked else { return false };
            term.hand_over(until, opened, overrides);
            inner.aside = None;
            true
        });
        if begins {
            self.drop_waiting();
            self.room.notify_waiters();
        }
        begins
    }

    /// Notes whether the shard is closed, according to its listing, and which instance holds it, according to its row.
    pub(crate) fn seen(&self, closed: bool, row: Option<&Lease>) {
        let holder = row.and_then(|row| Some((row.owner.clone()?, row.epoch)));
        self.write(|inner| {
            inner.service.is_closed = closed;
            inner.elsewhere = holder.filter(|(owner, _)| *owner != self.context.owner);
        });
    }

    /// Notified when the lease was renewed or is over.
    pub(crate) fn changed(&self) -> Notified<'_> {
        self.room.notified()
    }

    /// Notes a listing: after the first one, a shard whose reader gave up and whose lease is released may be taken
    /// again. Returns whether this listing allowed it.
    pub(crate) fn clear_gave_up(&self) -> bool {
        self.write(|inner| inner.term.is_none() && mem::take(&mut inner.gave_up))
    }

    /// Takes the children that the last page named, if this subscription has stored the end of the shard.
    pub(crate) fn take_children(&self) -> Vec<ListedShard> {
        self.write(|inner| if inner.ended_here { mem::take(&mut inner.children) } else { Vec::new() })
    }

    /// Forgets everything: the stream was deleted and created again under the same name.
    pub(crate) fn reset(&self) {
        self.retire();
        self.write(|inner| {
            (inner.first_opening, inner.children) = (None, Vec::new());
            (inner.ended_here, inner.gave_up, inner.service) = (false, false, ServiceStatus::default());
        });
    }

    /// Begins a new generation at another place, under the same lease. None if the shard can no longer move.
    pub(crate) fn seek(&self, origin: &Origin) -> Option<ShardOpening> {
        let opening = self.write(|inner| {
            let term = inner.term.as_mut().filter(|term| term.view().can_move())?;
            term.seek();
            let (epoch, stop) = (term.held.epoch, term.stop.clone());
            inner.first_opening = Some(inner.opened_at(origin.clone()));
            (inner.aside, inner.full, inner.ended_here) = (None, None, false);
            inner.children.clear();
            inner.counts.opened();
            Some(ShardOpening { generation: inner.tracker.begin(), epoch, stop })
        });
        if opening.is_some() {
            self.drop_waiting();
            self.room.notify_waiters();
        }
        opening
    }

    /// Begins a new generation that reads nothing: the lease is released, and the shard is opened later as if for the
    /// first time. A hand-over under way continues.
    pub(crate) fn forget(&self) {
        self.write_and_wake(|inner| {
            if let Some(term) = &mut inner.term {
                if term.is_handed_over() {
                    return;
                }
                term.seek();
                term.leave(Instant::now());
            }
            inner.tracker.begin();
            (inner.first_opening, inner.aside) = (None, None);
            (inner.ended_here, inner.gave_up) = (false, false);
            inner.children.clear();
        });
        self.drop_waiting();
        self.room.notify_waiters();
    }

    /// Remembers where the shard was opened, if it is opened for the first time.
    pub(crate) fn set_first_opening(&self, origin: Origin) {
        self.write(|inner| {
            if inner.first_opening.is_none() {
                inner.first_opening = Some(inner.opened_at(origin));
            }
        });
    }

    /// Where the shard was opened first, if this checkpoint of its row shows no progress since.
    pub(crate) fn reopens_at(&self, checkpoint: Option<&Checkpoint>) -> Option<Origin> {
        self.write(|inner| {
            let first = inner.first_opening.as_ref()?;
            let is_unchanged = || !first.has_progress && first.checkpoint_before.as_ref() == checkpoint;
            (checkpoint.is_none() || is_unchanged()).then(|| first.origin.clone())
        })
    }

    /// The store call that is due now, noted as sent. With `is_busy`, a bounded call is sent only if it is late.
    pub(crate) fn next_op(&self, now: Instant, is_busy: bool) -> NextOp {
        let settings = &self.context.settings;
        self.write(|inner| {
            self.notice_suspension(inner, now);
            let Some(term) = inner.term.as_mut() else { return NextOp::None };
            let Some(store_op) = term.store_op(&inner.tracker, now, settings) else { return NextOp::None };
            let is_bounded = store_op == StoreOp::Renew || term.is_leaving();
            if is_bounded
                && is_busy
                && let Some(until) = term.bounded_call_waits_until(now, settings)
            {
                return NextOp::WaitsUntil(until);
            }
            term.op_sent();
            let generation = inner.tracker.generation();
            NextOp::Send(InFlightOp { store_op, held: term.held.clone(), generation, is_bounded })
        })
    }

    /// When a store call of this shard is due next, apart from the renewer's rounds.
    pub(crate) fn next_op_at(&self) -> Option<Instant> {
        let interval = self.context.settings.checkpoint_interval;
        self.write(|inner| inner.term.as_ref()?.next_op_at(&inner.tracker, interval))
    }

    /// Notes that a store call was applied. False if its lease term is over.
    pub(crate) fn applied(&self, op: &InFlightOp, sent_at: Instant) -> bool {
        let current = self.write_and_wake(|inner| {
            self.notice_suspension(inner, Instant::now());
            let Some(term) = inner.term.as_mut().filter(|term| term.held == op.held) else { return false };
            let is_current = op.generation == inner.tracker.generation();
            term.applied(&op.store_op, is_current, sent_at, &self.context.settings);
            inner.ended_here |= is_current && op.store_op.ends_shard();
            if let StoreOp::Save(checkpoint, _) = &op.store_op {
                inner.counts.checkpoint = Some((checkpoint.clone(), sent_at));
                match &mut inner.first_opening {
                    Some(first) if is_current => first.has_progress = true,
                    Some(first) => first.checkpoint_before = Some(checkpoint.clone()),
                    None => {}
                }
            }
            true
        });
        self.room.notify_waiters();
        current
    }

    /// Notes that a store call failed or that its result is unknown. False if its lease term is over.
    pub(crate) fn failed(&self, op: &InFlightOp, error: &StoreError, now: Instant) -> bool {
        self.write(|inner| {
            let Some(term) = inner.term.as_mut().filter(|term| term.held == op.held) else { return false };
            term.failed(&op.store_op, error, now, self.context.settings.lease_ttl);
            true
        })
    }

    /// Whether the shard is still held under this lease.
    pub(crate) fn holds(&self, held: &Held) -> bool {
        self.write(|inner| inner.term.as_ref().is_some_and(|term| term.held == *held))
    }

    /// Its unsettled deliveries. None if all are settled.
    pub(crate) fn open_deliveries(&self) -> Option<OpenShard> {
        self.write(|inner| {
            let (oldest, _) = inner.tracker.oldest()?;
            Some(OpenShard { shard: self.id.clone(), deliveries: inner.tracker.open(), oldest: oldest.clone() })
        })
    }

    /// Warns of a shard that its bound has blocked for long, and names its oldest unsettled record (A5).
    pub(crate) fn warn_if_full(&self, now: Instant) {
        let warning = self.write(|inner| {
            if inner.tracker.has_room(self.context.settings.max_in_flight) {
                inner.full = None;
                return None;
            }
            let (since, is_logged) = inner.full.get_or_insert((now, false));
            if *is_logged || now < *since + FULL_WARNING {
                return None;
            }
            *is_logged = true;
            let (oldest, since) = inner.tracker.oldest()?;
            Some((oldest.clone(), now - since, inner.tracker.open()))
        });
        if let Some((oldest, age, open)) = warning {
            tracing::warn!(
                stream = %self.context.stream, shard = %self.id, sequence_number = %oldest, ?age, open,
                "the shard stands still: it has reached its bound of unsettled deliveries, and this one is the oldest"
            );
        }
    }

    /// Warns of a shard whose reads have had no answer for long (R9).
    pub(crate) fn warn_if_unanswered(&self, now: Instant) {
        let lasted = self.write(|inner| {
            let is_read = inner.term.as_ref().is_some_and(|term| term.view().reading.is_working());
            if is_read { inner.counts.unanswered_warning(now) } else { None }
        });
        if let Some(lasted) = lasted {
            tracing::warn!(
                stream = %self.context.stream, shard = %self.id, ?lasted,
                "the reads of a shard have had no answer for long: they are throttled, hang or fail; `stats()` shows \
                 when one succeeds"
            );
        }
    }

    /// A snapshot for [`SubscriptionStats`](crate::SubscriptionStats).
    pub(crate) fn stats(&self) -> ShardStats {
        let now = Instant::now();
        self.write(|inner| ShardStats {
            shard: self.id.clone(),
            state: inner.state(),
            owner: inner.holder().map(|(owner, _)| Arc::clone(owner)),
            epoch: inner.holder().map(|(_, epoch)| epoch),
            behind: inner.term.as_ref().and_then(|_| inner.counts.behind(now, 2 * self.context.settings.poll_interval)),
            last_read: inner.counts.last_read(now),
            unanswered: inner.term.as_ref().and_then(|_| inner.counts.unanswered(now)),
            bytes_held: self.bytes_held.load(Ordering::Relaxed),
            in_flight: inner.tracker.open(),
            oldest: inner.tracker.oldest().map(|(number, since)| (number.clone(), now - since)),
            checkpoint: inner.counts.checkpoint.as_ref().map(|(at, since)| (at.clone(), now - *since)),
            records: inner.counts.records,
            bytes: inner.counts.bytes,
            acked: inner.counts.acked,
            given_back: inner.counts.given_back,
            reads: inner.counts.reads,
            throttles: inner.counts.throttles,
            expired_iterators: inner.counts.expired_iterators,
            redeliveries: inner.counts.redeliveries,
            spent: inner.counts.spent,
            rejected: inner.counts.rejected,
            dead_letters: inner.counts.dead_letters,
            too_old: inner.counts.too_old,
            batches: inner.counts.batches,
            halvings: inner.counts.halvings,
            last_error: inner.counts.last_error.as_ref().map(|(error, at)| (error.clone(), now - *at)),
        })
    }
}

impl ShardInner {
    /// Whether the row still holds the checkpoint from before a forced start or a seek, so that an instance that takes
    /// the shard would not continue the replay (R6).
    fn overrides_checkpoint(&self) -> bool {
        let stored = self.counts.checkpoint.as_ref().map(|(checkpoint, _)| checkpoint);
        self.first_opening.as_ref().is_some_and(|first| {
            let is_stored = stored.is_some_and(|stored| stored.origin() == first.origin);
            !first.has_progress && !is_stored && stored == first.checkpoint_before.as_ref()
        })
    }

    /// A first opening at this place.
    pub(super) fn opened_at(&self, origin: Origin) -> FirstOpening {
        let checkpoint_before = self.counts.checkpoint.as_ref().map(|(checkpoint, _)| checkpoint.clone());
        FirstOpening { origin, checkpoint_before, has_progress: false }
    }

    fn state(&self) -> ShardState {
        match self.term.as_ref().map(LeaseTerm::view) {
            Some(term) if term.is_leaving => ShardState::Draining,
            Some(term) if term.reading.is_at_end() => ShardState::Ending,
            Some(term) if term.reading.is_at_tip() => ShardState::AtTip,
            Some(_) => ShardState::Reading,
            None if matches!(self.counts.checkpoint, Some((Checkpoint::ShardEnd, _))) => ShardState::Ended,
            None if self.elsewhere.is_some() => ShardState::Elsewhere,
            None => ShardState::Released,
        }
    }

    /// The holder of the shard and its epoch, as far as this instance knows.
    fn holder(&self) -> Option<(&Arc<str>, u64)> {
        match &self.term {
            Some(term) => Some((&term.held.owner, term.held.epoch)),
            None => self.elsewhere.as_ref().map(|(owner, epoch)| (owner, *epoch)),
        }
    }
}
