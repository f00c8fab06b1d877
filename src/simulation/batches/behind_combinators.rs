//! Batches behind other combinators (A1, A2, A5, X1, X2).

use futures::{StreamExt, TryStreamExt, stream::FusedStream};
use tokio::time::{sleep, timeout};

use super::{
    super::{
        script::{Fault, Rule},
        scripted_service::ServiceOp,
    },
    LONG,
};

use crate::{
    delivery::{Delivery, TryMapError},
    error::{ErrorClass, KinesisError, service::FailureKind},
    simulation::harness::{CapturedLogs, Harness, horizon, latest, millis, names, range, seconds},
    subscription::{batch::Batch, delivery_stream_ext::DeliveryStreamExt},
    types::commit::Commit,
};

fn text(delivery: Delivery) -> Delivery<String> {
    delivery.map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
}

fn texts(batch: &Batch<String>) -> Vec<String> {
    batch.payloads().cloned().collect()
}

// A1, R7
#[tokio::test(start_paused = true)]
async fn mapped_deliveries_come_in_batches_and_reads_keep_their_size() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 7);
    let me = harness.instance("me");
    let mut batches = me.subscribe(horizon()).await.map_ok(text).batches(3).unwrap();
    for (expected, at) in [(range("a", 0..3), 0), (range("a", 3..6), 0), (range("a", 6..7), 50)] {
        let batch = batches.next().await.unwrap().unwrap();
        assert_eq!((texts(&batch), harness.millis()), (expected, at));
        assert_eq!(batch.commit().await.unwrap(), Commit::Stored);
    }
    assert_eq!(batches.get_ref().get_ref().context().read_limit(), 1_000);
    assert_eq!(harness.checkpoint("a").await, "after a6");
}

// S1
#[tokio::test(start_paused = true)]
async fn batches_by_shard_of_mapped_deliveries_do_not_mix_shards() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 2);
    harness.kinesis.put("b", 2);
    let subscription = harness.instance("me").subscribe(horizon()).await;
    let mut batches = subscription.map_ok(text).batches_by_shard(3).unwrap().max_wait(seconds(1));
    let mut seen = Vec::new();
    for _ in 0..2 {
        let batch = batches.next().await.unwrap().unwrap();
        seen.push(texts(&batch));
        batch.ack();
    }
    seen.sort();
    assert_eq!((seen, harness.millis()), (vec![range("a", 0..2), range("b", 0..2)], 1_000));
}

// X1, X2
#[tokio::test(start_paused = true)]
async fn an_error_is_yielded_at_once_and_the_last_one_after_the_batch() {
    let harness = Harness::new(&["a", "b"]);
    let me = harness.instance("me");
    let late = Fault::FailAfter(millis(20), FailureKind::Other);
    me.service.script.plan(Rule::on(ServiceOp::GetRecords).of("b").after(1), late);
    let mut batches = me.subscribe(latest()).await.map_ok(text).batches(100).unwrap().max_wait(LONG);
    harness.kinesis.put("a", 2);
    harness.kinesis.put("b", 2);
    let error = batches.next().await.unwrap().unwrap_err();
    assert!(matches!(error, KinesisError::Read { failures: 1, .. }), "{error}");
    assert_eq!(harness.millis(), 1_020);
    assert!(timeout(seconds(2), batches.next()).await.is_err());
    harness.kinesis.delete();
    let mut classes = Vec::new();
    while let Some(item) = batches.next().await {
        classes.push(item.map(|batch| texts(&batch)).map_err(|error| error.class()));
        assert_eq!(batches.is_terminated(), classes.last() == Some(&Err(ErrorClass::Fatal)));
    }
    classes.retain(|item| *item != Err(ErrorClass::Transient));
    assert_eq!(classes, [Ok([range("a", 0..2), range("b", 0..2)].concat()), Err(ErrorClass::Fatal)]);
    assert!(batches.next().await.is_none());
}

// A2
#[tokio::test(start_paused = true)]
async fn dropping_the_stream_gives_an_unfinished_batch_back_even_with_ack_on_drop() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon().ack_on_drop()).await;
    let mut batches = (&mut subscription).map_ok(text).batches(2).unwrap().max_wait(LONG);
    drop(batches.next().await.unwrap().unwrap());
    assert!(timeout(seconds(1), batches.next()).await.is_err());
    drop(batches);
    let again = subscription.next().await.unwrap().unwrap();
    assert_eq!((names(std::slice::from_ref(&again)), again.attempt()), (vec!["a2"], 1));
    sleep(seconds(1)).await;
    assert_eq!(harness.checkpoint("a").await, "after a1");
}

// A5
#[tokio::test(start_paused = true)]
async fn a_bound_that_keeps_batches_from_filling_is_told_once_and_a_wrong_size_is_refused() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 9);
    let me = harness.instance("me");
    let logs = CapturedLogs::new();
    let subscription = me.subscribe(horizon().max_in_flight(5)).await;
    let sizes = subscription.map_ok(text).batches(3).unwrap().map_ok(|batch| {
        let size = batch.len();
        batch.ack();
        size
    });
    assert_eq!(sizes.take(3).try_collect::<Vec<_>>().await.unwrap(), [3, 3, 3]);
    assert_eq!(logs.with("set `max_in_flight` to at least twice their size").len(), 1);
    for size in [0, 10_001] {
        let refused = me.subscribe(horizon()).await.map_ok(text).batches(size).unwrap_err();
        assert_eq!(refused.to_string(), format!("invalid batch size: 1 to 10000; given: {size}"));
    }
}

// A1, A7
#[tokio::test(start_paused = true)]
async fn a_batch_is_decoded_and_what_cannot_be_decoded_is_settled_apart() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 4);
    let me = harness.instance("me");
    let mut batches = me.subscribe(horizon().dead_letter("dead")).await.batches(4).unwrap();
    let batch = batches.next().await.unwrap().unwrap();
    let (odd, even) = batch.try_map(|name| match name[1] {
        digit @ (b'1' | b'3') => Ok(digit - b'0'),
        digit => Err(format!("{} is even", digit - b'0')),
    });
    assert_eq!(odd.payloads().copied().collect::<Vec<_>>(), [1, 3]);
    assert_eq!(even.iter().map(|failed| failed.source.as_str()).collect::<Vec<_>>(), ["0 is even", "2 is even"]);
    odd.ack();
    even.into_iter().for_each(TryMapError::reject);
    sleep(seconds(2)).await;
    assert_eq!((harness.kinesis.written().len(), harness.checkpoint("a").await.as_str()), (2, "after a3"));
}
