//! A timer of a stream: set to a moment each time it is polled.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures::FutureExt;
use tokio::time::{Instant, Sleep, sleep_until};

/// See the module. It allocates once, with its first poll.
#[derive(Debug, Default)]
pub(crate) struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Whether the moment has come; if not, wakes the task when it does.
    pub(crate) fn poll(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        sleep.poll_unpin(cx)
    }
}
