//! Deliveries that a sink acknowledges (P3, A1 to A3).

use futures::SinkExt;
use tokio::{runtime::Builder, time::sleep};

use super::{
    super::put_service::{Outcome, PutService},
    cause, sink, to,
};

use crate::{
    delivery::{Acker, Delivery},
    error::service::FailureKind,
    publishing::record::Outgoing,
    simulation::harness::{Harness, horizon, millis, names, next, seconds, take, within},
};

async fn subscribed(records: usize) -> (Harness, crate::subscription::Subscription) {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", records);
    let subscription = harness.instance("me").subscribe(horizon()).await;
    (harness, subscription)
}

fn onwards(delivery: Delivery) -> (Outgoing, Acker) {
    let (record, acker) = delivery.into_parts();
    (Outgoing::new(record.payload.clone().slice(1..).escape_ascii().to_string(), record.payload), acker)
}

// P3, A1, A3
#[tokio::test(start_paused = true)]
async fn a_delivery_is_acknowledged_only_once_its_record_is_stored() {
    let (harness, mut subscription) = subscribed(3).await;
    let deliveries = take(&mut subscription, 3).await;
    let put_service =
        PutService::new(
            |k, _| if k == 0 { Outcome::Fails(vec![(0, FailureKind::Throttled)]) } else { Outcome::Stored },
        );
    let mut sink = sink(&put_service, to());
    for delivery in deliveries {
        sink.feed(onwards(delivery)).await.unwrap();
    }
    sleep(millis(40)).await;
    assert_eq!(put_service.texts(), ["a1", "a2"]);
    let in_flight = |subscription: &crate::subscription::Subscription| subscription.stats().shards[0].in_flight;
    assert_eq!(in_flight(&subscription), 1);
    SinkExt::<(Outgoing, Acker)>::close(&mut sink).await.unwrap();
    assert_eq!(in_flight(&subscription), 0);
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a2");
}

// P3, A2
#[tokio::test(start_paused = true)]
async fn a_delivery_whose_record_is_not_stored_is_redelivered_and_the_sink_returns_the_cause() {
    let (_ground, mut subscription) = subscribed(3).await;
    let mut deliveries = take(&mut subscription, 3).await.into_iter();
    let put_service =
        PutService::new(|k, _| if k == 0 { Outcome::Refused(FailureKind::Denied) } else { Outcome::Stored });
    let mut sink = sink(&put_service, to());
    sink.feed(onwards(deliveries.next().unwrap())).await.unwrap();
    assert_eq!(cause(&sink.flush().await.unwrap_err()), "denied");
    // The first record is invalid, the record behind it is stored.
    let (_, acker) = onwards(deliveries.next().unwrap());
    assert_eq!(cause(&sink.feed((Outgoing::new("", "x"), acker)).await.unwrap_err()), "invalid");
    sink.send(onwards(deliveries.next().unwrap())).await.unwrap();
    let again = within(&mut subscription, seconds(2)).await;
    assert_eq!(names(&again), ["a0", "a1"]);
    assert!(again.iter().all(|delivery| delivery.attempt() == 2));
}

// P3, A2
#[test]
fn the_end_of_the_runtime_acknowledges_no_delivery_in_a_sink() {
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let other = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 1);
        let mut subscription = harness.instance("me").subscribe(horizon().ack_on_drop()).await;
        let mut sink = {
            let _there = other.enter();
            sink(&PutService::new(|_, _| Outcome::Hangs), to())
        };
        sink.feed(onwards(next(&mut subscription).await)).await.unwrap();
        drop(sink);
        tokio::task::spawn_blocking(move || drop(other)).await.unwrap();
        assert_eq!(next(&mut subscription).await.attempt(), 2);
    });
}
