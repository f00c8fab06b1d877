//! Serves a router on a separate thread until it is dropped.

use std::{
    fmt, io,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    thread::{self, JoinHandle},
};

use axum::{Router, serve::ListenerExt};
use tokio::{
    net::TcpListener as Listener,
    runtime::{Builder, Runtime},
    sync::oneshot,
};

/// A running server.
///
/// It has a separate thread and a separate runtime: a test may pause its clock, block its thread or end its runtime
/// without stopping the server. Dropping it closes every connection and joins the thread.
pub struct Server {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Server {
    /// Serves `router` on a free port of 127.0.0.1. It accepts connections from now on.
    ///
    /// # Errors
    /// The system gives no port, no thread or no runtime.
    pub fn start(name: &str, router: Router) -> io::Result<Self> {
        Self::host(name, move |listener| async move {
            let listener = listener.tap_io(|connection| {
                // Best effort: with Nagle's algorithm on, responses are late but correct.
                drop(connection.set_nodelay(true));
            });
            axum::serve(listener, router).await
        })
    }

    /// Runs `serve` on a free port of 127.0.0.1.
    pub(crate) fn host<F>(name: &str, serve: impl FnOnce(Listener) -> F + Send + 'static) -> io::Result<Self>
    where
        F: Future<Output = io::Result<()>>,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (stop, stopped) = oneshot::channel();
        let thread =
            thread::Builder::new().name(name.to_owned()).spawn(move || run(&runtime, listener, serve, stopped))?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
    }

    /// Its address, as a URL.
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

/// Returns once the other end of `stopped` is dropped. Open connections then end with the runtime.
fn run<F>(
    runtime: &Runtime,
    listener: TcpListener,
    serve: impl FnOnce(Listener) -> F,
    stopped: oneshot::Receiver<()>,
) -> io::Result<()>
where
    F: Future<Output = io::Result<()>>,
{
    runtime.block_on(async {
        let listener = Listener::from_std(listener)?;
        tokio::select! {
            biased;
            _ = stopped => Ok(()),
            ended = serve(listener) => ended,
        }
    })
}
