//! Batches of one shard each (R7, A1).

use futures::StreamExt;
use tokio::time::{sleep, timeout};

use super::{
    super::{
        script::{Fault, Rule},
        scripted_service::ServiceOp,
    },
    batch_names, item, next, timed,
};

use crate::{
    delivery::Delivery,
    error::KinesisError,
    simulation::harness::{Harness, horizon, latest, millis, range, seconds},
    subscription::batch::Batch,
    types::commit::Commit,
};

// R7
#[tokio::test(start_paused = true)]
async fn by_shard_each_batch_holds_one_shard_in_order_and_has_a_separate_deadline() {
    let harness = Harness::new(&["a", "b"]);
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::GetRecords).of("b").after(1), Fault::Delay(millis(30)));
    let mut batches = me.subscribe(latest()).await.batches_by_shard(3).unwrap();
    harness.kinesis.put("a", 5);
    harness.kinesis.put("b", 4);
    let mut all = Vec::new();
    for _ in 0..4 {
        all.push(timed(&harness, &mut batches).await);
    }
    let expected = [(range("a", 0..3), 1_000), (range("b", 0..3), 1_030), (range("a", 3..5), 1_051)];
    assert_eq!(all[..3], expected);
    assert_eq!(all[3], (range("b", 3..4), 1_081));
}

// R7
#[tokio::test(start_paused = true)]
async fn by_shard_a_shard_that_is_always_ready_does_not_delay_a_due_batch() {
    let harness = Harness::new(&["a", "b"]);
    let me = harness.instance("me");
    let subscription = me.subscribe(latest()).await;
    let mut batches = subscription.batches_by_shard(10).unwrap().keep_read_limit();
    harness.kinesis.put("a", 1);
    harness.kinesis.put("b", 100);
    let mut order = Vec::new();
    for _ in 0..11 {
        let batch = next(&mut batches).await;
        order.push(batch.deliveries()[0].shard().to_string());
        batch.ack();
        sleep(millis(30)).await;
    }
    assert_eq!(order.iter().filter(|shard| *shard == "a").count(), 1);
    assert!(order.iter().position(|shard| shard == "a").unwrap() <= 2, "{order:?}");
}

// A1
#[tokio::test(start_paused = true)]
async fn by_shard_a_batch_never_mixes_two_leases_and_the_older_one_is_yielded_first() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut batches = me.subscribe(horizon()).await.batches_by_shard(9).unwrap().max_wait(seconds(20));
    assert!(timeout(seconds(2), batches.next()).await.is_err());
    harness.steal("a", "thief").await;
    assert!(matches!(item(&mut batches).await, Some(Err(KinesisError::LeaseLost { epoch: 1, .. }))));
    let old = next(&mut batches).await;
    let again = next(&mut batches).await;
    assert_eq!((batch_names(&old), batch_names(&again)), (range("a", 0..3), range("a", 0..3)));
    let epochs = |batch: &Batch| batch.iter().map(Delivery::epoch).collect::<Vec<_>>();
    assert_eq!((epochs(&old), epochs(&again)), (vec![1; 3], vec![3; 3]));
    assert_eq!(old.commit().await.unwrap(), Commit::Superseded);
    assert_eq!(harness.checkpoint("a").await, "at a0");
    assert_eq!(again.commit().await.unwrap(), Commit::Stored);
    assert_eq!(harness.checkpoint("a").await, "after a2");
}
