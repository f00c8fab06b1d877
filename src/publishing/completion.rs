//! Where the result of a record goes.

use tokio::sync::oneshot;

use super::error::PublishError;
use crate::{delivery::Acker, publishing::record::Published};

/// See the module.
#[derive(Debug)]
pub(super) enum Completion {
    /// To the sink, failures only.
    Sink,
    /// To the delivery that the record was made from. A failure goes to the sink as well.
    Acker(Acker),
    /// To the caller that waits for this record.
    Caller(oneshot::Sender<Result<Published, PublishError>>),
}

impl Completion {
    /// The record was not accepted; the caller learns that from the error.
    pub(super) fn give_back(self) {
        if let Self::Acker(acker) = self {
            acker.nack();
        }
    }

    /// Delivers the result. Returns the failure that the sink has to report, if any.
    pub(super) fn resolve(self, outcome: Result<Published, PublishError>) -> Option<PublishError> {
        match (self, outcome) {
            (Self::Sink, outcome) => outcome.err(),
            (Self::Acker(acker), Ok(_)) => {
                acker.ack();
                None
            }
            (Self::Acker(acker), Err(error)) => {
                acker.nack();
                Some(error)
            }
            // The caller dropped its future.
            (Self::Caller(caller), outcome) => {
                let _ = caller.send(outcome);
                None
            }
        }
    }
}
