//! Batches (A2, A7).

use futures::StreamExt;
use tokio::time::{Duration, sleep, timeout};

use super::{dead_letters, with_attempts};

use crate::{
    delivery::Delivery,
    simulation::harness::{Harness, seconds, take},
    subscription::{batch::Batch, batches::Batches},
    types::commit::Commit,
};

/// The next batch. Skips errors.
async fn batch(batches: &mut Batches) -> Batch {
    loop {
        let item = timeout(Duration::from_hours(1), batches.next()).await.expect("an item comes within an hour");
        if let Ok(batch) = item.expect("the stream continues") {
            return batch;
        }
    }
}

// A2, A7
#[tokio::test(start_paused = true)]
async fn a_dropped_batch_counts_one_attempt_for_each_record() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let mut batches = harness.instance("me").subscribe(with_attempts(2)).await.batches(3).unwrap();
    drop(batch(&mut batches).await);
    let again = batch(&mut batches).await;
    assert_eq!(again.iter().map(Delivery::attempt).collect::<Vec<_>>(), [2, 2, 2]);
    drop(again);
    sleep(seconds(2)).await;
    assert_eq!(dead_letters(&harness), ["a0: dropped", "a1: dropped", "a2: dropped"]);
    assert_eq!(harness.checkpoint("a").await, "after a2");
}

// A7
#[tokio::test(start_paused = true)]
async fn the_failed_records_of_a_batch_become_dead_letters_and_block_no_checkpoint() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 6);
    let mut batches = harness.instance("me").subscribe(with_attempts(1)).await.batches(2).unwrap();
    let failed = |place: usize, _: &Delivery| place == 0;
    assert_eq!(batch(&mut batches).await.commit_except(failed).await.unwrap(), Commit::Deferred);
    batch(&mut batches).await.nack_because("too many");
    assert_eq!(batch(&mut batches).await.commit_first(1).await.unwrap(), Commit::Deferred);
    sleep(seconds(2)).await;
    assert_eq!(dead_letters(&harness), ["a0: given back", "a2: too many", "a3: too many", "a5: given back"]);
    assert_eq!(harness.checkpoint("a").await, "after a5");
}

// A2, A7
#[tokio::test(start_paused = true)]
async fn records_of_an_unyielded_batch_become_no_dead_letters() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut batches = me.subscribe(with_attempts(1)).await.batches(10).unwrap().max_wait(seconds(60));
    assert!(timeout(seconds(5), batches.next()).await.is_err());
    drop(batches);
    sleep(seconds(5)).await;
    assert_eq!((dead_letters(&harness).len(), harness.checkpoint("a").await.as_str()), (0, "at a0"));
    let again = take(&mut me.subscribe(with_attempts(1)).await, 3).await;
    assert!(again.iter().all(|delivery| delivery.attempt() == 1));
}
