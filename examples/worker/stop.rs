//! Being asked to stop: Ctrl-C, and SIGTERM where there is such a thing.

use std::io;

use tokio::select;
#[cfg(unix)]
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Listens from the beginning, so that no signal ends the program before it has let go of its leases.
#[derive(Debug)]
pub(crate) struct Stop {
    #[cfg(unix)]
    interrupt: Signal,
    #[cfg(unix)]
    terminate: Signal,
}

#[cfg(unix)]
impl Stop {
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Returns once it was asked for.
    pub(crate) async fn asked(&mut self) {
        select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
impl Stop {
    #[expect(clippy::unnecessary_wraps, reason = "as on unix")]
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {})
    }

    /// Returns once it was asked for, or never where that cannot be heard.
    pub(crate) async fn asked(&mut self) {
        select! {
            Ok(()) = tokio::signal::ctrl_c() => {}
            else => std::future::pending().await,
        }
    }
}
