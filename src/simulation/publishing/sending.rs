//! Requests, results and the order of keys (P3).

use futures::{pin_mut, poll};
use tokio::time::sleep;

use super::{
    super::put_service::{Outcome, PutService, ROUND_TRIP},
    records, result_texts, send, sink, to,
};

use crate::{
    error::service::FailureKind,
    publishing::record::{Outgoing, PublishOrder},
    simulation::harness::{millis, seconds},
};

// L1, P3
#[tokio::test(start_paused = true)]
async fn only_the_failed_one_of_three_records_is_resent_and_each_gets_its_result() {
    let put_service = PutService::new(|k, _| match k {
        0 => Outcome::Fails(vec![(1, FailureKind::Throttled)]),
        _ => Outcome::Stored,
    });
    let results = put_service.publisher().1.publish_all("s", records("abc")).await;
    assert_eq!(result_texts(&results), ["1", "3", "2"]);
    assert!(results.iter().flatten().all(|published| published.shard().as_str() == "shard"));
    assert_eq!(put_service.requests(), ["0 1 2", "1"]);
    let (first, again) = (put_service.asked()[0].at + ROUND_TRIP, put_service.asked()[1].at);
    assert!((first + millis(100)..=first + millis(200)).contains(&again), "{again:?}");
}

// P3
#[tokio::test(start_paused = true)]
async fn results_arrive_in_record_order_and_an_invalid_record_stops_no_other() {
    let put_service = PutService::kind();
    let mut given = records("aab");
    given.insert(1, Outgoing::new("", "no key"));
    given.push(Outgoing::new("k", vec![0; 10 << 20]));
    let results = put_service.publisher().1.publish_all(to().request_records(1).max_requests(1), given).await;
    assert_eq!(result_texts(&results), ["1", "invalid", "2", "3", "invalid"]);
    let (record, _) = results[1].clone().unwrap_err().into_parts();
    assert_eq!(record, Outgoing::new("", "no key"));
    let none = put_service.publisher().1.publish_all("no spaces", records("ab")).await;
    assert_eq!(result_texts(&none), ["invalid", "invalid"]);
    assert!(put_service.publisher().1.publish_all("s", []).await.is_empty());
}

// P3
#[tokio::test(start_paused = true)]
async fn a_partial_request_lingers_and_a_full_one_does_not() {
    let put_service = PutService::kind();
    let mut sink = sink(&put_service, to().request_records(3).linger(millis(50)));
    send(&mut sink, records("abcd")).await;
    sleep(millis(1)).await;
    assert_eq!(put_service.requests(), ["0 1 2"]);
    sleep(millis(48)).await;
    assert_eq!(put_service.requests(), ["0 1 2"]);
    sleep(millis(2)).await;
    // The test has not polled the sink.
    assert_eq!(put_service.requests(), ["0 1 2", "3"]);
}

// P3
#[tokio::test(start_paused = true)]
async fn flush_sends_at_once_and_waits_for_every_response() {
    let put_service = PutService::kind();
    let mut sink = sink(&put_service, to().linger(seconds(60)));
    send(&mut sink, records("aba")).await;
    sink.flush().await.unwrap();
    assert_eq!((put_service.requests(), put_service.millis()), (vec!["0 1".to_owned(), "2".to_owned()], 40));
    assert_eq!(sink.stats().in_flight, 0);
    sink.flush().await.unwrap();
    // The flush does not wait for records that others send meanwhile.
    let mut other = sink.clone();
    send(&mut sink, records("a")).await;
    {
        let flush = sink.flush();
        pin_mut!(flush);
        assert!(poll!(&mut flush).is_pending());
        sleep(millis(1)).await;
        send(&mut other, records("b")).await;
        flush.await.unwrap();
    }
    assert_eq!(other.stats().in_flight, 1);
    sink.close().await.unwrap();
    assert_eq!(put_service.texts().len(), 5);
}

// P3
#[tokio::test(start_paused = true)]
async fn a_key_sends_one_record_per_round_trip_unless_the_order_is_relaxed() {
    let (ordered, relaxed) = (PutService::kind(), PutService::kind());
    let fifty = records(&"a".repeat(50));
    ordered.publisher().1.publish_all("s", fifty.clone()).await;
    assert_eq!((ordered.requests().len(), ordered.millis()), (50, 1_000));
    let begun = relaxed.millis();
    relaxed.publisher().1.publish_all(to().order(PublishOrder::Relaxed), fifty).await;
    assert_eq!((relaxed.requests().len(), relaxed.millis() - begun), (1, 20));
}

// S5
#[tokio::test(start_paused = true)]
async fn each_record_is_sent_with_its_headers_hash_key_and_partition_key() {
    let put_service = PutService::kind();
    let given = vec![
        Outgoing::new("k", "plain"),
        Outgoing::new("l", "p").header("a", "b").explicit_hash_key(u128::MAX),
        Outgoing::new("m", &b"RSK2\0\0\0\0inner"[..]),
    ];
    let results = put_service.publisher().1.publish_all("s", given).await;
    assert!(results.iter().all(Result::is_ok));
    let stored = put_service.stored();
    assert_eq!(
        (stored[0].partition_key.as_str(), stored[0].explicit_hash_key, &stored[0].data[..]),
        ("k", None, &b"plain"[..])
    );
    let enveloped = &b"RSK2\0\0\0\x0a\0\0\0\x01a\0\0\0\x01bp"[..];
    assert_eq!((stored[1].explicit_hash_key, &stored[1].data[..]), (Some(u128::MAX), enveloped));
    assert_eq!(&stored[2].data[..], b"RSK2\0\0\0\0RSK2\0\0\0\0inner");
}

// P3
#[tokio::test(start_paused = true)]
async fn a_snapshot_shows_the_state_of_a_sink() {
    let put_service = PutService::new(|k, _| match k {
        0 => Outcome::Fails(vec![(0, FailureKind::Throttled), (1, FailureKind::Denied)]),
        1 => Outcome::Hangs,
        _ => Outcome::Stored,
    });
    let mut sink = sink(&put_service, to());
    send(&mut sink, records("abca")).await;
    sleep(seconds(3)).await;
    let stats = sink.stats();
    assert_eq!((&*stats.stream, stats.published, stats.bytes, stats.failed), ("s", 1, 2, 1));
    assert_eq!((stats.requests, stats.retries, stats.throttles), (2, 1, 1));
    assert_eq!((stats.in_flight, stats.in_flight_bytes, stats.oldest), (2, 2 * (2 + 256), Some(seconds(3))));
}

// P3
#[cfg(feature = "kpl")]
#[tokio::test(start_paused = true)]
async fn aggregation_packs_the_waiting_records_of_a_key() {
    let put_service = PutService::kind();
    let hundred = records(&"a".repeat(100));
    let results = put_service.publisher().1.publish_all(to().aggregate(), hundred).await;
    assert_eq!((put_service.requests().len(), put_service.millis()), (1, 20));
    let places: Vec<_> = results.iter().map(|result| result.as_ref().unwrap().sub_sequence_number()).collect();
    assert_eq!(places, (0..100).map(Some).collect::<Vec<_>>());
    assert!(results.iter().flatten().all(|published| published.sequence_number().as_str() == "1"));
}
