//! The task of a sink: makes the requests that the accumulator asks for, and passes the responses back.
//!
//! **A sink has a task.** Lingering, backing off and sending must continue while nobody polls: the acks of a pipeline
//! depend on it, and a pipeline that waits for its source does not poll its sink. `publish_all` needs no task, because
//! its future is polled until every record is settled.
//!
//! **An attempt has the timeout of a call; a record has `delivery_timeout`.** The sender waits for a call that is in
//! flight even past the record's timeout, because only its response says what happened.

use std::sync::Arc;

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::select;

use crate::{
    kinesis::Service,
    publishing::{
        accumulator::{Answer, Request},
        shared::{SenderStep, SinkShared},
    },
    util::timer::sleep_until_some,
};

/// Sends accepted records until none is left and no handle remains. If it is dropped earlier or panics, it settles all
/// open records as interrupted.
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

/// Settles every open record when the sender ends, so that no caller waits without an end.
struct AbandonOnDrop(Arc<SinkShared>);

impl Drop for AbandonOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
