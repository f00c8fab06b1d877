//! How a reader handles failed calls and checkpoints that lead nowhere.

use std::sync::Arc;

use tokio::time::{Duration, Instant};

use super::{Cursor, ReadStep, Reader};
use crate::{
    config::position::Origin,
    error::{
        KinesisError,
        chain::Chain,
        service::{FailureKind, ServiceFailure},
    },
    reading::pacing::ReadOutcome,
    state::retention::Unavailable,
    types::id::SequenceNumber,
    util::backoff::doubled,
};

/// The number of errors in a row after which a reader gives up (R10).
const MAX_FAILURES: u32 = 11;

/// How many iterators in a row may expire without a report (R8).
const EXPIRED_IN_SILENCE: u32 = 2;

/// The pauses between reads that keep failing.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);
const LONGEST_BACKOFF: Duration = Duration::from_secs(30);

impl Reader {
    /// Handles a failed call. The pace decides how long to pause.
    pub(super) fn handle_failure(&mut self, failure: ServiceFailure) -> ReadStep {
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
                    return self.failed(failure, MAX_FAILURES);
                }
                self.lose_checkpoint(Some(failure));
                ReadOutcome::Void
            }
            _ => return self.failed(failure, self.failures + 1),
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
            again => ReadOutcome::Backoff(doubled(FIRST_BACKOFF, LONGEST_BACKOFF, again)),
        }
    }

    /// Handles an error that is the last of this many in a row, and gives up after too many.
    fn failed(&mut self, failure: ServiceFailure, failures: u32) -> ReadStep {
        let kind = failure.kind();
        self.failures = failures;
        let gives_up = self.failures >= MAX_FAILURES;
        if let FailureKind::NotFound = kind {
            self.shard.set_not_found(true);
        }
        // One check is enough for all failures in a row.
        if let FailureKind::NotFound | FailureKind::Rejected | FailureKind::InvalidPosition = kind
            && (self.failures == 1 || gives_up)
        {
            self.context.wakeups.check_stream_now();
        }
        // A listing shows before the next attempt whether the shard or the whole stream is gone, and the next attempt
        // shows whether the checkpoint is.
        let may_pass = matches!(kind, FailureKind::NotFound | FailureKind::InvalidPosition);
        if !may_pass || self.failures > 1 {
            self.report(failure, failures, gives_up);
        }
        if gives_up {
            self.shard.gave_up(self.opening.generation);
            return ReadStep::Stopped;
        }
        self.pace.read_done(Instant::now(), ReadOutcome::Failed);
        ReadStep::Again
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
        tracing::warn!(error = %Chain(&lost), "a checkpoint is lost");
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
        tracing::warn!(
            stream = %self.context.stream, shard = %self.shard.id, epoch = self.opening.epoch,
            failures, gave_up, error = %Chain(&source), "a read failed"
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
