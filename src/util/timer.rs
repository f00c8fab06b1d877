//! A timer for hand-written streams: each poll passes the time at which it is to fire.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use futures::FutureExt;
use tokio::time::{Instant, Sleep, sleep_until};

/// The timer; see the module. It allocates once, at its first poll.
#[derive(Debug, Default)]
pub(crate) struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Ready if the time `at` has come. If not, wakes the task at that time.
    pub(crate) fn poll(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        sleep.poll_unpin(cx)
    }
}
