//! The one who sends: makes the requests that the accumulator ask for, and brings the answers back.

use std::sync::Arc;

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::select;

use crate::{
    kinesis::Service,
    publishing::{
        accumulator::{Answer, Request},
        shared::{Round, Shared},
    },
    util::timer::sleep_until_some,
};

/// Sends what is handed in, until nothing is left and nothing will come. Dropped before that, or ended by a panic, it
/// settles what is open as interrupted.
pub(super) fn run(shared: Arc<Shared>) -> impl Future<Output = ()> + Send + 'static {
    let presence = Presence(shared);
    async move {
        let shared = &presence.0;
        let mut calls = FuturesUnordered::new();
        loop {
            let Round { requests, service, wake, is_done } = shared.round();
            if let Some(service) = service {
                calls.extend(requests.into_iter().map(|request| call(&service, &shared.stream, request)));
            }
            if is_done {
                return;
            }
            select! {
                biased;
                Some((flight, answer)) = calls.next() => shared.answered(flight, answer),
                () = shared.work() => {}
                () = sleep_until_some(wake) => {}
            }
        }
    }
}

fn call(service: &Arc<dyn Service>, stream: &Arc<str>, request: Request) -> BoxFuture<'static, (u64, Answer)> {
    let (service, stream) = (Arc::clone(service), Arc::clone(stream));
    let Request { flight, entries } = request;
    async move { (flight, service.put_all(&stream, entries).await) }.boxed()
}

/// Whoever waits for a record is never left waiting.
struct Presence(Arc<Shared>);

impl Drop for Presence {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
