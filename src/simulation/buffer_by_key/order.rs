//! Concurrency and order without failures.

use futures::{FutureExt, Stream, StreamExt, stream};
use tokio::time::timeout;

use super::{History, on, results, second};

use crate::{
    delivery::Delivery,
    error::KinesisError,
    simulation::harness::{Harness, millis, name, seconds},
    subscription::delivery_stream_ext::DeliveryStreamExt,
};

#[tokio::test(start_paused = true)]
async fn records_of_one_key_run_one_by_one_and_different_keys_run_concurrently() {
    let (harness, history) = (Harness::new(&["a"]), History::default());
    harness.kinesis.put_keys("a", "xxyzxy");
    let mut work = on(&harness).await.buffer_by_key(10, |delivery| second(delivery, &harness, &history));
    let done = results(&mut work, millis(10_500)).await;
    assert_eq!(done, ["a0#1", "a2#1", "a3#1", "a1#1", "a5#1", "a4#1"]);
    assert_eq!(history.take(), ["a0#1 at 0", "a2#1 at 0", "a3#1 at 0", "a1#1 at 1000", "a5#1 at 1000", "a4#1 at 2000"]);
    assert_eq!(harness.checkpoint("a").await, "after a5");
}

#[tokio::test(start_paused = true)]
async fn at_most_n_futures_run_at_once_and_zero_counts_as_one() {
    for (n, expected) in [(2, [0, 0, 1, 1, 2]), (0, [0, 1, 2, 3, 4])] {
        let (harness, history) = (Harness::new(&["a"]), History::default());
        harness.kinesis.put_keys("a", "vwxyz");
        let mut work = on(&harness).await.buffer_by_key(n, |delivery| second(delivery, &harness, &history));
        assert_eq!(results(&mut work, millis(10_500)).await.len(), 5);
        let starts: Vec<String> = (0..5).map(|i| format!("a{i}#1 at {}", expected[i] * 1_000)).collect();
        assert_eq!(history.take(), starts);
    }
}

#[tokio::test(start_paused = true)]
async fn records_without_a_key_wait_for_no_other_record() {
    let (harness, history) = (Harness::new(&["a"]), History::default());
    harness.kinesis.put_keys("a", "..x..x");
    let mut work = on(&harness).await.buffer_by_key(10, |delivery| second(delivery, &harness, &history));
    assert_eq!(results(&mut work, millis(10_500)).await, ["a0#1", "a1#1", "a2#1", "a3#1", "a4#1", "a5#1"]);
    assert_eq!(harness.checkpoint("a").await, "after a5");
}

#[tokio::test(start_paused = true)]
async fn buffer_by_key_serializes_a_key_across_shards_and_buffer_by_shard_ignores_keys() {
    let (harness, history) = (Harness::new(&["a", "b"]), History::default());
    harness.kinesis.put_keys("a", "xy");
    harness.kinesis.put_keys("b", "x.");
    let mut by_key = on(&harness).await.buffer_by_key(10, |delivery| second(delivery, &harness, &history));
    assert_eq!(results(&mut by_key, millis(10_500)).await, ["a0#1", "a1#1", "b1#1", "b0#1"]);
    drop(by_key);

    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put_keys("a", "xy");
    harness.kinesis.put_keys("b", "x.");
    let mut by_shard = on(&harness).await.buffer_by_shard(10, |delivery| second(delivery, &harness, &history));
    assert_eq!(results(&mut by_shard, millis(10_500)).await, ["a0#1", "b0#1", "a1#1", "b1#1"]);
}

// A7
#[tokio::test(start_paused = true)]
async fn two_stages_both_keep_the_order_of_keys() {
    let (harness, history) = (Harness::new(&["a"]), History::default());
    harness.kinesis.put_keys("a", "xxx");
    let work = async |delivery: Delivery| {
        if name(&delivery) == "a0" && delivery.attempt() == 1 {
            return Ok("failed".to_owned());
        }
        second(delivery, &harness, &history).await
    };
    let first = on(&harness).await.buffer_by_key(10, async |delivery| Ok(delivery));
    let mut second = first.buffer_by_key(10, work);
    assert_eq!(results(&mut second, seconds(20)).await, ["failed", "a0#2", "a1#1", "a2#1"]);
}

// X1
#[tokio::test(start_paused = true)]
async fn an_error_is_yielded_while_futures_run() {
    let (harness, history) = (Harness::new(&["a"]), History::default());
    harness.kinesis.put_keys("a", "xx");
    let failed = KinesisError::invalid("what", "why");
    let mut subscription = on(&harness).await;
    let with_error = (&mut subscription).take(2).chain(stream::iter([Err(failed)]));
    let mut work = with_error.buffer_by_key(10, |delivery| second(delivery, &harness, &history));
    assert!(matches!(work.next().await, Some(Err(KinesisError::Invalid { .. }))));
    assert!(harness.millis() < 100);
    assert_eq!(results(&mut work, seconds(20)).await, ["a0#1", "a1#1"]);
    assert!(work.next().now_or_never().is_some_and(|end| end.is_none()));
}

// X1
#[tokio::test(start_paused = true)]
async fn the_stream_ends_after_the_waiting_records() {
    let (harness, history) = (Harness::new(&["a"]), History::default());
    harness.kinesis.put_keys("a", "xxxxx");
    let mut work = on(&harness).await.take(3).buffer_by_key(10, |delivery| second(delivery, &harness, &history));
    assert_eq!(work.size_hint(), (0, Some(3)));
    assert_eq!(work.next().await.unwrap().unwrap(), "a0#1");
    assert_eq!(work.size_hint(), (0, Some(2)));
    assert_eq!(results(&mut work, seconds(20)).await, ["a1#1", "a2#1"]);
    assert_eq!(work.size_hint(), (0, Some(0)));
    assert!(work.next().await.is_none());
}

// A5
#[tokio::test(start_paused = true)]
async fn at_max_waiting_no_more_records_are_taken() {
    let (harness, history) = (Harness::new(&["a"]), History::default());
    harness.kinesis.put_keys("a", &"x".repeat(20));
    let subscription = on(&harness).await;
    let stats = subscription.stats_handle();
    let in_flight = || stats.snapshot().shards[0].in_flight;
    let mut work = subscription.buffer_by_key(10, |delivery| second(delivery, &harness, &history)).max_waiting(4);
    for _ in 0..15 {
        assert!(timeout(millis(500), work.next()).await.is_err());
        assert_eq!(in_flight(), 5);
        work.next().await.unwrap().unwrap();
    }
    assert_eq!(results(&mut work, seconds(20)).await.len(), 5);
}
