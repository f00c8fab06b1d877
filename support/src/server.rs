//! A router served from a thread of its own, until it is dropped.

use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    thread::{self, JoinHandle},
};

use axum::{Router, serve::ListenerExt};
use tokio::{
    runtime::{Builder, Runtime},
    sync::oneshot,
};

/// A running server.
///
/// It has its own thread and its own runtime, so a test may pause its clock, block its thread or end its runtime
/// without stopping the server. Dropping it closes every connection and joins the thread.
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Server {
    /// Serves `router` on a free port of 127.0.0.1. Connections are accepted from here on.
    ///
    /// # Errors
    /// The system gives no port, no thread or no runtime.
    pub fn start(name: &str, router: Router) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread =
            thread::Builder::new().name(name.to_owned()).spawn(move || serve(&runtime, listener, router, stopped))?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens, as a URL.
    #[must_use]
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(Err(panic)) = self.thread.take().map(JoinHandle::join)
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Returns once the other end of `stopped` is dropped; what is still open then ends with the runtime.
fn serve(runtime: &Runtime, listener: TcpListener, router: Router, stopped: oneshot::Receiver<()>) -> io::Result<()> {
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener)?.tap_io(|connection| {
            // Best effort: with Nagle's algorithm on, answers are late but right.
            drop(connection.set_nodelay(true));
        });
        tokio::select! {
            biased;
            _ = stopped => Ok(()),
            ended = axum::serve(listener, router).into_future() => ended,
        }
    })
}
