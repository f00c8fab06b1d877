//! One holding of a lease, from the take to its end, and what the keeper owes it next: pure, with the time passed in.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{
    config::{position::Checkpoint, settings::Settings},
    error::service::StoreError,
    lease::Held,
    state::tracker::Tracker,
    util::watched::Watched,
};

const FIRST_RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(1);

/// What is due this soon is done now, so that shards whose leases were taken together are renewed together.
pub(crate) const GRAIN: Duration = Duration::from_millis(20);

/// What those who wait for the store see. Each tenure has a board of its own, so that a commit that is looked at
/// late still finds how its own tenure ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct TermProgress {
    /// The place where the shard was opened is in the row.
    pub(crate) marked: bool,
    /// Every record below this offset is covered by the stored checkpoint.
    pub(crate) upto: u64,
    /// Writes that failed, ever.
    pub(crate) failures: u32,
    /// Why the last one failed.
    pub(crate) error: Option<StoreError>,
}

/// How far reading is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Running,
    /// Everything was read that there was, and more is not asked for.
    AtTip,
    /// The service has no more records. Some may still wait to be handed out.
    AtEnd,
    /// `SHARD_END` is in the row.
    EndStored,
}

/// The place of opening, which the row must hold before the first record is handed out (R13), and before the shard is
/// handed over.
#[derive(Clone, Debug, PartialEq, Eq)]
enum OpeningMark {
    /// Nothing was read yet.
    Missing,
    Wanted(Checkpoint),
    Stored,
}

/// A call that failed, and what it makes of the next one.
#[derive(Clone, Copy, Debug)]
struct Retry {
    at: Instant,
    pause: Duration,
    /// It was to store a checkpoint.
    saves: bool,
}

/// One store call that the keeper is to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreOp {
    /// Store this checkpoint; it covers every record below the offset.
    Save(Checkpoint, u64),
    Release,
    Renew,
}

impl StoreOp {
    /// What the keeper is doing, in words.
    pub(crate) fn doing(&self) -> &'static str {
        match self {
            Self::Save(..) => "storing a checkpoint",
            Self::Release => "releasing the lease",
            Self::Renew => "renewing the lease",
        }
    }

    /// Whether it stores the end of a shard.
    pub(crate) fn ends_shard(&self) -> bool {
        matches!(self, Self::Save(Checkpoint::ShardEnd, _))
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct LeaseTerm {
    pub(crate) held: Held,
    /// Ends the reader and its pages.
    pub(crate) stop: CancellationToken,
    progress: Watched<TermProgress>,
    reading: Reading,
    /// Once set, the tenure is winding down: nothing is handed out, and at that moment the lease goes.
    leave_at: Option<Instant>,
    /// Another instance asked for the shard.
    handed_over: bool,
    /// Records that were read and not handed out.
    unread: usize,
    mark: OpeningMark,
    /// What the stored checkpoint covers.
    stored: u64,
    /// Somebody waits until this much is covered.
    wanted: u64,
    saved_at: Instant,
    /// Past it another instance may hold the shard: the sending time of the last good write plus the time to live (E3).
    deadline: Instant,
    renew_at: Instant,
    retry: Option<Retry>,
    busy: bool,
}

impl LeaseTerm {
    /// A lease that was just taken by a call sent at `sent_at`. `marked`: its row holds a checkpoint already.
    pub(crate) fn new(held: Held, sent_at: Instant, marked: bool, settings: &Settings) -> Self {
        Self {
            held,
            stop: CancellationToken::new(),
            progress: Watched::new(TermProgress { marked, ..TermProgress::default() }),
            reading: Reading::Running,
            leave_at: None,
            handed_over: false,
            unread: 0,
            mark: if marked { OpeningMark::Stored } else { OpeningMark::Missing },
            stored: 0,
            wanted: 0,
            saved_at: sent_at,
            deadline: sent_at + settings.lease_ttl,
            renew_at: sent_at + settings.renew_interval,
            retry: None,
            busy: false,
        }
    }

    /// Whether records may be handed out at this moment.
    pub(crate) fn is_valid(&self, now: Instant) -> bool {
        now < self.deadline && self.leave_at.is_none()
    }

    pub(crate) fn progress(&self) -> Watched<TermProgress> {
        self.progress.clone()
    }

    pub(crate) fn fetched(&mut self, records: usize) {
        self.unread += records;
    }

    pub(crate) fn handed_out(&mut self) {
        self.unread = self.unread.saturating_sub(1);
    }

    /// Comes too late once the tenure is winding down: what was read and not handed out is forgotten by then.
    pub(crate) fn at_end(&mut self) {
        if self.leave_at.is_none() {
            self.reading = Reading::AtEnd;
        }
    }

    /// Nothing more is read, though there may be more to come.
    pub(crate) fn at_tip(&mut self) {
        if self.leave_at.is_none() {
            self.reading = Reading::AtTip;
        }
    }

    /// Asks for this place to be stored as the one where the shard was opened.
    pub(crate) fn want_mark(&mut self, place: Checkpoint) {
        if self.mark == OpeningMark::Missing {
            self.mark = OpeningMark::Wanted(place);
        }
    }

    /// Asks for everything below this offset to be covered soon.
    pub(crate) fn want(&mut self, upto: u64) {
        self.wanted = self.wanted.max(upto);
    }

    /// Winds down: what was read and not handed out is forgotten, and the lease goes at `until` or when nothing is in
    /// the user's hands.
    pub(crate) fn leave(&mut self, until: Instant) {
        self.stop.cancel();
        if self.unread > 0 && self.reading == Reading::AtEnd {
            self.reading = Reading::Running;
        }
        self.unread = 0;
        if let (OpeningMark::Wanted(_), false) = (&self.mark, self.handed_over) {
            self.mark = OpeningMark::Missing;
        }
        self.leave_at = Some(self.leave_at.map_or(until, |at| at.min(until)));
    }

    /// Winds down for another instance, which is to go on exactly here: also where no record was handed out yet, it opens
    /// where this one did, at `opened`.
    pub(crate) fn hand_over(&mut self, until: Instant, opened: Option<Checkpoint>) {
        self.handed_over = true;
        if let Some(place) = opened {
            self.want_mark(place);
        }
        self.leave(until);
    }

    /// Begins anew at another place of the shard, under the same lease. What is under way for the generation before may
    /// still be written, and whoever waits for that is told that it no longer counts.
    pub(crate) fn seek(&mut self) {
        self.stop.cancel();
        self.stop = CancellationToken::new();
        if let OpeningMark::Wanted(_) = self.mark {
            self.mark = OpeningMark::Missing;
        }
        self.progress.close();
        self.progress =
            Watched::new(TermProgress { marked: self.mark == OpeningMark::Stored, ..TermProgress::default() });
        self.reading = Reading::Running;
        (self.unread, self.stored, self.wanted) = (0, 0, 0);
    }

    /// The next thing to be done for this lease, if it is due.
    pub(crate) fn store_op(&self, tracker: &Tracker, now: Instant, settings: &Settings) -> Option<StoreOp> {
        if self.busy || self.retry.as_ref().is_some_and(|retry| now < retry.at) {
            return None;
        }
        let leaves = self.leaves(tracker, now);
        // The lease does not go with a checkpoint that cannot be written. The other way round, a checkpoint renews.
        if !leaves && self.retry.as_ref().is_some_and(|retry| retry.saves) && now >= self.renew_at {
            return Some(StoreOp::Renew);
        }
        if self.reading == Reading::EndStored {
            return Some(StoreOp::Release);
        }
        // Before the mark, which a hand-over may want meanwhile: the row may hold the end already, if its answer was lost.
        if self.is_drained(tracker) {
            return Some(StoreOp::Save(Checkpoint::ShardEnd, tracker.handed_out()));
        }
        if let OpeningMark::Wanted(place) = &self.mark {
            return Some(StoreOp::Save(place.clone(), 0));
        }
        let soon = now + GRAIN;
        let unsaved = tracker.watermark().filter(|mark| mark.upto > self.stored);
        if let Some(mark) = unsaved
            && (leaves || self.wanted > self.stored || soon >= self.saved_at + settings.checkpoint_interval)
        {
            return Some(StoreOp::Save(Checkpoint::After(mark.number.clone()), mark.upto));
        }
        if leaves {
            return Some(StoreOp::Release);
        }
        (soon >= self.renew_at).then_some(StoreOp::Renew)
    }

    /// Whether the keeper has something to do at once, not only at its next round.
    pub(crate) fn is_urgent(&self, tracker: &Tracker) -> bool {
        self.is_drained(tracker)
            || self.leave_at.is_some() && tracker.in_hands() == 0
            || self.wanted > self.stored && tracker.watermark().is_some_and(|mark| mark.upto > self.stored)
            || matches!(self.mark, OpeningMark::Wanted(_))
    }

    /// When to look for a duty again, apart from the keeper's rounds, which are too coarse for it: when a failed call may be
    /// repeated, or else when the next thing is due.
    pub(crate) fn look_again_at(&self, tracker: &Tracker, checkpoint_interval: Duration) -> Option<Instant> {
        if self.busy {
            return None;
        }
        let unsaved = tracker.watermark().filter(|mark| mark.upto > self.stored);
        let due = || [self.leave_at, unsaved.map(|_| self.saved_at + checkpoint_interval), Some(self.renew_at)];
        self.retry.as_ref().map(|retry| retry.at).or_else(|| due().into_iter().flatten().min())
    }

    /// The call was sent; nothing else is until its outcome is known.
    pub(crate) fn begun(&mut self) {
        self.busy = true;
    }

    /// The call, sent at `sent_at`, was applied. What it stored may belong to a generation that is over by now.
    pub(crate) fn applied(&mut self, store_op: &StoreOp, is_current: bool, sent_at: Instant, settings: &Settings) {
        self.busy = false;
        self.retry = None;
        self.deadline = sent_at + settings.lease_ttl;
        self.renew_at = sent_at + settings.renew_interval;
        let StoreOp::Save(checkpoint, upto) = store_op else { return };
        self.saved_at = sent_at;
        self.mark = OpeningMark::Stored;
        if is_current {
            self.stored = self.stored.max(*upto);
            if *checkpoint == Checkpoint::ShardEnd {
                self.reading = Reading::EndStored;
            }
        }
        self.progress.change(|progress| {
            progress.marked = true;
            progress.upto = self.stored;
            progress.error = None;
        });
    }

    /// The call failed, or its outcome is unknown: it is repeated after a pause that grows.
    pub(crate) fn failed(&mut self, store_op: &StoreOp, error: &StoreError, now: Instant) {
        self.busy = false;
        let pause = self.retry.as_ref().map_or(FIRST_RETRY, |retry| (retry.pause * 2).min(LONGEST_RETRY));
        let saves = matches!(store_op, StoreOp::Save(..));
        self.retry = Some(Retry { at: now + pause, pause, saves });
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
        self.handed_over
    }

    /// Whether there is anything left to be read or settled of the shard.
    pub(crate) fn is_open(&self) -> bool {
        self.reading != Reading::EndStored
    }

    /// Whether it takes up room among the leases of this instance: nothing more is read at the tip and after the end.
    pub(crate) fn is_working(&self) -> bool {
        matches!(self.reading, Reading::Running | Reading::AtEnd)
    }

    /// Whether the shard can still be moved to another place: its end is not stored, and the lease is to stay.
    pub(crate) fn can_move(&self) -> bool {
        self.is_open() && self.leave_at.is_none()
    }

    pub(crate) fn is_at_tip(&self) -> bool {
        self.reading == Reading::AtTip
    }

    /// Past it another instance may hold the shard.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(crate) fn is_at_end(&self) -> bool {
        matches!(self.reading, Reading::AtEnd | Reading::EndStored)
    }

    fn is_drained(&self, tracker: &Tracker) -> bool {
        self.reading == Reading::AtEnd && self.unread == 0 && tracker.open() == 0
    }

    fn leaves(&self, tracker: &Tracker, now: Instant) -> bool {
        self.leave_at.is_some_and(|at| tracker.in_hands() == 0 || now >= at)
    }
}

impl Drop for LeaseTerm {
    fn drop(&mut self) {
        self.stop.cancel();
        self.progress.close();
    }
}
