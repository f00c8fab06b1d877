//! Keys that a returned record blocks (A7).

use std::pin::pin;

use futures::TryStreamExt;
use tokio::time::sleep;

use super::{History, on, results, second};

use crate::{
    delivery::Delivery,
    simulation::harness::{Harness, horizon, name, names, seconds},
    subscription::delivery_stream_ext::DeliveryStreamExt,
};

// A7
#[tokio::test(start_paused = true)]
async fn a_returned_record_blocks_only_its_key_until_it_is_settled() {
    let (harness, history) = (Harness::new(&["a"]), History::default());
    harness.kinesis.put_keys("a", "xxyxy");
    let work = async |delivery: Delivery| {
        if name(&delivery) == "a0" && delivery.attempt() < 3 {
            history.note(&harness, &format!("a0 fails, attempt {}", delivery.attempt()));
            if delivery.attempt() == 1 {
                delivery.nack();
            }
            return Ok("failed".to_owned());
        }
        second(delivery, &harness, &history).await
    };
    let mut work = on(&harness).await.buffer_by_key(10, work);
    let done = results(&mut work, seconds(20)).await;
    assert_eq!(done, ["failed", "a2#1", "failed", "a4#1", "a0#3", "a1#1", "a3#1"]);
    let expected = [
        "a0 fails, attempt 1 at 0",
        "a2#1 at 0",
        "a0 fails, attempt 2 at 1000",
        "a4#1 at 1000",
        "a0#3 at 3000",
        "a1#1 at 4000",
        "a3#1 at 5000",
    ];
    assert_eq!(history.take(), expected);
    assert_eq!(harness.checkpoint("a").await, "after a4");
}

// A7
#[tokio::test(start_paused = true)]
async fn a_record_redelivered_before_its_future_ends_runs_next() {
    let (harness, history) = (Harness::new(&["a"]), History::default());
    harness.kinesis.put_keys("a", "xxxy");
    let work = async |delivery: Delivery| {
        if name(&delivery) == "a0" && delivery.attempt() == 1 {
            delivery.nack();
            sleep(seconds(5)).await;
            return Ok("long".to_owned());
        }
        second(delivery, &harness, &history).await
    };
    let mut work = on(&harness).await.buffer_by_key(10, work);
    assert_eq!(results(&mut work, seconds(20)).await, ["a3#1", "long", "a0#2", "a1#1", "a2#1"]);
}

// A7
#[tokio::test(start_paused = true)]
async fn a_key_continues_if_its_blocking_record_is_settled_elsewhere() {
    let (harness, history) = (Harness::new(&["a"]), History::default());
    harness.kinesis.put_keys("a", "xxx");
    let put_aside = async |delivery: Delivery| {
        if delivery.attempt() > 2 {
            delivery.ack();
            return Ok(None);
        }
        Ok(Some(delivery))
    };
    let work = async |delivery: Delivery| match name(&delivery) {
        "a0" => {
            drop(delivery);
            Ok("failed".to_owned())
        }
        _ => second(delivery, &harness, &history).await,
    };
    let mut work = pin!(on(&harness).await.try_filter_map(put_aside).buffer_by_key(10, work));
    assert_eq!(results(&mut work, seconds(20)).await, ["failed", "failed", "a1#1", "a2#1"]);
    assert_eq!(history.take(), ["a1#1 at 3000", "a2#1 at 4000"]);
    assert_eq!(harness.checkpoint("a").await, "after a2");
}

// A7
#[tokio::test(start_paused = true)]
async fn a_delivery_that_outlives_its_future_blocks_no_key() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put_keys("a", "xxx");
    let mut work = on(&harness).await.buffer_by_key(10, async |delivery| Ok(delivery));
    let mut outliving = results(&mut work, seconds(1)).await;
    assert_eq!(names(&outliving), ["a0", "a1", "a2"]);
    outliving.remove(0).nack();
    let again = results(&mut work, seconds(5)).await;
    assert_eq!((names(&again), again[0].attempt()), (vec!["a0"], 2));
}

// A5, A7
#[tokio::test(start_paused = true)]
async fn other_keys_continue_behind_a_failing_record_until_its_shard_is_full() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put_keys("a", "xxyxxyxxy");
    harness.kinesis.put_keys("b", "zzzzz");
    let subscription = harness.instance("me").subscribe(horizon().max_in_flight(5)).await;
    let stats = subscription.stats_handle();
    let work = async |delivery: Delivery| {
        let named = name(&delivery).to_owned();
        if named != "a0" {
            delivery.ack();
        }
        Ok(named)
    };
    let mut work = subscription.buffer_by_key(10, work).max_waiting(1);
    let mut done = results(&mut work, seconds(200)).await;
    done.retain(|name| name != "a0");
    // Records 0, 1, 3, 4 and 6 of key x are open, and the bound has room for one more of key y.
    assert_eq!(done, ["a2", "b0", "b1", "b2", "b3", "b4", "a5"]);
    assert_eq!(stats.snapshot().shards[0].in_flight, 5);
    assert_eq!(harness.checkpoint("b").await, "after b4");
}
