//! A record of [`publish`](crate::PublishSink::publish) that waits for room.
//!
//! **Why the sender polls it.** Many futures of `publish` may wait in one stream, and a program may stop to poll that
//! stream while it waits for another record of the same sink. If each future had to fetch its own room, the room would
//! be granted to futures that nobody polls, and the program would stand still for ever. So the wait moves to the task
//! of the sink: once there is room, the record is accepted, whoever is polled.

use std::sync::Arc;

use futures::{FutureExt, future::BoxFuture};
use tokio::{
    select,
    sync::{mpsc, oneshot},
};

use super::{error::PublishError, prepared::Prepared};
use crate::{budget::Grant, error::KinesisError, publishing::record::Published};

/// The records that wait, on their way to the sender.
pub(super) type Submissions = mpsc::UnboundedReceiver<Waiting>;

/// Resolves once there is room. None if the caller left before.
pub(super) type Waiting = BoxFuture<'static, Option<(Submission, Grant)>>;

/// A checked record and its caller. If it is dropped before it was accepted, the caller gets the record back.
#[derive(Debug)]
pub(super) struct Submission {
    stream: Arc<str>,
    parts: Option<(Prepared, Caller)>,
}

type Caller = oneshot::Sender<Result<Published, PublishError>>;

impl Submission {
    pub(super) fn new(stream: Arc<str>, prepared: Prepared, caller: Caller) -> Self {
        Self { stream, parts: Some((prepared, caller)) }
    }

    /// Waits for its turn, unless the caller leaves.
    pub(super) fn waiting(mut self, turn: BoxFuture<'static, Grant>) -> Waiting {
        async move {
            let (_, caller) = self.parts.as_mut()?;
            select! {
                biased;
                () = caller.closed() => None,
                grant = turn => Some((self, grant)),
            }
        }
        .boxed()
    }

    /// The record and its caller, to be accepted.
    pub(super) fn into_parts(mut self) -> Option<(Prepared, Caller)> {
        self.parts.take()
    }
}

impl Drop for Submission {
    fn drop(&mut self) {
        let Some((prepared, caller)) = self.parts.take() else { return };
        let interrupted = KinesisError::Interrupted { stream: Arc::clone(&self.stream) };
        // It fails if the caller dropped its future.
        let _ = caller.send(Err(PublishError::new(prepared.into_parts().0, 0, interrupted)));
    }
}
