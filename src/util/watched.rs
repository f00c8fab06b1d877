//! A shared value. Some tasks change it, others wait until it meets a condition.
//!
//! **Why not a tokio watch channel.** Waiters are woken first in, first out. A watch channel wakes them in random
//! order, so a simulation under a paused clock would not replay exactly from its seed.

use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::util::mutex::lock;

/// The shared value; see the module. Clones share the same value.
#[derive(Debug)]
pub(crate) struct Watched<T>(Arc<WatchedInner<T>>);

#[derive(Debug)]
struct WatchedInner<T> {
    state: Mutex<WatchedState<T>>,
    changed: Notify,
}

#[derive(Debug)]
struct WatchedState<T> {
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
        Self(Arc::new(WatchedInner {
            state: Mutex::new(WatchedState { value, closed: false }),
            changed: Notify::new(),
        }))
    }

    /// Reads the value.
    pub(crate) fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&lock(&self.0.state).value)
    }

    /// Changes the value.
    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut lock(&self.0.state).value);
        self.0.changed.notify_waiters();
    }

    /// Declares that the value will not change any more, and wakes all waiters.
    pub(crate) fn close(&self) {
        lock(&self.0.state).closed = true;
        self.0.changed.notify_waiters();
    }

    /// Waits until `find` returns something for the value, and returns that. Returns `None` if the value is
    /// [closed](Self::close) and `find` still returns nothing.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only reads the value.
    pub(crate) async fn wait_for<R>(&self, find: impl Fn(&T) -> Option<R>) -> Option<R> {
        loop {
            let notified = self.0.changed.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            {
                let state = lock(&self.0.state);
                let found = find(&state.value);
                if found.is_some() || state.closed {
                    return found;
                }
            }
            notified.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, future::join3};

    use super::*;

    #[tokio::test]
    async fn waiters_are_woken_when_the_value_arrives_or_is_closed() {
        let watched = Watched::new(0);
        let at = |n| {
            let watched = watched.clone();
            async move { watched.wait_for(move |value| (*value >= n).then_some(*value)).await }
        };
        assert_eq!(at(0).now_or_never(), Some(Some(0)));
        let changes = async {
            watched.change(|value| *value = 1);
            tokio::task::yield_now().await;
            watched.close();
        };
        assert_eq!(join3(at(1), at(2), changes).await, (Some(1), None, ()));
        assert_eq!(watched.read(|value| *value), 1);
    }
}
