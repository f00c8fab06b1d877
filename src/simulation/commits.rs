//! The result of a commit, and the few writes that it costs (A1, A3, A4).

use futures::{FutureExt, StreamExt, future::join_all};
use md5::{Digest, Md5};
use tokio::time::sleep;

use super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};
use crate::{
    delivery::{Delivery, commit_all},
    error::{ErrorClass, KinesisError},
    simulation::harness::{
        Harness, Instance, error, horizon, latest, millis, name, names, next, seconds, take, within,
    },
    types::commit::Commit,
};

/// The checkpoints that were sent for shard `a`, without the first one, which stores the opening position.
fn writes(me: &Instance) -> Vec<String> {
    me.table.checkpoints("a").split_off(1)
}

async fn commit(delivery: Delivery) -> Commit {
    delivery.commit().await.unwrap()
}

// A1
#[tokio::test(start_paused = true)]
async fn a_commit_is_stored_once_the_row_covers_it_and_deferred_behind_an_open_record() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let [first, second, third] = <[Delivery; 3]>::try_from(take(&mut subscription, 3).await).unwrap();
    assert_eq!(second.commit().now_or_never().unwrap().unwrap(), Commit::Deferred);
    assert_eq!(harness.checkpoint("a").await, "at a0");
    assert_eq!(commit(first).await, Commit::Stored);
    assert_eq!(harness.checkpoint("a").await, "after a1");
    assert_eq!(commit(third).await, Commit::Stored);
    assert_eq!(harness.checkpoint("a").await, "after a2");
}

// A1
#[tokio::test(start_paused = true)]
async fn a_commit_behind_a_settled_run_and_an_open_record_is_deferred_at_once() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 4);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let [first, second, third, _fourth] = <[Delivery; 4]>::try_from(take(&mut subscription, 4).await).unwrap();
    first.ack();
    assert_eq!(third.commit().now_or_never().unwrap().unwrap(), Commit::Deferred);
    sleep(millis(10)).await;
    assert_eq!(harness.checkpoint("a").await, "after a0");
    second.ack();
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a2");
}

// A4
#[tokio::test(start_paused = true)]
async fn sixty_four_commits_take_few_writes_one_at_a_time_and_the_newest_wins() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 64);
    let me = harness.instance("me");
    me.table.script.plan(Rule::on(TableOp::Checkpoint).always(), Fault::Delay(millis(200)));
    let mut subscription = me.subscribe(horizon()).await;
    let records = take(&mut subscription, 64).await;
    let late = |(index, record): (u64, Delivery)| async move {
        sleep(millis(index * 10)).await;
        commit(record).await
    };
    let commits = join_all((0..).zip(records).map(late)).await;
    assert!(commits.iter().all(|commit| *commit == Commit::Stored));
    let times = me.table.script.times(TableOp::Checkpoint, "a");
    assert!(times.len() <= 6, "{times:?}");
    assert!(times.windows(2).all(|two| two[1] >= two[0] + millis(200)), "{times:?}");
    assert_eq!(writes(&me).last().unwrap(), "after a63");
}

// A4
#[tokio::test(start_paused = true)]
async fn acks_are_written_once_per_checkpoint_interval_and_count_as_renewals() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 100);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    for record in take(&mut subscription, 100).await {
        sleep(millis(100)).await;
        record.ack();
    }
    let times = me.table.script.times(TableOp::Checkpoint, "a");
    assert!((10..=11).contains(&times.len()), "{times:?}");
    assert!(times.windows(2).all(|two| two[1] == two[0] + seconds(1)), "{times:?}");
    assert!(me.table.script.times(TableOp::Renew, "a").is_empty());
    sleep(seconds(1)).await;
    assert_eq!(harness.checkpoint("a").await, "after a99");
}

// A4
#[tokio::test(start_paused = true)]
async fn a_commit_cancelled_after_its_first_poll_is_stored() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    assert!(next(&mut subscription).await.commit().now_or_never().is_none());
    sleep(millis(1)).await;
    assert_eq!(harness.checkpoint("a").await, "after a0");
    assert!(within(&mut subscription, seconds(100)).await.is_empty());
}

// A2
#[tokio::test(start_paused = true)]
async fn a_commit_that_is_never_polled_drops_the_delivery() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    drop(next(&mut subscription).await.commit());
    let again = next(&mut subscription).await;
    assert_eq!((name(&again), again.attempt()), ("a0", 2));
}

// A1
#[tokio::test(start_paused = true)]
async fn commit_all_writes_once_per_shard() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 10);
    harness.kinesis.put("b", 10);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let records = take(&mut subscription, 20).await;
    assert_eq!(commit_all(records).await.unwrap(), Commit::Stored);
    assert_eq!(me.table.checkpoints("a"), ["at a0", "after a9"]);
    assert_eq!(me.table.checkpoints("b"), ["at b0", "after b9"]);
}

// A1
#[tokio::test(start_paused = true)]
async fn commit_all_returns_the_weakest_result_of_its_deliveries() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 2);
    harness.kinesis.put("b", 1);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let mut records = take(&mut subscription, 3).await;
    let held = records.remove(0);
    assert_eq!(name(&held), "a0");
    assert_eq!(commit_all(records).await.unwrap(), Commit::Deferred);
    assert_eq!(harness.checkpoint("b").await, "after b0");
    drop(subscription);
    sleep(millis(1)).await;
    assert_eq!(commit_all([held]).await.unwrap(), Commit::Superseded);
    assert_eq!(commit_all(Vec::<Delivery>::new()).await.unwrap(), Commit::Stored);
}

// A3
#[tokio::test(start_paused = true)]
async fn a_checkpoint_moves_only_over_records_of_its_shard() {
    let harness = Harness::new(&["a", "b"]);
    let mut subscription = harness.instance("me").subscribe(latest()).await;
    for n in 0..20 {
        harness.kinesis.put("a", 1);
        harness.kinesis.put("b", 1);
        let (one, other) = (next(&mut subscription).await, next(&mut subscription).await);
        let (shard, of_other) = (one.shard().clone(), other.shard().clone());
        let before = harness.checkpoint(of_other.as_str()).await;
        assert_eq!(commit(one).await, Commit::Stored);
        assert_eq!(harness.checkpoint(shard.as_str()).await, format!("after {shard}{n}"));
        assert_eq!(harness.checkpoint(of_other.as_str()).await, before);
        assert_eq!(commit(other).await, Commit::Stored);
    }
}

// A4
#[tokio::test(start_paused = true)]
async fn unpolled_commits_block_neither_checkpoints_nor_the_shard_end_nor_closing() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 64);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    let me = harness.instance("me");
    let subscription = me.subscribe(horizon()).await;
    let closer = subscription.closer();
    let pipeline = subscription.map(|item| item.unwrap().commit()).buffer_unordered(64);
    let pipeline = tokio::spawn(pipeline.for_each(async |_| sleep(seconds(60)).await));
    sleep(seconds(1)).await;
    assert_eq!(harness.checkpoint("a").await, "SHARD_END");
    assert_eq!(me.service.script.times(ServiceOp::GetRecords, "b").len(), 1);
    assert_eq!(harness.owner("b").await, "me");
    closer.close().await;
    assert!(harness.millis() < 2_000);
    assert_eq!(harness.owner("b").await, "");
    pipeline.await.unwrap();
}

// A3
#[tokio::test(start_paused = true)]
async fn within_one_opening_a_checkpoint_only_moves_forward() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 200);
    let me = harness.instance("me");
    for k in [1, 4, 5, 9] {
        me.table.script.plan(Rule::on(TableOp::Checkpoint).after(k), Fault::Delay(millis(900)));
    }
    let mut subscription = me.subscribe(horizon()).await;
    let mut records = take(&mut subscription, 200).await;
    let mut seed = 7_usize;
    while !records.is_empty() {
        seed = (seed * 31 + 11) % 1_009;
        let record = records.remove(seed % records.len().min(12));
        sleep(millis(37)).await;
        if seed.is_multiple_of(2) {
            record.ack();
        } else {
            assert!(record.commit().now_or_never().is_none_or(|commit| commit.unwrap() == Commit::Deferred));
        }
    }
    sleep(seconds(3)).await;
    let places = writes(&me);
    let indexes: Vec<usize> = places.iter().map(|place| place.replace("after a", "").parse().unwrap()).collect();
    assert!(indexes.is_sorted_by(|one, next| one < next), "{indexes:?}");
    assert_eq!(indexes.last(), Some(&199));
    assert_eq!(names(&records), Vec::<String>::new());
}

// R12
#[tokio::test(start_paused = true)]
async fn an_aggregated_record_is_yielded_as_an_error_in_its_place_and_settled() {
    let body = b"\x0a\x01k\x1a\x04\x08\x00\x1a\x00";
    let aggregate = [b"\xf3\x89\x9a\xc2".as_ref(), body, &Md5::digest(body)].concat();
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    harness.kinesis.put_data("a", aggregate.clone());
    harness.kinesis.put("a", 1);
    harness.kinesis.put_data("a", aggregate);
    harness.kinesis.close("a");
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let first = next(&mut subscription).await;
    let failed = error(&mut subscription).await;
    assert_eq!(failed.class(), ErrorClass::Record);
    assert!(
        matches!(&failed, KinesisError::AggregatedRecord { sequence_number, partition_key: Some(key), .. }
            if sequence_number.as_str() == "a1" && **key == *"k"),
        "{failed}"
    );
    let third = next(&mut subscription).await;
    assert_eq!((name(&first), name(&third)), ("a0", "a2"));
    assert!(matches!(error(&mut subscription).await, KinesisError::AggregatedRecord { .. }));
    assert_eq!(commit(first).await, Commit::Stored);
    assert_eq!(harness.checkpoint("a").await, "after a1");
    third.ack();
    sleep(millis(1)).await;
    assert_eq!(harness.checkpoint("a").await, "SHARD_END");
}
