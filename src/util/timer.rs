//! Timers: one that a stream sets anew with each poll, and one for an optional time.

use std::{
    future::pending,
    pin::Pin,
    task::{Context, Poll},
};

use futures::FutureExt;
use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that a stream sets to a time whenever it is polled. The first poll allocates; later ones do not.
#[derive(Debug, Default)]
pub(crate) struct Timer(Option<Pin<Box<Sleep>>>);

impl Timer {
    /// Ready once the time has come. Until then the timer wakes the task at that time.
    pub(crate) fn poll(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(at)));
        if sleep.deadline() != at {
            sleep.as_mut().reset(at);
        }
        sleep.poll_unpin(cx)
    }
}

/// Waits until this time; never returns if there is none.
///
/// # Cancel safety
///
/// Cancel safe.
pub(crate) async fn sleep_until_some(at: Option<Instant>) {
    match at {
        Some(at) => sleep_until(at).await,
        None => pending().await,
    }
}
