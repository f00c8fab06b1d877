//! A call on its way: asked by a future, done by the worker, answered once what it did is on the disk.

use tokio::sync::oneshot;

use super::rows::{Rows, Trouble};
use crate::error::service::StoreError;

/// One call, whatever it answers with.
pub(super) trait Call: Send {
    /// Whether nobody waits for the answer any more.
    fn is_abandoned(&self) -> bool;

    /// Does it, and keeps the answer. An error is one of the file, and ends the transaction.
    fn run(&mut self, rows: &mut Rows<'_>) -> Result<(), redb::StorageError>;

    /// Answers it, now that it is known what became of the transaction.
    fn answer(self: Box<Self>, outcome: Result<(), StoreError>);
}

/// What a call waits to hear.
pub(super) type Answered<T> = oneshot::Receiver<Result<T, StoreError>>;

/// Makes a call of a step, and of where its answer arrives.
pub(super) fn call<T, S>(step: S) -> (Box<dyn Call>, Answered<T>)
where
    T: Send + 'static,
    S: FnOnce(&mut Rows<'_>) -> Result<T, Trouble> + Send + 'static,
{
    let (asker, answered) = oneshot::channel();
    (Box::new(Asked { state: State::Waiting(step), asker }), answered)
}

struct Asked<T, S> {
    state: State<T, S>,
    asker: oneshot::Sender<Result<T, StoreError>>,
}

enum State<T, S> {
    Waiting(S),
    Running,
    Done(Result<T, StoreError>),
}

impl<T, S> Call for Asked<T, S>
where
    T: Send,
    S: FnOnce(&mut Rows<'_>) -> Result<T, Trouble> + Send,
{
    fn is_abandoned(&self) -> bool {
        self.asker.is_closed()
    }

    fn run(&mut self, rows: &mut Rows<'_>) -> Result<(), redb::StorageError> {
        if let State::Waiting(step) = std::mem::replace(&mut self.state, State::Running) {
            self.state = State::Done(match step(rows) {
                Ok(answer) => Ok(answer),
                Err(Trouble::Row(error)) => Err(error),
                Err(Trouble::File(error)) => return Err(error),
            });
        }
        Ok(())
    }

    fn answer(self: Box<Self>, outcome: Result<(), StoreError>) {
        let answer = match (outcome, self.state) {
            (Ok(()), State::Done(answer)) => answer,
            (Err(error), _) => Err(error),
            (Ok(()), _) => Err(StoreError::new("the call was not made")),
        };
        // Whoever gave the call up does not hear it.
        let _ = self.asker.send(answer);
    }
}
