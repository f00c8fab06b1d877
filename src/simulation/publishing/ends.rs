//! Dropped sinks, closed connections and ended runtimes (L2, L7, P3).

use std::sync::Arc;

use futures::{FutureExt, SinkExt, pin_mut, poll};
use tokio::{runtime::Builder, time::sleep};

use super::{
    super::put_service::{Outcome, PutService},
    cause, records, result_texts, send, sink, to,
};

use crate::{
    connection::Connection,
    error::service::FailureKind,
    kinesis::Service,
    publishing::{publisher::Publisher, record::Outgoing},
    simulation::harness::{CapturedLogs, seconds},
};

// P3
#[tokio::test(start_paused = true)]
async fn a_dropped_sink_still_sends_its_accepted_records() {
    let logged = CapturedLogs::new();
    let put_service = PutService::new(|k, _| match k {
        0 => Outcome::Refused(FailureKind::Other),
        1 => Outcome::Fails(vec![(1, FailureKind::Denied)]),
        _ => Outcome::Stored,
    });
    let mut sink = sink(&put_service, to().linger(seconds(60)));
    send(&mut sink, records("aba")).await;
    drop(sink);
    sleep(seconds(2)).await;
    assert_eq!(put_service.texts(), ["0", "2"]);
    assert_eq!(logged.with("a record was not published, and its sink is dropped").len(), 1);
}

// P3
#[tokio::test(start_paused = true)]
async fn a_record_is_sent_even_if_its_future_is_dropped() {
    let put_service = PutService::kind();
    let sink = sink(&put_service, to());
    assert!(sink.publish(Outgoing::new("a", "0")).now_or_never().is_none());
    sleep(seconds(1)).await;
    assert_eq!(put_service.texts(), ["0"]);
}

// P3
#[test]
fn the_end_of_the_runtime_wakes_all_waiters() {
    let runtime = || Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let first = runtime();
    let sink = first.block_on(async { sink(&PutService::new(|_, _| Outcome::Hangs), to()) });
    let mut waiting = Box::pin(sink.publish(Outgoing::new("a", "0")));
    let mut handle = sink.clone();
    first.block_on(async {
        send(&mut handle, records("b")).await;
        assert!(poll!(&mut waiting).is_pending());
        sleep(seconds(1)).await;
    });
    drop(first);
    runtime().block_on(async {
        assert_eq!(cause(&waiting.await.unwrap_err()), "interrupted");
        assert_eq!(cause(&handle.flush().await.unwrap_err()), "interrupted");
        assert_eq!(cause(&sink.publish(Outgoing::new("a", "1")).await.unwrap_err()), "interrupted");
        let mut other = sink.clone();
        assert_eq!(
            cause(&SinkExt::<Outgoing>::send(&mut other, Outgoing::new("a", "2")).await.unwrap_err()),
            "interrupted"
        );
        other.close().await.unwrap();
    });
}

// L2, L7, P3
#[tokio::test(start_paused = true)]
async fn a_sink_works_while_its_connection_is_open_and_sends_its_accepted_records() {
    let put_service = PutService::kind();
    let connection = Arc::new(Connection::default());
    let publisher = Publisher::new(Arc::clone(&connection));
    let sink = publisher.sink(to().linger(seconds(1))).unwrap();
    let early = sink.publish(Outgoing::new("a", "early").header("id", "1")).await.unwrap_err();
    assert_eq!((cause(&early), early.attempts()), ("not connected", 0));
    assert_eq!(early.record(), &Outgoing::new("a", "early").header("id", "1"));
    assert_eq!(result_texts(&publisher.publish_all("s", records("a")).await), ["not connected"]);

    connection.open(Arc::clone(&put_service) as Arc<dyn Service>);
    let accepted = sink.publish(Outgoing::new("a", "accepted"));
    pin_mut!(accepted);
    assert!(poll!(&mut accepted).is_pending());
    connection.close().await;
    let late = sink.publish(Outgoing::new("a", "late")).await.unwrap_err();
    assert_eq!(cause(&late), "not connected");
    assert!(accepted.await.is_ok());
    assert_eq!(put_service.texts(), ["accepted"]);
}
