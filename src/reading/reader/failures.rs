//! How a reader handles failed calls and checkpoints that lead nowhere.

use std::sync::{Arc, atomic::Ordering};

use tokio::time::{Duration, Instant};

use super::{Cursor, ReadStep, Reader};
use crate::{
    config::position::Origin,
    error::{
        KinesisError,
        chain::Chain,
        service::{FailureKind, ServiceFailure},
    },
    reading::{
        giving_up::{AfterFailure, Surroundings},
        pacing::ReadOutcome,
    },
    state::{
        retention::Unavailable,
        warnings::{Cause, warn_once_of},
    },
    types::id::SequenceNumber,
    util::backoff::doubled,
};

/// How many iterators in a row may expire without a report (R8).
const EXPIRED_IN_SILENCE: u32 = 2;

/// The pauses between iterators that expire in a row: the first, and the longest.
const EXPIRY_PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];

impl Reader {
    /// Handles a failed call. The pace decides how long to pause.
    pub(super) fn handle_failure(&mut self, failure: ServiceFailure, sent_at: Instant) -> ReadStep {
        let outcome = match failure.kind() {
            FailureKind::Throttled => {
                self.shard.count(|counts| counts.throttles += 1);
                ReadOutcome::Throttled
            }
            FailureKind::IteratorExpired => self.expired(failure),
            FailureKind::InvalidPosition
                if self.names_a_record() && self.refused_position.is_confirmed(Instant::now()) =>
            {
                if self.checkpoint().is_none() {
                    // The service refuses a place that this reader has read itself: the next one starts at the
                    // checkpoint.
                    return self.failed(failure, sent_at, true);
                }
                self.lose_checkpoint(Some(failure));
                ReadOutcome::Void
            }
            _ => return self.failed(failure, sent_at, false),
        };
        self.pace.read_done(Instant::now(), outcome);
        ReadStep::Again
    }

    /// Has a new iterator fetched. The first one at once; if that expires, too, it is not the user who is slow.
    fn expired(&mut self, failure: ServiceFailure) -> ReadOutcome {
        self.cursor = Cursor::Lost;
        // Iterators of a deleted stream may expire like this, too.
        self.context.wakeups.check_stream();
        self.shard.count(|counts| counts.expired_iterators += 1);
        self.expired = self.expired.saturating_add(1);
        if self.expired > EXPIRED_IN_SILENCE {
            self.report(failure, self.expired, false);
        }
        match self.expired - 1 {
            0 => ReadOutcome::Void,
            again => {
                let [first, longest] = EXPIRY_PAUSES;
                ReadOutcome::Failed(doubled(first, longest, again))
            }
        }
    }

    /// Counts an error. Gives up if that helps, or at once if this reader cannot continue.
    fn failed(&mut self, failure: ServiceFailure, sent_at: Instant, cannot_go_on: bool) -> ReadStep {
        let (kind, now) = (failure.kind(), Instant::now());
        let surroundings = Surroundings {
            others_in_sight: self.context.gauges.others_in_sight.load(Ordering::Relaxed),
            open_deliveries: self.shard.open_deliveries().is_some(),
        };
        let next = match self.failed_calls.fail(sent_at, now, surroundings) {
            _ if cannot_go_on => AfterFailure::GiveUp,
            next => next,
        };
        let gives_up = next == AfterFailure::GiveUp;
        let is_first = self.failed_calls.count() == 1;
        if let FailureKind::NotFound = kind {
            self.shard.set_not_found(true);
        }
        // One check is enough for all failures in a row.
        if let FailureKind::NotFound | FailureKind::Rejected | FailureKind::InvalidPosition = kind
            && (is_first || gives_up)
        {
            self.context.wakeups.check_stream_now();
        }
        // A listing shows before the next attempt whether the shard or the whole stream is gone, and the next attempt
        // shows whether the checkpoint is.
        let may_pass = matches!(kind, FailureKind::NotFound | FailureKind::InvalidPosition);
        // The next attempt makes a new connection.
        let reconnects = failure.is_lost_connection() && is_first;
        if !reconnects && (!may_pass || !is_first) {
            self.report(failure, self.failed_calls.count(), gives_up);
        }
        match next {
            AfterFailure::Retry(pause) => {
                let pause = if reconnects { Duration::ZERO } else { pause };
                self.pace.read_done(now, ReadOutcome::Failed(pause));
                ReadStep::Again
            }
            AfterFailure::GiveUp => {
                self.shard.gave_up(self.opening.generation);
                ReadStep::Stopped
            }
        }
    }

    /// Continues at the oldest available record, and reports that the checkpoint is lost.
    pub(super) fn lose_checkpoint(&mut self, source: Option<ServiceFailure>) {
        let (Origin::At(checkpoint) | Origin::After(checkpoint)) = &self.resume else { return };
        let checkpoint = checkpoint.clone();
        self.cursor = Cursor::Lost;
        self.resume = Origin::Horizon;
        self.shard.restarts_at(self.opening.generation, &self.resume);
        let (stream, shard) = (Arc::clone(&self.context.stream), self.shard.id.clone());
        let lost = KinesisError::CheckpointLost { stream, shard, checkpoint, source };
        tracing::error!(error = %Chain(&lost), "a checkpoint is lost");
        self.shard.report(lost);
        // It may be the checkpoint of a deleted stream of the same name.
        self.context.wakeups.check_stream_now();
    }

    /// Checks after an empty response whether the position leads nowhere (R8). Every position is suspect until a record
    /// was read from it: the records around it may have been trimmed while the reader did not read.
    pub(super) async fn suspect_position(&mut self, behind: Option<Duration>) {
        let is_suspect = matches!(self.cursor, Cursor::At(_)) && self.names_a_record() && !self.read_since_placed;
        if !is_suspect || !self.stuck_iterator.is_suspect(behind, Instant::now()) {
            return;
        }
        let context = Arc::clone(&self.context);
        match context.retention.read(&*context.service, &context.stream).await {
            Ok(retention) if self.stuck_iterator.is_stuck(retention, Instant::now()) => self.lose_checkpoint(None),
            Ok(_) => {}
            Err(Unavailable) => self.stuck_iterator.postpone(Instant::now()),
        }
    }

    /// Whether reading continues at or after a certain record.
    fn names_a_record(&self) -> bool {
        matches!(self.resume, Origin::At(_) | Origin::After(_))
    }

    /// The record of the checkpoint at which the reader starts. None once it has read a record.
    fn checkpoint(&self) -> Option<&SequenceNumber> {
        match &self.resume {
            Origin::At(number) | Origin::After(number) if !self.has_checkpoint => Some(number),
            _ => None,
        }
    }

    fn report(&self, source: ServiceFailure, failures: u32, gave_up: bool) {
        let what = if gave_up { "a reader gave up" } else { "a read failed" };
        warn_once_of!(
            self.context.warnings.is_first(Cause::of_kind(what, source.kind())),
            stream = %self.context.stream, shard = %self.shard.id, epoch = self.opening.epoch,
            failures, gave_up, error = %Chain(&source), "{what}"
        );
        self.shard.report(KinesisError::Read {
            stream: Arc::clone(&self.context.stream),
            shard: self.shard.id.clone(),
            failures,
            gave_up,
            source,
        });
    }
}
