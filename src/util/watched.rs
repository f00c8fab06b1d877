//! A value that some change and others wait for.
//!
//! Who waits is woken in the order of coming. A watch channel wakes in random order, and with it no run under a paused
//! clock would be the same as the one before.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::util::mutex::lock;

/// See the module. Clones show the same value.
#[derive(Debug)]
pub(crate) struct Watched<T>(Arc<Inner<T>>);

#[derive(Debug)]
struct Inner<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct State<T> {
    value: T,
    closed: bool,
}

impl<T> Clone for Watched<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Watched<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Inner { state: Mutex::new(State { value, closed: false }), changed: Notify::new() }))
    }

    /// Reads the value.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&lock(&self.0.state).value)
    }

    /// Changes the value.
    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut lock(&self.0.state).value);
        self.0.changed.notify_waiters();
    }

    /// The value does not change any more.
    pub(crate) fn close(&self) {
        lock(&self.0.state).closed = true;
        self.0.changed.notify_waiters();
    }

    /// Waits until the value gives something. None if it does not change any more.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only looks.
    pub(crate) async fn wait_for<R>(&self, find: impl Fn(&T) -> Option<R>) -> Option<R> {
        loop {
            let told = self.0.changed.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            {
                let state = lock(&self.0.state);
                let found = find(&state.value);
                if found.is_some() || state.closed {
                    return found;
                }
            }
            told.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, future::join3};

    use super::*;

    #[tokio::test]
    async fn who_waits_is_told_when_the_value_is_there_or_never_will_be() {
        let board = Watched::new(0);
        let at = |n| {
            let board = board.clone();
            async move { board.wait_for(move |value| (*value >= n).then_some(*value)).await }
        };
        assert_eq!(at(0).now_or_never(), Some(Some(0)));
        let changes = async {
            board.change(|value| *value = 1);
            tokio::task::yield_now().await;
            board.close();
        };
        assert_eq!(join3(at(1), at(2), changes).await, (Some(1), None, ()));
        assert_eq!(board.read(|value| *value), 1);
    }
}
