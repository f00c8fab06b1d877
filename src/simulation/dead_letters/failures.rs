//! Dead letters that cannot be written, and the errors that replace them (A7, X2).

use std::error::Error as _;

use tokio::time::sleep;

use super::{
    super::{
        script::{Fault, Rule},
        scripted_service::ServiceOp,
    },
    dead_letters, seconds_of_writes, stats, with_attempts,
};

use crate::{
    delivery::Delivery,
    error::{ErrorClass, KinesisError, chain::Chain, service::FailureKind},
    simulation::harness::{Harness, error, horizon, item, name, next, seconds, take, within},
};

// A7, X2, R12
#[tokio::test(start_paused = true)]
async fn without_a_dead_letter_stream_a_spent_record_is_yielded_as_an_error_and_then_settled() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let mut subscription = harness.instance("me").subscribe(horizon().max_attempts(2)).await;
    let mut records = take(&mut subscription, 3).await;
    records.remove(1).nack();
    records.into_iter().for_each(Delivery::ack);
    let again = next(&mut subscription).await;
    assert_eq!((name(&again), again.attempt()), ("a1", 2));
    again.nack_because("no such customer");
    sleep(seconds(5)).await;
    assert_eq!(harness.checkpoint("a").await, "after a0");
    let spent = error(&mut subscription).await;
    assert_eq!(spent.class(), ErrorClass::Record);
    assert_eq!(spent.to_string(), "stream s, shard a, sequence number a1: given up after attempt 2: no such customer");
    let KinesisError::AttemptsSpent { record, attempts, reason, source, .. } = spent else { panic!("{spent}") };
    assert_eq!((record.payload().as_ref(), record.partition_key(), record.stream()), (&b"a1"[..], Some("k"), "s"));
    assert_eq!((record.shard().as_str(), record.sequence_number().as_str(), record.headers().len()), ("a", "a1", 0));
    assert_eq!((attempts, &*reason, source.is_none()), (2, "no such customer", true));
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a2");
    let shard = stats(&subscription);
    assert_eq!((shard.redeliveries, shard.spent, shard.dead_letters, shard.in_flight), (1, 1, 0, 0));
    assert!(within(&mut subscription, seconds(200)).await.is_empty());
}

// X2
#[tokio::test(start_paused = true)]
async fn every_spent_record_is_yielded_as_a_separate_error() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let mut subscription = harness.instance("me").subscribe(horizon().max_attempts(1)).await;
    take(&mut subscription, 3).await.into_iter().for_each(Delivery::nack);
    for number in ["a0", "a1", "a2"] {
        let KinesisError::AttemptsSpent { record, .. } = error(&mut subscription).await else { panic!("{number}") };
        assert_eq!(record.sequence_number().as_str(), number);
    }
}

// A7, X2
#[tokio::test(start_paused = true)]
async fn a_record_stays_unsettled_while_its_dead_letter_fails_and_its_shard_continues() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::PutRecord).times(4), FailureKind::Throttled);
    let mut subscription = me.subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    let rest = take(&mut subscription, 2).await;
    let failed = error(&mut subscription).await;
    assert_eq!(failed.class(), ErrorClass::Transient);
    assert_eq!(failed.source().unwrap().to_string(), "kinesis:PutRecord failed: Throttled");
    assert_eq!(
        failed.to_string(),
        "stream s, shard a, sequence number a0: the record could not be written to the dead-letter stream dead; \
         the library retries"
    );
    rest.into_iter().for_each(Delivery::ack);
    sleep(seconds(10)).await;
    assert_eq!((harness.checkpoint("a").await.as_str(), stats(&subscription).in_flight), ("at a0", 1));
    sleep(seconds(10)).await;
    assert_eq!(seconds_of_writes(&me), [0, 1, 3, 7, 15]);
    assert_eq!((dead_letters(&harness), harness.checkpoint("a").await.as_str()), (vec!["a0".to_owned()], "after a2"));
    // Three more failures happened, and the test took none of them: one is left.
    assert!(matches!(error(&mut subscription).await, KinesisError::DeadLetter { .. }));
    assert!(within(&mut subscription, seconds(200)).await.is_empty());
}

// A7
#[tokio::test(start_paused = true)]
async fn a_missing_or_denied_dead_letter_stream_is_tried_once_a_minute() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 20);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::PutRecord).times(16), FailureKind::NotFound);
    me.service.fail(Rule::on(ServiceOp::PutRecord).times(2), FailureKind::Denied);
    let mut subscription = me.subscribe(with_attempts(1)).await;
    take(&mut subscription, 20).await.into_iter().for_each(Delivery::nack);
    sleep(seconds(300)).await;
    let expected = [[0; 16].as_slice(), &[60, 120], &[180; 20]].concat();
    assert_eq!(seconds_of_writes(&me), expected);
    let mut all = dead_letters(&harness);
    all.sort_by_key(|name| name[1..].parse::<usize>().unwrap());
    assert_eq!(all, crate::simulation::harness::range("a", 0..20));
    assert_eq!(harness.checkpoint("a").await, "after a19");
}

// A7, X2
#[tokio::test(start_paused = true)]
async fn a_record_that_no_dead_letter_can_hold_is_yielded_as_an_error() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put_data("a", vec![b'.'; (10 << 20) - 1]);
    harness.kinesis.put("a", 2);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::PutRecord), FailureKind::Rejected);
    let mut subscription = me.subscribe(with_attempts(1)).await;
    take(&mut subscription, 3).await.into_iter().for_each(Delivery::nack);
    let mut causes = Vec::new();
    for (number, bytes) in [("a0", (10 << 20) - 1), ("a1", 2)] {
        let KinesisError::AttemptsSpent { record, source, .. } = error(&mut subscription).await else {
            panic!("{number}")
        };
        assert_eq!((record.sequence_number().as_str(), record.payload().len()), (number, bytes));
        let source = source.unwrap();
        assert_eq!(source.kind(), FailureKind::Rejected);
        causes.push(Chain(&source).to_string());
    }
    causes.sort();
    assert_eq!(causes[0], "kinesis:PutRecord failed: Rejected");
    assert!(causes[1].contains("nothing was sent: invalid record size: at most 10485760 bytes"), "{}", causes[1]);
    sleep(seconds(2)).await;
    assert_eq!((dead_letters(&harness), seconds_of_writes(&me)), (vec!["a2".to_owned()], vec![0, 0]));
    assert_eq!(harness.checkpoint("a").await, "after a2");
    assert_eq!((stats(&subscription).spent, stats(&subscription).dead_letters), (3, 1));
}

// A7, X1
#[tokio::test(start_paused = true)]
async fn a_panic_in_a_dead_letter_write_ends_the_subscription() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::PutRecord), Fault::Panic);
    let mut subscription = me.subscribe(with_attempts(1)).await;
    next(&mut subscription).await.nack();
    assert!(matches!(error(&mut subscription).await, KinesisError::Interrupted { .. }));
    assert!(item(&mut subscription).await.is_none());
}
