//! Settling batches (A1 to A4).

use std::sync::Arc;

use futures::{FutureExt, StreamExt};
use tokio::time::{sleep, timeout};

use super::{
    super::{script::Rule, scripted_table::TableOp},
    LONG, batch_names, batches, next, timed,
};

use crate::{
    delivery::Delivery,
    error::KinesisError,
    simulation::harness::{CapturedLogs, Harness, horizon, latest, millis, range, seconds},
    subscription::batch::Batch,
    types::commit::Commit,
};

// A1, A4
#[tokio::test(start_paused = true)]
async fn committing_a_batch_writes_once_per_shard() {
    let harness = Harness::new(&["a", "b"]);
    let me = harness.instance("me");
    let stream = latest().poll_interval(millis(1)).reads_per_second(1_000);
    let mut batches = batches(&me, stream, 20).await.max_wait(LONG);
    let kinesis = Arc::clone(&harness.kinesis);
    let producer = tokio::spawn(async move {
        for _ in 0..10 {
            kinesis.put("a", 1);
            kinesis.put("b", 1);
            sleep(millis(5)).await;
        }
    });
    let batch = next(&mut batches).await;
    let changes = batch.deliveries().windows(2).filter(|two| two[0].shard() != two[1].shard()).count();
    assert!((10..20).contains(&changes), "{:?}", batch_names(&batch));
    assert_eq!(batch.commit().await.unwrap(), Commit::Stored);
    assert_eq!(me.table.checkpoints("a"), ["at a0", "after a9"]);
    assert_eq!(me.table.checkpoints("b"), ["at b0", "after b9"]);
    producer.await.unwrap();
}

// A1, A4
#[tokio::test(start_paused = true)]
async fn an_acknowledged_batch_is_stored_with_the_next_checkpoint() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 10);
    let me = harness.instance("me");
    let mut batches = batches(&me, horizon(), 5).await;
    next(&mut batches).await.ack();
    next(&mut batches).await.ack();
    assert_eq!(me.table.checkpoints("a"), ["at a0"]);
    harness.until(1_000).await;
    sleep(millis(1)).await;
    assert_eq!(me.table.checkpoints("a"), ["at a0", "after a9"]);
}

// A1
#[tokio::test(start_paused = true)]
async fn a_batch_behind_an_open_one_is_deferred_and_covered_together_with_it() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 10);
    let me = harness.instance("me");
    let mut batches = batches(&me, horizon(), 5).await;
    let (first, second) = (next(&mut batches).await, next(&mut batches).await);
    assert_eq!(second.commit().now_or_never().unwrap().unwrap(), Commit::Deferred);
    assert_eq!(first.commit().await.unwrap(), Commit::Stored);
    assert_eq!(me.table.checkpoints("a"), ["at a0", "after a9"]);
}

// A1
#[tokio::test(start_paused = true)]
async fn a_cancelled_commit_settles_the_batch_and_an_unpolled_one_drops_it() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 4);
    let me = harness.instance("me");
    let mut batches = batches(&me, horizon(), 2).await;
    assert!(next(&mut batches).await.commit().now_or_never().is_none());
    drop(next(&mut batches).await.commit());
    sleep(millis(1)).await;
    assert_eq!(harness.checkpoint("a").await, "after a1");
    let again = next(&mut batches).await;
    assert_eq!((batch_names(&again), again.deliveries()[0].attempt()), (range("a", 2..4), 2));
}

// A1
#[tokio::test(start_paused = true)]
async fn a_commit_fails_if_the_store_fails_and_the_batch_stays_settled() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    me.table.fail(Rule::on(TableOp::Checkpoint).after(1).times(5));
    let mut batches = me.subscribe(horizon()).await.tolerant().batches(3).unwrap();
    let failed = next(&mut batches).await.commit().await;
    assert!(matches!(failed, Err(KinesisError::Store { .. })), "{failed:?}");
    sleep(seconds(5)).await;
    assert_eq!(harness.checkpoint("a").await, "after a2");
}

// A2
#[tokio::test(start_paused = true)]
async fn a_dropped_batch_is_redelivered_whole_and_in_order() {
    let logged = CapturedLogs::new();
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 5);
    let me = harness.instance("me");
    let mut batches = batches(&me, horizon(), 5).await;
    drop(next(&mut batches).await);
    harness.kinesis.put("a", 2);
    let (later, again) = (next(&mut batches).await, next(&mut batches).await);
    assert_eq!((batch_names(&later), batch_names(&again)), (range("a", 5..7), range("a", 0..5)));
    assert!(again.iter().all(|record| record.attempt() == 2));
    assert_eq!(logged.with("dropped without being settled").len(), 1);
}

// A2
#[tokio::test(start_paused = true)]
async fn redelivered_records_are_batched_with_new_ones() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut batches = batches(&me, horizon().poll_interval(millis(652)), 3).await;
    next(&mut batches).await.nack();
    harness.until(900).await;
    harness.kinesis.put("a", 1);
    let batch = next(&mut batches).await;
    assert_eq!(batch_names(&batch), ["a3", "a0", "a1"]);
    assert_eq!(batch.iter().map(Delivery::attempt).collect::<Vec<_>>(), [1, 2, 2]);
    assert_eq!(timed(&harness, &mut batches).await.0, ["a2"]);
}

// A2
#[tokio::test(start_paused = true)]
async fn ack_on_drop_acknowledges_a_dropped_batch_but_no_unyielded_record() {
    for closes in [false, true] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 5);
        let me = harness.instance("me");
        let mut batches = batches(&me, horizon().ack_on_drop(), 3).await.max_wait(LONG);
        drop(next(&mut batches).await);
        assert!(timeout(seconds(5), batches.next()).await.is_err());
        if closes {
            let closer = batches.get_ref().closer();
            tokio::spawn(async move { closer.close().await });
            sleep(millis(1)).await;
        }
        drop(batches);
        sleep(seconds(2)).await;
        assert_eq!((harness.checkpoint("a").await, harness.owner("a").await), ("after a2".to_owned(), String::new()));
    }
}

// A1, A3
#[tokio::test(start_paused = true)]
async fn commit_first_moves_the_checkpoint_over_the_first_and_redelivers_the_rest() {
    for (n, checkpoint, rest) in
        [(0, "at a0", 0..5), (3, "after a2", 3..5), (5, "after a4", 5..5), (99, "after a4", 5..5)]
    {
        let logged = CapturedLogs::new();
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 5);
        let me = harness.instance("me");
        let mut batches = batches(&me, horizon(), 5).await;
        assert_eq!(next(&mut batches).await.commit_first(n).await.unwrap(), Commit::Stored);
        assert_eq!(harness.checkpoint("a").await, checkpoint);
        if !rest.is_empty() {
            let again = next(&mut batches).await;
            assert_eq!((batch_names(&again), again.deliveries()[0].attempt()), (range("a", rest), 2));
            assert_eq!(again.commit().await.unwrap(), Commit::Stored);
        }
        assert!(timeout(seconds(100), batches.next()).await.is_err());
        assert_eq!(harness.checkpoint("a").await, "after a4");
        assert_eq!(logged.with("dropped"), Vec::<String>::new());
    }
}

// A1, A3
#[tokio::test(start_paused = true)]
async fn commit_except_moves_the_checkpoint_up_to_the_first_failed_record() {
    let table = [
        (vec![], Commit::Stored, "after a4"),
        (vec![2], Commit::Deferred, "after a1"),
        (vec![0, 2], Commit::Deferred, "at a0"),
        (vec![3, 4], Commit::Stored, "after a2"),
        (vec![0, 1, 2, 3, 4], Commit::Stored, "at a0"),
    ];
    for (failed, commit, checkpoint) in table {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 5);
        let me = harness.instance("me");
        let mut batches = batches(&me, horizon(), 5).await;
        let batch = next(&mut batches).await;
        let mut asked = Vec::new();
        let answer = batch.commit_except(|place, delivery| {
            asked.push((place, delivery.sequence_number().to_string()));
            failed.contains(&place)
        });
        assert_eq!(answer.await.unwrap(), commit, "{failed:?}");
        assert_eq!(asked, (0..5).zip(range("a", 0..5)).collect::<Vec<_>>());
        sleep(millis(1)).await;
        assert_eq!(harness.checkpoint("a").await, checkpoint, "{failed:?}");
        if !failed.is_empty() {
            let again = next(&mut batches).await;
            assert_eq!(batch_names(&again), failed.iter().map(|place| format!("a{place}")).collect::<Vec<_>>());
            assert_eq!(again.commit().await.unwrap(), Commit::Stored);
        }
        assert_eq!(harness.checkpoint("a").await, "after a4");
    }
}

// A1
#[tokio::test(start_paused = true)]
async fn a_batch_is_superseded_once_its_lease_is_lost() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 2);
    harness.kinesis.put("b", 2);
    let me = harness.instance("me");
    let mut batches = me.subscribe(horizon()).await.tolerant().batches(4).unwrap();
    let batch = next(&mut batches).await;
    harness.steal("a", "thief").await;
    assert!(timeout(seconds(4), batches.next()).await.is_err());
    assert_eq!(batch.commit().await.unwrap(), Commit::Superseded);
    assert_eq!((harness.checkpoint("a").await, harness.checkpoint("b").await), ("at a0".into(), "after b1".into()));
}

// A1
#[tokio::test(start_paused = true)]
async fn deliveries_stay_unsettled_when_they_move_out_of_or_into_a_batch() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 6);
    let me = harness.instance("me");
    let mut batches = batches(&me, horizon(), 6).await;
    let mut batch = next(&mut batches).await;
    assert_eq!((batch.len(), batch.is_empty()), (6, false));
    assert_eq!(batch.payloads().next_back().map(AsRef::as_ref), Some(b"a5".as_ref()));
    let mut rest = batch.split_off(4);
    assert_eq!(
        (batch_names(&batch), batch_names(&rest), rest.split_off(9).len()),
        (range("a", 0..4), range("a", 4..6), 0)
    );
    let odd = |delivery: &Delivery| delivery.payload()[1] % 2 == 1;
    let (odd, even): (Batch, Batch) = batch.into_iter().partition(odd);
    let lengths = odd.map(|payload| payload.len());
    assert_eq!(lengths.payloads().copied().collect::<Vec<_>>(), [2, 2]);
    rest.extend(even);
    assert_eq!(lengths.commit().now_or_never().unwrap().unwrap(), Commit::Deferred);
    assert_eq!(rest.commit().await.unwrap(), Commit::Stored);
    assert_eq!(harness.checkpoint("a").await, "after a5");
}
