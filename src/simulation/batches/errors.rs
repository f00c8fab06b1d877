//! Batches around errors and the end of the stream (X1, X2, L9).

use futures::StreamExt;
use tokio::time::{sleep, timeout};

use super::{
    super::{
        script::{Fault, Rule},
        scripted_service::ServiceOp,
    },
    LONG, batch_names, batches, item, next, timed,
};

use crate::{
    error::{ErrorClass, KinesisError, service::FailureKind},
    simulation::harness::{Harness, horizon, latest, millis, range, seconds},
    types::commit::Commit,
};

// X1
#[tokio::test(start_paused = true)]
async fn an_error_is_yielded_at_once_and_the_open_batch_keeps_filling() {
    let harness = Harness::new(&["a", "b"]);
    let me = harness.instance("me");
    let late = Fault::FailAfter(millis(20), FailureKind::Other);
    me.service.script.plan(Rule::on(ServiceOp::GetRecords).of("b").after(1), late);
    let mut batches = batches(&me, latest(), 100).await.max_wait(seconds(2));
    harness.kinesis.put("a", 2);
    harness.kinesis.put("b", 2);
    assert!(matches!(item(&mut batches).await, Some(Err(KinesisError::Read { failures: 1, .. }))));
    assert_eq!(harness.millis(), 1_020);
    assert_eq!(timed(&harness, &mut batches).await, ([range("a", 0..2), range("b", 0..2)].concat(), 3_000));
}

// X2
#[tokio::test(start_paused = true)]
async fn tolerant_batches_skip_transient_errors() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).after(1), FailureKind::Other);
    harness.kinesis.put("a", 5);
    let mut batches = me.subscribe(horizon().read_limit(2)).await.tolerant().batches(3).unwrap();
    assert_eq!(timed(&harness, &mut batches).await, (range("a", 0..2), 50));
    assert_eq!(timed(&harness, &mut batches).await, (range("a", 2..5), 1_001));
}

// X1
#[tokio::test(start_paused = true)]
async fn the_open_batch_is_yielded_before_a_fatal_error_and_the_end() {
    let harness = Harness::new(&["a", "b"]);
    let me = harness.instance("me");
    let mut batches = me.subscribe(latest()).await.batches_by_shard(9).unwrap().max_wait(LONG);
    harness.kinesis.put("a", 2);
    harness.kinesis.put("b", 3);
    assert!(timeout(seconds(2), batches.next()).await.is_err());
    harness.kinesis.delete();
    let mut left: Vec<Vec<String>> = Vec::new();
    let error = loop {
        match item(&mut batches).await {
            Some(Ok(batch)) => left.push(batch_names(&batch)),
            Some(Err(error)) if error.class() == ErrorClass::Transient => assert_eq!(left.len(), 0),
            Some(Err(error)) => break error,
            None => panic!("the stream ended without the error"),
        }
    };
    left.sort();
    assert_eq!(left, [range("a", 0..2), range("b", 0..3)]);
    assert!(matches!(error, KinesisError::StreamGone { .. }), "{error}");
    assert!(harness.millis() < 60_000);
    for _ in 0..2 {
        assert!(item(&mut batches).await.is_none());
    }
}

// L9
#[tokio::test(start_paused = true)]
async fn closing_yields_the_open_batch_at_once_and_waits_for_it() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut batches = batches(&me, horizon(), 9).await.max_wait(LONG);
    assert!(timeout(seconds(1), batches.next()).await.is_err());
    let closer = batches.get_ref().closer();
    let closing = tokio::spawn(async move { closer.close().await });
    let batch = next(&mut batches).await;
    assert_eq!((batch_names(&batch), harness.millis()), (range("a", 0..3), 1_000));
    assert!(item(&mut batches).await.is_none());
    sleep(seconds(20)).await;
    assert_eq!(batch.commit().await.unwrap(), Commit::Stored);
    assert!(closing.await.unwrap().is_clean());
    assert_eq!((harness.checkpoint("a").await, harness.owner("a").await), ("after a2".to_owned(), String::new()));
}
