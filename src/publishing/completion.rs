//! Who is told what became of a record.

use tokio::sync::oneshot;

use super::error::PublishError;
use crate::{delivery::Acker, publishing::record::Published};

/// See the module.
#[derive(Debug)]
pub(super) enum Completion {
    /// Whoever holds the sink, of failures only.
    Sink,
    /// The delivery of which it was made. A failure is told to the sink as well.
    Acker(Acker),
    /// Whoever waits for this one record.
    Caller(oneshot::Sender<Result<Published, PublishError>>),
}

impl Completion {
    /// Its record was not accepted, which whoever handed it in is told.
    pub(super) fn give_back(self) {
        if let Self::Acker(acker) = self {
            acker.nack();
        }
    }

    /// Tells it; gives the failure that the sink is to be told, if it is one.
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
            // Whoever does not wait any more does not want to know.
            (Self::Caller(caller), outcome) => {
                let _ = caller.send(outcome);
                None
            }
        }
    }
}
