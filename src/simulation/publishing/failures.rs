//! Retries and permanent errors (P3).

use std::collections::BTreeSet;

use futures::SinkExt;

use super::{
    super::put_service::{Outcome, PutService},
    assert_in_order, cause, records, result_texts, send, sink, to,
};

use crate::{
    error::{chain::Chain, service::FailureKind},
    publishing::record::Outgoing,
    simulation::harness::seconds,
};

// P3
#[tokio::test(start_paused = true)]
async fn a_key_has_one_record_in_flight_and_keeps_its_order_through_failures() {
    let put_service = PutService::new(|k, entries| match k {
        0..6 => Outcome::Fails(vec![(entries.len() - 1, FailureKind::Throttled)]),
        6 => Outcome::Refused(FailureKind::Other),
        7 => Outcome::Lost(FailureKind::Unreachable),
        _ => Outcome::Stored,
    });
    let results = put_service.publisher().1.publish_all("s", records("ababababab")).await;
    assert!(results.iter().all(Result::is_ok));
    for asked in put_service.asked() {
        let keys: BTreeSet<_> = asked.entries.iter().map(|entry| &entry.partition_key).collect();
        assert_eq!(keys.len(), asked.entries.len());
    }
    assert_in_order(&put_service.stored());
}

// P3
#[tokio::test(start_paused = true)]
async fn after_seconds_of_throttling_every_record_is_stored_with_few_calls() {
    let start = tokio::time::Instant::now();
    let throttled = PutService::new(move |_, entries| {
        if start.elapsed() < seconds(5) {
            Outcome::Fails((0..entries.len()).map(|place| (place, FailureKind::Throttled)).collect())
        } else {
            Outcome::Stored
        }
    });
    let results = throttled.publisher().1.publish_all("s", records("abcdefgh")).await;
    assert!(results.iter().all(Result::is_ok));
    assert!(throttled.requests().len() <= 8, "{:?}", throttled.requests());
    assert!(throttled.requests().iter().all(|request| request == "0 1 2 3 4 5 6 7"));
}

// P3
#[tokio::test(start_paused = true)]
async fn a_lost_response_can_store_a_record_twice_but_never_loses_it() {
    let put_service =
        PutService::new(|k, _| if k == 0 { Outcome::Lost(FailureKind::Unreachable) } else { Outcome::Stored });
    let results = put_service.publisher().1.publish_all("s", records("ab")).await;
    assert_eq!(result_texts(&results), ["3", "4"]);
    assert_eq!(put_service.texts(), ["0", "1", "0", "1"]);
}

// P3
#[tokio::test(start_paused = true)]
async fn a_refused_record_fails_alone_and_at_once() {
    let put_service = PutService::new(|_, entries| {
        let too_large = entries.iter().any(|entry| entry.data.len() > 1_000);
        if too_large { Outcome::Refused(FailureKind::Rejected) } else { Outcome::Stored }
    });
    let mut given: Vec<_> = (0..500).map(|number| Outgoing::new(format!("key {number}"), "x")).collect();
    given[123] = Outgoing::new("large", vec![b'.'; 1_001]);
    let results = put_service.publisher().1.publish_all("s", given).await;
    let refused: Vec<_> = results.iter().enumerate().filter(|(_, result)| result.is_err()).collect();
    assert_eq!((refused.len(), refused[0].0), (1, 123));
    let error = refused[0].1.clone().unwrap_err();
    assert_eq!((cause(&error), error.attempts(), error.record().payload().len()), ("refused", 1, 1_001));
    assert_eq!(put_service.stored().len(), 499);
    // The sink halves the 500 records nine times, with two requests each time.
    assert!(put_service.requests().len() <= 1 + 2 * 9, "{}", put_service.requests().len());
    assert!(put_service.millis() <= 10 * 20);
}

// P3
#[tokio::test(start_paused = true)]
async fn permanent_errors_are_not_retried() {
    let put_service = PutService::new(|_, _| Outcome::Refused(FailureKind::Denied));
    let results = put_service.publisher().1.publish_all("s", records("ab")).await;
    assert_eq!((result_texts(&results), put_service.requests().len()), (vec!["denied".to_owned(); 2], 1));
}

// P4
#[tokio::test(start_paused = true)]
async fn a_stream_that_is_not_found_is_tried_for_some_seconds() {
    let new = PutService::new(|k, _| if k < 2 { Outcome::Refused(FailureKind::NotFound) } else { Outcome::Stored });
    let results = new.publisher().1.publish_all("s", records("abc")).await;
    assert_eq!((result_texts(&results), new.stored().len()), (["1", "2", "3"].map(str::to_owned).to_vec(), 3));

    let missing = PutService::new(|_, _| Outcome::Refused(FailureKind::NotFound));
    let results = missing.publisher().1.publish_all("s", records("ab")).await;
    assert_eq!(result_texts(&results), ["stream"; 2]);
    assert!((5_000..=15_000).contains(&missing.millis()), "{}", missing.millis());
}

// P4
#[tokio::test(start_paused = true)]
async fn refusals_that_pass_are_retried_and_fail_none_of_many_records() {
    for kind in [FailureKind::Credentials, FailureKind::KeyUnusable] {
        let put_service = PutService::new(move |k, _| if k < 5 { Outcome::Refused(kind) } else { Outcome::Stored });
        let given = (0..10_000).map(|number| Outgoing::new(format!("key {number}"), "x"));
        let results = put_service.publisher().1.publish_all("s", given).await;
        assert_eq!(results.iter().filter(|result| result.is_err()).count(), 0, "{kind:?}");
        assert_eq!(put_service.stored().len(), 10_000);
    }
}

// P1, P4
#[tokio::test(start_paused = true)]
async fn one_record_is_tried_again_for_some_seconds_if_its_stream_is_not_found() {
    for (refusals, is_stored) in [(2, true), (100, false)] {
        let put_service =
            PutService::new(
                move |k, _| {
                    if k < refusals { Outcome::Refused(FailureKind::NotFound) } else { Outcome::Stored }
                },
            );
        let published = put_service.publisher().1.publish("s", Outgoing::new("a", "x")).await;
        assert_eq!(published.is_ok(), is_stored, "{published:?}");
        if !is_stored {
            assert!((5_000..=7_000).contains(&put_service.millis()), "{}", put_service.millis());
        }
    }
}

// P3
#[tokio::test(start_paused = true)]
async fn a_record_fails_once_its_time_or_its_attempts_are_used_up() {
    let out_of_reach = || PutService::new(|_, _| Outcome::Refused(FailureKind::Unreachable));
    let put_service = out_of_reach();
    let results = put_service.publisher().1.publish_all(to().delivery_timeout(seconds(10)), records("aa")).await;
    assert_eq!(result_texts(&results), ["gave up"; 2]);
    // The pauses are random: at that time a request may be under way, and the close waits for it.
    let waited = put_service.millis();
    assert!((10_000..=10_020).contains(&waited), "{waited}");
    let error = results[0].clone().unwrap_err();
    assert_eq!(error.record(), &Outgoing::new("a", "0"));
    assert!(Chain(&error).to_string().contains("s: kinesis:PutRecords failed: Unreachable"), "{}", Chain(&error));
    assert!(results[1].clone().unwrap_err().cause().to_string().contains("in 0 attempts and 10"), "{results:?}");

    let put_service = out_of_reach();
    let results = put_service.publisher().1.publish_all(to().max_attempts(3), records("a")).await;
    assert_eq!((result_texts(&results), put_service.requests().len()), (vec!["gave up".to_owned()], 3));
    assert_eq!(results[0].clone().unwrap_err().attempts(), 3);
}

// P3
#[tokio::test(start_paused = true)]
async fn a_later_call_returns_the_failure_and_the_sink_continues() {
    let put_service =
        PutService::new(|k, _| if k == 0 { Outcome::Refused(FailureKind::Denied) } else { Outcome::Stored });
    let mut sink = sink(&put_service, to());
    send(&mut sink, records("ab")).await;
    let error = sink.flush().await.unwrap_err();
    assert_eq!((cause(&error), error.record().payload().as_ref()), ("denied", &b"0"[..]));
    let error = SinkExt::<Outgoing>::feed(&mut sink, Outgoing::new("c", "2")).await.unwrap_err();
    assert_eq!((cause(&error), error.record().payload().as_ref()), ("denied", &b"1"[..]));
    SinkExt::<Outgoing>::send(&mut sink, Outgoing::new("c", "3")).await.unwrap();
    assert_eq!(put_service.texts(), ["3"]);
    let error = SinkExt::<Outgoing>::send(&mut sink, Outgoing::new("", "4")).await.unwrap_err();
    assert_eq!(cause(&error), "invalid");
    sink.close().await.unwrap();
}
