//! What a reader does about calls that fail and checkpoints that lead nowhere.

use std::sync::Arc;

use tokio::time::{Duration, Instant};

use super::{Cursor, Reader, Step};
use crate::{
    config::position::Origin,
    error::{
        KinesisError,
        chain::Chain,
        service::{FailureKind, ServiceFailure},
    },
    reading::pacing::Answer,
    types::id::SequenceNumber,
};

/// Errors in a row after which a reader gives up (R10).
const MAX_FAILURES: u32 = 11;

impl Reader {
    /// Deals with a failed call: the pace knows how long to wait.
    pub(super) fn hindered_by(&mut self, failure: ServiceFailure) -> Step {
        let answer = match failure.kind() {
            FailureKind::Throttled => {
                self.shard.count(|counts| counts.throttles += 1);
                Answer::Throttled
            }
            FailureKind::IteratorExpired => {
                self.cursor = Cursor::Lost;
                // The iterators of an old stream may end like this, too.
                self.context.doubt_a_little();
                Answer::Void
            }
            _ if self.refuses_checkpoint(&failure) => {
                self.lose_checkpoint(Some(failure));
                Answer::Void
            }
            _ => return self.failed(failure),
        };
        self.pace.answered(Instant::now(), answer);
        Step::Again
    }

    /// Counts an error, and gives up after too many in a row.
    fn failed(&mut self, failure: ServiceFailure) -> Step {
        let kind = failure.kind();
        // The place after a record that this reader has read itself is refused: the next reader asks the checkpoint.
        let is_lost = matches!((&self.cursor, &self.resume), (Cursor::Lost, Origin::At(_) | Origin::After(_)))
            && kind == FailureKind::Rejected;
        self.failures = if is_lost { MAX_FAILURES } else { self.failures + 1 };
        let gives_up = self.failures >= MAX_FAILURES;
        if let FailureKind::NotFound = kind {
            self.shard.deny(true);
        }
        // One look is enough for all failures in a row.
        if let FailureKind::NotFound | FailureKind::Rejected = kind
            && (self.failures == 1 || is_lost)
        {
            self.context.doubt();
        }
        // Whether it is the shard or the whole stream that is gone, a listing tells before the next attempt.
        if kind != FailureKind::NotFound || self.failures > 1 {
            self.report(failure, gives_up);
        }
        if gives_up {
            self.shard.gave_up(self.opening.generation);
            return Step::Stopped;
        }
        self.pace.answered(Instant::now(), Answer::Failed);
        Step::Again
    }

    /// Whether this is the answer to a checkpoint that no longer fits (H7). Once a record was read, the place is no longer
    /// that of the checkpoint.
    pub(super) fn refuses_checkpoint(&self, failure: &ServiceFailure) -> bool {
        matches!(self.cursor, Cursor::Lost) && failure.kind() == FailureKind::Rejected && self.checkpoint().is_some()
    }

    /// Goes on at the oldest record that is kept, and says so.
    pub(super) fn lose_checkpoint(&mut self, source: Option<ServiceFailure>) {
        let Some(checkpoint) = self.checkpoint().cloned() else { return };
        self.cursor = Cursor::Lost;
        self.resume = Origin::Horizon;
        let (stream, shard) = (Arc::clone(&self.context.stream), self.shard.id.clone());
        let lost = KinesisError::CheckpointLost { stream, shard, checkpoint, source };
        tracing::warn!(error = %Chain(&lost), "a checkpoint is lost");
        self.shard.report(lost);
        // It may be that of another stream of this name.
        self.context.doubt();
    }

    /// DueQueue at an empty answer: does the checkpoint lead anywhere?
    pub(super) fn suspect_checkpoint(&mut self, behind: Option<Duration>) {
        let reads = matches!(self.cursor, Cursor::At(_));
        if reads && self.checkpoint().is_some() && self.stall.is_stuck(behind, self.retention, Instant::now()) {
            self.lose_checkpoint(None);
        }
    }

    /// The record of the checkpoint at which the reader is to begin; none once it has read a record.
    fn checkpoint(&self) -> Option<&SequenceNumber> {
        match &self.resume {
            Origin::At(number) | Origin::After(number) if !self.marked => Some(number),
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
