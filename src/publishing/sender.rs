//! The one who sends: makes the requests that the accumulator ask for, and brings the answers back.

use std::sync::Arc;

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    select,
    time::{Instant, sleep_until},
};

use crate::{
    kinesis::Service,
    publishing::{
        accumulator::{Answer, Request},
        shared::{SenderStep, SinkShared},
    },
};

/// Sends what is handed in, until nothing is left and nothing will come. Dropped before that, or ended by a panic, it
/// settles what is open as interrupted.
pub(super) fn run(shared: Arc<SinkShared>) -> impl Future<Output = ()> + Send + 'static {
    let presence = AbandonOnDrop(shared);
    async move {
        let shared = &presence.0;
        let mut calls = FuturesUnordered::new();
        loop {
            let SenderStep { requests, service, wake, is_done } = shared.step();
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
                () = at(wake) => {}
            }
        }
    }
}

fn call(service: &Arc<dyn Service>, stream: &Arc<str>, request: Request) -> BoxFuture<'static, (u64, Answer)> {
    let (service, stream) = (Arc::clone(service), Arc::clone(stream));
    let Request { flight, entries } = request;
    async move { (flight, service.put_all(&stream, entries).await) }.boxed()
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Whoever waits for a record is never left waiting.
struct AbandonOnDrop(Arc<SinkShared>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
