//! One holding of a lease, from the take to its end: pure, with the time passed in.
//!
//! **What the store is owed next is a pure decision on this state;** the renewer carries it out.
//!
//! **A lease in doubt pauses its shard.** If renewals fail for a whole time to live, the rest of the page is set aside.
//! When the store works again and no other instance took the shard, reading continues where it stopped, under the same
//! epoch.

use std::{mem, time::Duration};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    config::{position::Checkpoint, settings::Settings},
    error::service::{StoreError, StoreErrorKind},
    lease::Held,
    state::{
        shard::{
            reading_state::{Reading, TermView},
            store_op::{StoreOp, StoredProgress},
        },
        tracker::Tracker,
    },
    util::{backoff::doubled, clock::BothClocks, watched::Watched},
};

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// A call that is due this soon is made now, so that the renewer wakes less often.
pub(crate) const GRAIN: Duration = Duration::from_millis(20);

/// The place where the shard was opened. The row must hold it before the first record is delivered (R13), and before
/// the shard is handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OpeningCheckpoint {
    /// No record was read yet.
    Missing,
    Wanted(Checkpoint),
    Stored,
}

/// The place where reading went on after its position was lost.
#[derive(Clone, Debug)]
struct Restart {
    place: Checkpoint,
    /// Records below this offset were read before. A checkpoint at one of them would bring the lost position back.
    upto: u64,
    is_stored: bool,
}

/// When to retry after failed calls.
#[derive(Clone, Copy, Debug)]
struct Retry {
    at: Instant,
    /// Failures in a row.
    failures: u32,
    /// The last failed call was to store a checkpoint.
    saves: bool,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct LeaseTerm {
    pub(crate) held: Held,
    /// Cancelled to end the reader and its pages.
    pub(crate) stop: CancellationToken,
    progress: Watched<StoredProgress>,
    reading: Reading,
    /// Once set, nothing more is delivered, and the lease is released at this time at the latest.
    leave_at: Option<Instant>,
    /// Another instance asked for the shard, and gets it.
    is_handed_over: bool,
    /// Records that are read and not delivered.
    unread: usize,
    opening: OpeningCheckpoint,
    restart: Option<Restart>,
    /// The stored checkpoint covers every record below this offset.
    stored: u64,
    /// A commit waits until every record below this offset is covered.
    wanted: u64,
    saved_at: Instant,
    /// From then on another instance may hold the shard: the sending time of the last successful write plus the time to
    /// live (E3).
    deadline: Instant,
    renew_at: Instant,
    retry: Option<Retry>,
    /// A call is under way.
    is_busy: bool,
    /// The host was suspended since the call under way was sent.
    suspended_in_call: bool,
    /// When the term last checked whether the host was suspended.
    clocks: BothClocks,
}

impl LeaseTerm {
    /// A lease that a call sent at `sent_at` has just taken. `has_checkpoint`: its row holds a checkpoint.
    pub(crate) fn new(held: Held, sent_at: Instant, has_checkpoint: bool, settings: &Settings) -> Self {
        Self {
            held,
            stop: CancellationToken::new(),
            progress: Watched::new(StoredProgress { has_checkpoint, ..StoredProgress::default() }),
            reading: Reading::Running,
            leave_at: None,
            is_handed_over: false,
            unread: 0,
            opening: if has_checkpoint { OpeningCheckpoint::Stored } else { OpeningCheckpoint::Missing },
            restart: None,
            stored: 0,
            wanted: 0,
            saved_at: sent_at,
            deadline: sent_at + settings.lease_ttl,
            renew_at: sent_at + settings.renew_interval,
            retry: None,
            is_busy: false,
            suspended_in_call: false,
            clocks: BothClocks::now(),
        }
    }

    /// Counts the time for which the host was suspended since the last check: other instances have seen it pass (E3).
    /// Returns whether there was any.
    pub(crate) fn notice_suspension(&mut self, clocks: BothClocks) -> bool {
        let gap = clocks.suspended_since(mem::replace(&mut self.clocks, clocks));
        if gap.is_zero() {
            return false;
        }
        let moved = |at: Instant| at.checked_sub(gap).unwrap_or(clocks.monotonic());
        (self.deadline, self.renew_at) = (moved(self.deadline), moved(self.renew_at));
        self.suspended_in_call = self.is_busy;
        tracing::warn!(?gap, "the host was suspended, or its wall clock was set forward");
        true
    }

    /// Moves the first renewal forward by this part of the interval, so that leases taken together are renewed one
    /// after the other.
    pub(crate) fn renew_earlier(&mut self, part: f64, settings: &Settings) {
        self.renew_at -= settings.renew_interval.mul_f64(part);
    }

    /// When a renewal or another bounded call that is due can wait no longer. None if that time has come.
    pub(crate) fn bounded_call_waits_until(&self, now: Instant, settings: &Settings) -> Option<Instant> {
        Some(self.renew_at + settings.renew_interval / 2).filter(|until| now < *until)
    }

    /// Whether records may be delivered now.
    pub(crate) fn is_valid(&self, now: Instant) -> bool {
        now < self.deadline && self.leave_at.is_none()
    }

    pub(crate) fn progress(&self) -> Watched<StoredProgress> {
        self.progress.clone()
    }

    pub(crate) fn fetched(&mut self, records: usize) {
        self.unread += records;
    }

    pub(crate) fn handed_out(&mut self) {
        self.unread = self.unread.saturating_sub(1);
    }

    /// Notes the end of the shard. Has no effect once the term is leaving, which has discarded the undelivered records.
    pub(crate) fn at_end(&mut self) {
        if self.leave_at.is_none() {
            self.reading = Reading::AtEnd;
        }
    }

    /// Notes that reading stops at the tip.
    pub(crate) fn at_tip(&mut self) {
        if self.leave_at.is_none() {
            self.reading = Reading::AtTip;
        }
    }

    /// Asks for this place to be stored as the place of opening, unless the row holds a checkpoint.
    pub(crate) fn want_opening(&mut self, place: Checkpoint) {
        if self.opening == OpeningCheckpoint::Missing {
            self.opening = OpeningCheckpoint::Wanted(place);
        }
    }

    /// Asks for this place to be stored instead of a position that is lost, and of each record read before.
    /// `handed_out` records were delivered.
    pub(crate) fn restart_at(&mut self, place: Checkpoint, handed_out: u64) {
        let upto = handed_out + u64::try_from(self.unread).unwrap_or(u64::MAX);
        self.restart = Some(Restart { place, upto, is_stored: false });
    }

    /// Asks for a checkpoint at once that covers every record below this offset.
    pub(crate) fn want(&mut self, upto: u64) {
        self.wanted = self.wanted.max(upto);
    }

    /// Stops delivering and discards the undelivered records. The lease is released at `until`, or earlier once the
    /// user holds no delivery.
    pub(crate) fn leave(&mut self, until: Instant) {
        self.stop.cancel();
        if self.unread > 0 && self.reading == Reading::AtEnd {
            self.reading = Reading::Running;
        }
        self.unread = 0;
        if let (OpeningCheckpoint::Wanted(_), false) = (&self.opening, self.is_handed_over) {
            self.opening = OpeningCheckpoint::Missing;
        }
        self.leave_at = Some(self.leave_at.map_or(until, |at| at.min(until)));
    }

    /// Leaves for another instance, which continues exactly here. Even if no record was delivered or settled yet, it
    /// opens the shard where this instance did, at `opened`. `overrides`: that place replaces a stored checkpoint.
    pub(crate) fn hand_over(&mut self, until: Instant, opened: Option<Checkpoint>, overrides: bool) {
        self.is_handed_over = true;
        if overrides && self.stored == 0 {
            self.opening = OpeningCheckpoint::Missing;
        }
        if let Some(place) = opened {
            self.want_opening(place);
        }
        self.leave(until);
    }

    /// Starts over at another place of the shard, under the same lease. A write under way for the previous generation
    /// may still take effect; its waiters learn that their commit is superseded.
    pub(crate) fn seek(&mut self) {
        self.stop.cancel();
        self.stop = CancellationToken::new();
        if let OpeningCheckpoint::Wanted(_) = self.opening {
            self.opening = OpeningCheckpoint::Missing;
        }
        self.progress.close();
        self.progress = Watched::new(StoredProgress {
            has_checkpoint: self.opening == OpeningCheckpoint::Stored,
            ..StoredProgress::default()
        });
        self.reading = Reading::Running;
        self.restart = None;
        (self.unread, self.stored, self.wanted) = (0, 0, 0);
    }

    /// The next store call for this lease, if one is due.
    pub(crate) fn store_op(&self, tracker: &Tracker, now: Instant, settings: &Settings) -> Option<StoreOp> {
        if self.is_busy || self.retry.as_ref().is_some_and(|retry| now < retry.at) {
            return None;
        }
        let leaves = self.is_due_to_leave(tracker, now);
        // A checkpoint that cannot be written must not cost the lease. Conversely, a stored checkpoint renews the
        // lease.
        if !leaves && self.retry.as_ref().is_some_and(|retry| retry.saves) && now >= self.renew_at {
            return Some(StoreOp::Renew);
        }
        if self.reading == Reading::EndStored {
            return Some(StoreOp::Release);
        }
        // Before the opening, which a hand-over may want meanwhile: the row may hold the end, if a response was lost.
        if self.is_drained(tracker) {
            return Some(StoreOp::Save(Checkpoint::ShardEnd, tracker.handed_out()));
        }
        if let OpeningCheckpoint::Wanted(place) = &self.opening {
            return Some(StoreOp::Save(place.clone(), 0));
        }
        if let Some(restart) = self.unsaved_restart(tracker) {
            return Some(StoreOp::Save(restart.place.clone(), 0));
        }
        let soon = now + GRAIN;
        let unsaved = tracker.watermark().filter(|mark| mark.upto > self.stored);
        if let Some(mark) = unsaved
            && (leaves || self.wanted > self.stored || soon >= self.saved_at + settings.checkpoint_interval)
        {
            let restart = self.restart.as_ref().filter(|restart| mark.upto <= restart.upto);
            let place = restart.map_or_else(|| Checkpoint::After(mark.number.clone()), |restart| restart.place.clone());
            return Some(StoreOp::Save(place, mark.upto));
        }
        if leaves {
            return Some(StoreOp::Release);
        }
        (soon >= self.renew_at).then_some(StoreOp::Renew)
    }

    /// Whether the renewer has to act at once and not only in its next round.
    pub(crate) fn is_urgent(&self, tracker: &Tracker) -> bool {
        self.is_drained(tracker)
            || self.leave_at.is_some() && tracker.held() == 0
            || self.wanted > self.stored && tracker.watermark().is_some_and(|mark| mark.upto > self.stored)
            || matches!(self.opening, OpeningCheckpoint::Wanted(_))
            || self.unsaved_restart(tracker).is_some()
    }

    /// When a store call is due next, more precisely than the renewer's rounds: when a failed call may be retried, or
    /// else when the next call is due.
    pub(crate) fn next_op_at(&self, tracker: &Tracker, checkpoint_interval: Duration) -> Option<Instant> {
        if self.is_busy {
            return None;
        }
        let unsaved = tracker.watermark().filter(|mark| mark.upto > self.stored);
        let due = || [self.leave_at, unsaved.map(|_| self.saved_at + checkpoint_interval), Some(self.renew_at)];
        self.retry.as_ref().map(|retry| retry.at).or_else(|| due().into_iter().flatten().min())
    }

    /// Notes that the call was sent: no other call is due until its result is known.
    pub(crate) fn op_sent(&mut self) {
        self.is_busy = true;
        self.suspended_in_call = false;
    }

    /// Notes that the call, sent at `sent_at`, was applied. It may belong to a generation that is over by now.
    pub(crate) fn applied(&mut self, store_op: &StoreOp, is_current: bool, sent_at: Instant, settings: &Settings) {
        self.is_busy = false;
        self.retry = None;
        if !self.suspended_in_call {
            self.deadline = sent_at + settings.lease_ttl;
        }
        // A renewal that was made a little early does not move the next one.
        let due_at = if *store_op == StoreOp::Renew { self.renew_at.max(sent_at) } else { sent_at };
        self.renew_at = if self.suspended_in_call { sent_at } else { due_at + settings.renew_interval };
        let StoreOp::Save(checkpoint, upto) = store_op else { return };
        self.saved_at = sent_at;
        self.opening = OpeningCheckpoint::Stored;
        if let Some(restart) = &mut self.restart {
            restart.is_stored |= is_current && *checkpoint == restart.place;
        }
        if is_current {
            self.stored = self.stored.max(*upto);
            if *checkpoint == Checkpoint::ShardEnd {
                self.reading = Reading::EndStored;
            }
        }
        self.progress.change(|progress| {
            progress.has_checkpoint = true;
            progress.upto = self.stored;
            progress.error = None;
        });
    }

    /// Notes that the call failed or that its result is unknown: it is retried after a pause that doubles. On a row
    /// that makes no sense the pause doubles up to a time to live, since only a person can correct the row.
    pub(crate) fn failed(&mut self, store_op: &StoreOp, error: &StoreError, now: Instant, lease_ttl: Duration) {
        self.is_busy = false;
        let failures = self.retry.as_ref().map_or(0, |retry| retry.failures).saturating_add(1);
        let saves = matches!(store_op, StoreOp::Save(..));
        let longest = if error.kind() == StoreErrorKind::UnreadableRow { lease_ttl } else { LONGEST_RETRY };
        self.retry = Some(Retry { at: now + doubled(FIRST_RETRY, longest, failures), failures, saves });
        if saves {
            self.progress.change(|progress| {
                progress.failures += 1;
                progress.error = Some(error.clone());
            });
        }
    }

    pub(crate) fn is_leaving(&self) -> bool {
        self.leave_at.is_some()
    }

    pub(crate) fn is_handed_over(&self) -> bool {
        self.is_handed_over
    }

    pub(super) fn view(&self) -> TermView {
        TermView {
            epoch: self.held.epoch,
            deadline: self.deadline,
            reading: self.reading,
            is_leaving: self.is_leaving(),
            is_handed_over: self.is_handed_over,
        }
    }

    /// The place to store at once because the position before it is lost.
    fn unsaved_restart(&self, tracker: &Tracker) -> Option<&Restart> {
        let is_past = |upto| tracker.watermark().is_some_and(|mark| mark.upto > upto);
        self.restart.as_ref().filter(|restart| !restart.is_stored && !is_past(restart.upto))
    }

    fn is_drained(&self, tracker: &Tracker) -> bool {
        self.reading == Reading::AtEnd && self.unread == 0 && tracker.open() == 0
    }

    fn is_due_to_leave(&self, tracker: &Tracker, now: Instant) -> bool {
        self.leave_at.is_some_and(|at| tracker.held() == 0 || now >= at)
    }
}

impl Drop for LeaseTerm {
    fn drop(&mut self) {
        self.stop.cancel();
        self.progress.close();
    }
}
