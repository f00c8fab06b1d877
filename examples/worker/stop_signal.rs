//! The signals to stop: Ctrl-C, and SIGTERM on Unix.

use std::io;

use tokio::select;
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens from the start, so that no signal ends the program before it has released its leases.
#[derive(Debug)]
pub(crate) struct StopSignal {
    #[cfg(unix)]
    interrupt: Signal,
    #[cfg(unix)]
    terminate: Signal,
}

#[cfg(unix)]
impl StopSignal {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Returns once a signal arrived.
    pub(crate) async fn received(&mut self) {
        select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
impl StopSignal {
    #[expect(clippy::unnecessary_wraps, reason = "as on unix")]
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Returns once Ctrl-C arrived, or never if the program cannot listen for it.
    pub(crate) async fn received(&mut self) {
        select! {
            Ok(()) = tokio::signal::ctrl_c() => {}
            else => std::future::pending().await,
        }
    }
}
