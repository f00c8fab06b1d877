//! The bound on accepted records (P3).

use futures::{Sink, StreamExt, pin_mut, poll, stream};
use tokio::{task::yield_now, time::timeout};

use super::{
    super::put_service::{Outcome, PutService},
    LONG, sink, to,
};

use crate::{
    error::service::FailureKind,
    publishing::record::{Outgoing, PublishOrder},
};

// P3
#[tokio::test(start_paused = true)]
async fn senders_wait_at_the_bound_and_no_record_is_dropped() {
    let put_service =
        PutService::new(|k, _| if k == 0 { Outcome::Refused(FailureKind::Other) } else { Outcome::Stored });
    let sink = sink(&put_service, to().max_in_flight_bytes(64 << 10).order(PublishOrder::Relaxed));
    let held = sink.clone();
    let many = stream::iter((0..1_000).map(|number| Ok(Outgoing::new("key", format!("{number:>900}")))));
    let sending = many.forward(sink);
    pin_mut!(sending);
    for _ in 0..200 {
        assert!(poll!(&mut sending).is_pending());
        assert!(held.stats().in_flight_bytes <= (64 << 10) + 1_200, "{:?}", held.stats());
        yield_now().await;
    }
    // The bound counts records of 900 + 3 + 256 bytes; one record exceeds it.
    assert_eq!(held.stats().in_flight, (64 << 10) / 1_159 + 1);
    timeout(LONG, sending).await.expect("the record is accepted").unwrap();
    assert_eq!(put_service.stored().len(), 1_000);
    assert_eq!((held.stats().published, held.stats().in_flight_bytes), (1_000, 0));
}

// P3
#[tokio::test(start_paused = true)]
async fn a_record_as_large_as_the_bound_is_sent_while_other_handles_are_idle() {
    let put_service = PutService::kind();
    let sink = sink(&put_service, to().max_in_flight_bytes(64 << 10));
    let mut idle = sink.clone();
    futures::future::poll_fn(|cx| Sink::<Outgoing>::poll_ready(std::pin::Pin::new(&mut idle), cx)).await.unwrap();
    let large = || sink.publish(Outgoing::new("key", vec![b'.'; 1 << 20]));
    let (one, other) = timeout(LONG, futures::future::join(large(), large())).await.expect("they go through");
    assert!(one.is_ok() && other.is_ok());
    drop(idle);
}

// P3
#[tokio::test(start_paused = true)]
async fn records_that_wait_for_room_are_accepted_first_in_first_out() {
    let put_service = PutService::kind();
    let sink = &sink(&put_service, to().max_in_flight_bytes(64 << 10).request_records(7));
    let records = (0..300).map(|number| sink.publish(Outgoing::new("key", format!("{number:>1000}"))));
    let results = stream::iter(records).buffered(200).collect::<Vec<_>>().await;
    assert!(results.iter().all(Result::is_ok));
    let numbers: Vec<usize> = put_service.texts().iter().map(|text| text.trim().parse().unwrap()).collect();
    assert_eq!(numbers, (0..300).collect::<Vec<_>>());
}
