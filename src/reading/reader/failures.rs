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
    types::id::SequenceNumber,
};

/// The number of errors in a row after which a reader gives up (R10).
const MAX_FAILURES: u32 = 11;

impl Reader {
    /// Handles a failed call. The pace decides how long to pause.
    pub(super) fn handle_failure(&mut self, failure: ServiceFailure) -> ReadStep {
        let outcome = match failure.kind() {
            FailureKind::Throttled => {
                self.shard.count(|counts| counts.throttles += 1);
                ReadOutcome::Throttled
            }
            FailureKind::IteratorExpired => {
                self.cursor = Cursor::Lost;
                // Iterators of a deleted stream may expire like this, too.
                self.context.wakeups.check_stream();
                ReadOutcome::Void
            }
            _ if self.refuses_checkpoint(&failure) => {
                self.lose_checkpoint(Some(failure));
                ReadOutcome::Void
            }
            _ => return self.failed(failure),
        };
        self.pace.read_done(Instant::now(), outcome);
        ReadStep::Again
    }

    /// Counts an error, and gives up after too many in a row.
    fn failed(&mut self, failure: ServiceFailure) -> ReadStep {
        let kind = failure.kind();
        // The service refused a place that this reader has read itself: the next reader starts at the checkpoint.
        let is_lost = matches!((&self.cursor, &self.resume), (Cursor::Lost, Origin::At(_) | Origin::After(_)))
            && kind == FailureKind::Rejected;
        self.failures = if is_lost { MAX_FAILURES } else { self.failures + 1 };
        let gives_up = self.failures >= MAX_FAILURES;
        if let FailureKind::NotFound = kind {
            self.shard.set_not_found(true);
        }
        // One check is enough for all failures in a row.
        if let FailureKind::NotFound | FailureKind::Rejected = kind
            && (self.failures == 1 || is_lost)
        {
            self.context.wakeups.check_stream_now();
        }
        // A listing shows before the next attempt whether the shard or the whole stream is gone.
        if kind != FailureKind::NotFound || self.failures > 1 {
            self.report(failure, gives_up);
        }
        if gives_up {
            self.shard.gave_up(self.opening.generation);
            return ReadStep::Stopped;
        }
        self.pace.read_done(Instant::now(), ReadOutcome::Failed);
        ReadStep::Again
    }

    /// Whether the service refused the checkpoint (H7). Once a record was read, the reader is no longer at the
    /// checkpoint.
    pub(super) fn refuses_checkpoint(&self, failure: &ServiceFailure) -> bool {
        matches!(self.cursor, Cursor::Lost) && failure.kind() == FailureKind::Rejected && self.checkpoint().is_some()
    }

    /// Continues at the oldest available record, and reports that the checkpoint is lost.
    pub(super) fn lose_checkpoint(&mut self, source: Option<ServiceFailure>) {
        let (Origin::At(checkpoint) | Origin::After(checkpoint)) = &self.resume else { return };
        let checkpoint = checkpoint.clone();
        self.cursor = Cursor::Lost;
        self.resume = Origin::Horizon;
        let (stream, shard) = (Arc::clone(&self.context.stream), self.shard.id.clone());
        let lost = KinesisError::CheckpointLost { stream, shard, checkpoint, source };
        tracing::error!(error = %Chain(&lost), "a checkpoint is lost");
        self.shard.report(lost);
        // It may be the checkpoint of a deleted stream of the same name.
        self.context.wakeups.check_stream_now();
    }

    /// Checks after an empty response whether the position leads nowhere (R8). Every position is suspect until a record
    /// was read from it: the records around it may have been trimmed while the reader did not read.
    pub(super) fn suspect_position(&mut self, behind: Option<Duration>) {
        let names_a_record = matches!(self.resume, Origin::At(_) | Origin::After(_));
        let is_suspect = matches!(self.cursor, Cursor::At(_)) && names_a_record && !self.read_since_placed;
        if is_suspect && self.stuck_iterator.is_stuck(behind, self.retention, Instant::now()) {
            self.lose_checkpoint(None);
        }
    }

    /// The record of the checkpoint at which the reader starts. None once it has read a record.
    fn checkpoint(&self) -> Option<&SequenceNumber> {
        match &self.resume {
            Origin::At(number) | Origin::After(number) if !self.has_checkpoint => Some(number),
            _ => None,
        }
    }

    fn report(&self, source: ServiceFailure, gave_up: bool) {
        tracing::warn!(
            stream = %self.context.stream, shard = %self.shard.id, epoch = self.opening.epoch,
            failures = self.failures, gave_up, error = %Chain(&source), "a read failed"
        );
        self.shard.report(KinesisError::Read {
            stream: Arc::clone(&self.context.stream),
            shard: self.shard.id.clone(),
            failures: self.failures,
            gave_up,
            source,
        });
    }
}
