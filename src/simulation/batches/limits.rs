//! The limits of batch sizes, and the warning about small batches (A5, R7).

use std::sync::Arc;

use futures::StreamExt;
use tokio::time::{Duration, sleep, timeout};

use super::{batch_names, batches, next};

use crate::{
    simulation::harness::{CapturedLogs, Harness, horizon, latest, millis, range, seconds},
    subscription::{Subscription, batches::Batches},
};

// A5
#[tokio::test(start_paused = true)]
async fn a_batch_size_outside_the_limits_fails_with_both_values_and_ends_the_subscription() {
    let table = [
        (0, 10_000, "invalid batch size: 1 to 10000; given: 0"),
        (10_001, 100_000, "invalid batch size: 1 to 10000; given: 10001"),
        (usize::MAX, 100_000, "invalid batch size: 1 to 10000; given: 18446744073709551615"),
        (
            51,
            101,
            "invalid batch size: at most half of max_in_flight, so that one batch is filled while another is worked on: \
             51 needs a max_in_flight of 102; given: 101",
        ),
    ];
    for (size, max_in_flight, refusal) in table {
        let harness = Harness::new(&["a"]);
        let me = harness.instance("me");
        let subscribe = async || me.subscribe(latest().max_in_flight(max_in_flight)).await;
        let refused = [
            subscribe().await.batches(size).map(drop),
            subscribe().await.batches_by_shard(size).map(drop),
            subscribe().await.tolerant().batches(size).map(drop),
            subscribe().await.tolerant().batches_by_shard(size).map(drop),
        ];
        for refused in refused {
            assert_eq!(refused.unwrap_err().to_string(), refusal);
        }
        sleep(millis(1)).await;
        assert_eq!(harness.owner("a").await, "");
    }
}

// A5
#[tokio::test(start_paused = true)]
async fn a_pipeline_at_the_bound_continues_once_one_batch_is_settled() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 12);
    let me = harness.instance("me");
    let mut batches = batches(&me, horizon().max_in_flight(8), 4).await;
    let (first, second) = (next(&mut batches).await, next(&mut batches).await);
    assert!(timeout(seconds(10), batches.next()).await.is_err());
    first.ack();
    assert_eq!(batch_names(&next(&mut batches).await), range("a", 8..12));
    assert_eq!(batch_names(&second), range("a", 4..8));
}

/// Puts `rate` records a second into a shard for 70 seconds, while the test takes batches of two and pauses after each.
/// Returns the warnings about reads that are too small.
async fn small(per_second: u64, pause: Duration, prepare: fn(Subscription) -> Batches) -> Vec<String> {
    let logged = CapturedLogs::new();
    let harness = Harness::new(&["a"]);
    let mut batches = prepare(harness.instance("me").subscribe(latest()).await);
    let kinesis = Arc::clone(&harness.kinesis);
    let producer = tokio::spawn(async move {
        for _ in 0..70 * per_second {
            kinesis.put("a", 1);
            sleep(seconds(1) / u32::try_from(per_second).unwrap()).await;
        }
    });
    while harness.millis() < 70_000 {
        if let Ok(batch) = timeout(seconds(1), batches.next()).await {
            batch.unwrap().unwrap().ack();
            sleep(pause).await;
        }
    }
    producer.await.unwrap();
    logged.with("falls behind while every read")
}

// R7
#[tokio::test(start_paused = true)]
async fn a_shard_that_lags_because_of_small_batches_warns_once() {
    let said = small(15, millis(0), |subscription| subscription.batches(2).unwrap()).await;
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(["stream=s", "shard=a", "read_limit=2", "keep_read_limit"].iter().all(|word| said[0].contains(word)));
}

// R7
#[tokio::test(start_paused = true)]
async fn small_batches_without_lag_log_no_warning() {
    let nothing = Vec::<String>::new();
    assert_eq!(small(9, millis(0), |subscription| subscription.batches(2).unwrap()).await, nothing);
    assert_eq!(small(15, millis(0), |subscription| subscription.batches(2).unwrap().keep_read_limit()).await, nothing);
    assert_eq!(small(15, millis(500), |subscription| subscription.batches(2).unwrap()).await, nothing);
}
