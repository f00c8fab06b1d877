//! When and how dead letters are written (A7).

use std::panic::{AssertUnwindSafe, catch_unwind};

use bytes::Bytes;
use tokio::time::{Duration, sleep};

use super::{
    super::{
        kinesis::EPOCH,
        script::{Fault, Rule},
        scripted_service::ServiceOp,
    },
    dead_letters, letters, seconds_of_writes, stats, with_attempts,
};

use crate::{
    config::redelivery::DeadLetterFormat,
    dead_letters::dead_letter::DeadLetter,
    delivery::Delivery,
    error::service::FailureKind,
    simulation::harness::{Harness, horizon, millis, name, next, seconds, take, within},
    wire::envelope,
};

// A7
#[tokio::test(start_paused = true)]
async fn a_spent_record_is_written_unchanged_to_the_dead_letter_stream_and_then_settled() {
    let harness = Harness::new(&["a"]);
    let sent = [("id".to_owned(), Bytes::from("1")), ("id".to_owned(), Bytes::from("2"))];
    harness.kinesis.put_data("a", envelope::encode(&sent, Bytes::from("payload")).unwrap());
    let mut subscription = harness.instance("me").subscribe(with_attempts(3)).await;
    next(&mut subscription).await.nack_because("too early");
    drop(next(&mut subscription).await);
    let last = next(&mut subscription).await.map(|bytes| bytes.len());
    assert_eq!((last.attempt(), *last.payload()), (3, 7));
    last.nack_because(format_args!("no such customer: {}", 17));
    // From here on the test does not poll the subscription.
    sleep(millis(1)).await;
    let written = harness.kinesis.written();
    assert_eq!(written.len(), 1);
    assert_eq!((written[0].stream.as_str(), written[0].key.as_str()), ("dead", "k"));
    let json = concat!(
        r#"{"format":"kinesis-dead-letter/1","stream":"s","shard":"a","sequence_number":"a0","partition_key":"k","#,
        r#""arrived_at":"2023-11-14T22:13:20Z","consumer":"test","attempts":3,"rejected":false,"reason":"no such customer: 17","#,
        r#""headers":[{"name":"id","value":"1"},{"name":"id","value":"2"}],"payload":"payload"}"#,
        "\n"
    );
    assert_eq!(str::from_utf8(&written[0].data).unwrap(), json);
    assert_eq!(letters(&harness)[0].record().arrived_at, Some(EPOCH));
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a0");
    let shard = stats(&subscription);
    assert_eq!((shard.redeliveries, shard.spent, shard.dead_letters, shard.in_flight), (2, 1, 1, 0));
    assert!(within(&mut subscription, seconds(200)).await.is_empty());
}

// A7
#[tokio::test(start_paused = true)]
async fn the_configured_pauses_apply() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(horizon().retry_backoff(millis(200)..=seconds(1))).await;
    let mut record = next(&mut subscription).await;
    for pause in [200, 400, 800, 1_000, 1_000] {
        let before = harness.millis();
        record.nack();
        record = next(&mut subscription).await;
        assert_eq!(harness.millis() - before, pause);
    }
    assert_eq!(record.attempt(), 6);
}

// A7, A2
#[tokio::test(start_paused = true)]
async fn a_dead_letter_says_how_the_record_was_given_back() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 4);
    let mut subscription = harness.instance("me").subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    drop(next(&mut subscription).await);
    let record = next(&mut subscription).await;
    let worker = AssertUnwindSafe(move || assert_eq!(name(&record), "something else", "on purpose"));
    assert!(catch_unwind(worker).is_err());
    let failed =
        next(&mut subscription).await.try_map(|bytes| bytes[0].is_ascii_digit().then_some(()).ok_or("no digit"));
    let failed = failed.unwrap_err();
    failed.delivery.nack_because(failed.source);
    sleep(millis(1)).await;
    let reasons: Vec<String> = letters(&harness).iter().map(|letter| letter.reason().to_owned()).collect();
    assert_eq!(reasons, ["given back", "dropped", "dropped by a panic", "no digit"]);
}

// A7, A2
#[tokio::test(start_paused = true)]
async fn with_ack_on_drop_a_drop_is_not_a_failed_attempt() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let mut subscription = harness.instance("me").subscribe(with_attempts(1).ack_on_drop()).await;
    drop(next(&mut subscription).await);
    next(&mut subscription).await.nack();
    sleep(seconds(2)).await;
    assert_eq!((dead_letters(&harness), harness.checkpoint("a").await.as_str()), (vec!["a1".to_owned()], "after a1"));
}

// A7
#[tokio::test(start_paused = true)]
async fn a_dead_letter_without_a_key_uses_its_sequence_number_as_key() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put_keys("a", ".");
    let mut subscription = harness.instance("me").subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    sleep(millis(1)).await;
    assert_eq!((&*harness.kinesis.written()[0].key, letters(&harness)[0].record().partition_key()), ("a0", None));
}

// A7, S5
#[tokio::test(start_paused = true)]
async fn a_dead_letter_can_be_the_original_record_with_headers_in_front() {
    let harness = Harness::new(&["a"]);
    let sent = [("id".to_owned(), Bytes::from("1"))];
    harness.kinesis.put_data("a", envelope::encode(&sent, Bytes::from("payload")).unwrap());
    let stream = with_attempts(1).dead_letter_format(DeadLetterFormat::Envelope);
    let mut subscription = harness.instance("me").subscribe(stream).await;
    next(&mut subscription).await.nack();
    sleep(millis(1)).await;
    let (headers, payload) = envelope::decode(harness.kinesis.written()[0].data.clone());
    let names: Vec<&str> = headers.iter().map(|(name, _)| name).collect();
    assert_eq!((names[0], names[6], names[7]), ("kinesis-dead-letter-stream", "kinesis-dead-letter-reason", "id"));
    assert_eq!((payload.as_ref(), letters(&harness)[0].record().headers.len()), (&b"payload"[..], 1));
}

// A7: a consumer of dead letters may give them up, too.
#[tokio::test(start_paused = true)]
async fn a_dead_letter_that_dies_again_holds_the_first_one_in_any_mix_of_formats() {
    for first in [DeadLetterFormat::Json, DeadLetterFormat::Envelope] {
        for second in [DeadLetterFormat::Json, DeadLetterFormat::Envelope] {
            let harness = Harness::new(&["a"]);
            harness.kinesis.put("a", 1);
            let me = harness.instance("me");
            let mut subscription = me.subscribe(with_attempts(1).dead_letter_format(first)).await;
            next(&mut subscription).await.nack_because("the first reason");
            sleep(millis(1)).await;
            harness.kinesis.put_data("a", harness.kinesis.written()[0].data.clone());
            subscription.close().await;
            let mut subscription = me.subscribe(with_attempts(1).dead_letter_format(second)).await;
            next(&mut subscription).await.nack_because("the second reason");
            sleep(millis(1)).await;
            let outer = letters(&harness).remove(1);
            let inner = DeadLetter::try_from(outer.record()).unwrap();
            assert_eq!((outer.reason(), inner.reason()), ("the second reason", "the first reason"));
            assert_eq!(inner.record().payload(), "a0");
            assert_eq!(inner, letters(&harness).remove(0));
        }
    }
}

// A7
#[tokio::test(start_paused = true)]
async fn sixteen_dead_letters_are_written_concurrently() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 40);
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::PutRecord).always(), Fault::Delay(seconds(1)));
    let mut subscription = me.subscribe(with_attempts(1)).await;
    take(&mut subscription, 40).await.into_iter().for_each(Delivery::nack);
    sleep(seconds(5)).await;
    assert_eq!(seconds_of_writes(&me), [[0; 16].as_slice(), &[1; 16], &[2; 8]].concat());
    assert_eq!(harness.checkpoint("a").await, "after a39");
}

// A7
#[tokio::test(start_paused = true)]
async fn a_lost_response_writes_a_second_dead_letter_and_loses_nothing() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::PutRecord), Fault::LoseAnswer(FailureKind::Unreachable));
    let mut subscription = me.subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    sleep(Duration::from_secs(3)).await;
    assert_eq!(
        (dead_letters(&harness), harness.checkpoint("a").await.as_str()),
        (vec!["a0".to_owned(); 2], "after a0")
    );
}
