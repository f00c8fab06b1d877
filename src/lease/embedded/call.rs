//! A call from a future to the worker. Its response waits until the changes of the call are on the disk.

use tokio::sync::oneshot;

use super::rows::{Rows, StepError};
use crate::error::service::StoreError;

/// One call, with any type of response.
pub(super) trait Call: Send {
    /// Whether the caller dropped its future.
    fn is_abandoned(&self) -> bool;

    /// Runs the call and keeps its response. An error is a failure of the file and ends the transaction.
    fn run(&mut self, rows: &mut Rows<'_>) -> Result<(), redb::StorageError>;

    /// Responds to the caller, once the outcome of the transaction is known.
    fn respond(self: Box<Self>, outcome: Result<(), StoreError>);
}

/// Where the caller waits for the response.
pub(super) type Response<T> = oneshot::Receiver<Result<T, StoreError>>;

/// Makes a call of a step, and the receiver of its response.
pub(super) fn call<T, S>(step: S) -> (Box<dyn Call>, Response<T>)
where
    T: Send + 'static,
    S: FnOnce(&mut Rows<'_>) -> Result<T, StepError> + Send + 'static,
{
    let (caller, response) = oneshot::channel();
    (Box::new(QueuedCall { state: CallState::Queued(step), caller }), response)
}

struct QueuedCall<T, S> {
    state: CallState<T, S>,
    caller: oneshot::Sender<Result<T, StoreError>>,
}

enum CallState<T, S> {
    Queued(S),
    Running,
    Done(Result<T, StoreError>),
}

impl<T, S> Call for QueuedCall<T, S>
where
    T: Send,
    S: FnOnce(&mut Rows<'_>) -> Result<T, StepError> + Send,
{
    fn is_abandoned(&self) -> bool {
        self.caller.is_closed()
    }

    fn run(&mut self, rows: &mut Rows<'_>) -> Result<(), redb::StorageError> {
        if let CallState::Queued(step) = std::mem::replace(&mut self.state, CallState::Running) {
            self.state = CallState::Done(match step(rows) {
                Ok(response) => Ok(response),
                Err(StepError::Row(error)) => Err(error),
                Err(StepError::File(error)) => return Err(error),
            });
        }
        Ok(())
    }

    fn respond(self: Box<Self>, outcome: Result<(), StoreError>) {
        let response = match (outcome, self.state) {
            (Ok(()), CallState::Done(response)) => response,
            (Err(error), _) => Err(error),
            (Ok(()), _) => Err(StoreError::new("the call did not run")),
        };
        // The caller may have dropped its future.
        let _ = self.caller.send(response);
    }
}
