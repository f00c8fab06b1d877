//! Records in batches: when a batch is yielded, what it holds, and how settling it works (R7, A1, A2, A5).

use std::{collections::BTreeMap, sync::Arc};

use futures::{FutureExt, StreamExt};
use tokio::time::{Duration, Instant, sleep, timeout, timeout_at};

use kinesis_stream_support::Rng;

use super::{
    kinesis::Kinesis,
    script::{Fault, Rule},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};
use crate::{
    delivery::Delivery,
    error::{ErrorClass, KinesisError, service::FailureKind},
    simulation::harness::{
        CapturedLogs, Harness, Instance, horizon, latest, millis, name, names, range, seconds, take,
    },
    state::tracker::Commit,
    subscription::{Subscription, batch::Batch, batches::Batches, descriptor::KinesisStream},
};

const LONG: Duration = Duration::from_hours(1);

/// The next item or the end.
async fn item(batches: &mut Batches) -> Option<Result<Batch, KinesisError>> {
    timeout(LONG, batches.next()).await.expect("an item comes within an hour")
}

/// The next item, which must be a batch.
async fn next(batches: &mut Batches) -> Batch {
    item(batches).await.expect("the stream continues").unwrap()
}

/// The names of the next batch's records, and the time at which it was yielded.
async fn timed(harness: &Harness, batches: &mut Batches) -> (Vec<String>, u128) {
    let batch = next(batches).await;
    let names = batch_names(&batch);
    batch.ack();
    (names, harness.millis())
}

fn batch_names(batch: &Batch) -> Vec<String> {
    names(batch.deliveries()).into_iter().map(ToOwned::to_owned).collect()
}

async fn batches(me: &Instance, stream: KinesisStream, size: usize) -> Batches {
    me.subscribe(stream).await.batches(size).unwrap()
}

// R7
#[tokio::test(start_paused = true)]
async fn a_batch_is_never_larger_than_its_size_even_if_more_records_were_read() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 10);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let first = take(&mut subscription, 1).await;
    assert_eq!((names(&first), me.service.limits("a")), (vec!["a0"], vec![1_000]));
    let mut batches = subscription.batches(4).unwrap();
    assert_eq!(timed(&harness, &mut batches).await, (range("a", 1..5), 0));
    assert_eq!(timed(&harness, &mut batches).await, (range("a", 5..9), 0));
    assert_eq!(timed(&harness, &mut batches).await, (range("a", 9..10), 50));
}

// R7
#[tokio::test(start_paused = true)]
async fn the_next_read_asks_for_the_batch_size() {
    for (size, limit) in [(1, 1), (4, 4), (5_000, 5_000), (1_000, 1_000)] {
        let harness = Harness::new(&["a", "b"]);
        let me = harness.instance("me");
        let mut batches = batches(&me, latest(), size).await;
        assert!(timeout(millis(2_500), batches.next()).await.is_err());
        assert_eq!(me.service.limits("a"), [1_000, limit, limit]);
        assert_eq!(me.service.limits("b"), [1_000, limit, limit]);
    }
}

// R7
#[tokio::test(start_paused = true)]
async fn a_read_asks_for_at_most_ten_thousand_records() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 10_001);
    let me = harness.instance("me");
    let mut batches = batches(&me, horizon().read_limit(1).max_in_flight(20_000), 10_000).await;
    assert_eq!(next(&mut batches).await.len(), 10_000);
    assert_eq!(me.service.limits("a")[..2], [1, 10_000]);
}

// R7
#[tokio::test(start_paused = true)]
async fn keep_read_limit_keeps_the_limit_of_the_descriptor() {
    for (stream, limit) in [(latest(), 1_000), (latest().read_limit(7), 7)] {
        let harness = Harness::new(&["a"]);
        let me = harness.instance("me");
        let mut batches = batches(&me, stream, 4).await.keep_read_limit();
        harness.kinesis.put("a", 6);
        assert_eq!(timed(&harness, &mut batches).await, (range("a", 0..4), 1_000));
        assert_eq!(timed(&harness, &mut batches).await, (range("a", 4..6), 1_050));
        sleep(seconds(1)).await;
        assert_eq!(me.service.limits("a"), [limit; 3]);
    }
}

// R7
#[tokio::test(start_paused = true)]
async fn a_batch_is_yielded_when_it_is_full_or_max_wait_after_its_first_record() {
    // The records are read after 30, 45, 60, 75 and 90 ms.
    let table = [
        (millis(50), vec![(range("a", 0..3), 60), (range("a", 3..5), 125)]),
        (millis(25), vec![(range("a", 0..2), 55), (range("a", 2..4), 85), (range("a", 4..5), 115)]),
        (millis(0), (0..5).zip([30, 45, 60, 75, 90]).map(|(n, at)| (range("a", n..n + 1), at)).collect()),
        (seconds(1_800), vec![(range("a", 0..3), 60), (range("a", 3..5), 1_800_075)]),
        (Duration::MAX, vec![(range("a", 0..3), 60)]),
    ];
    for (max_wait, expected) in table {
        let harness = Harness::new(&["a"]);
        let me = harness.instance("me");
        let stream = latest().poll_interval(millis(10)).reads_per_second(1_000);
        let mut batches = batches(&me, stream, 3).await;
        if max_wait != millis(50) {
            batches = batches.max_wait(max_wait);
        }
        let producer = tokio::spawn(trickle(Arc::clone(&harness.kinesis)));
        for (records, at) in expected {
            assert_eq!(timed(&harness, &mut batches).await, (records, at), "{max_wait:?}");
        }
        producer.await.unwrap();
    }
}

/// Puts five records, one every 15 ms, each shortly before it is read.
async fn trickle(kinesis: Arc<Kinesis>) {
    sleep(millis(25)).await;
    for _ in 0..5 {
        kinesis.put("a", 1);
        sleep(millis(15)).await;
    }
}

// R7
#[tokio::test(start_paused = true)]
async fn a_batch_holds_records_of_all_shards_in_the_order_of_each_shard() {
    let harness = Harness::new(&["a", "b", "c"]);
    for shard in ["a", "b", "c"] {
        harness.kinesis.put(shard, 5);
    }
    let mut batches = batches(&harness.instance("me"), horizon(), 15).await;
    let mut batch = batch_names(&next(&mut batches).await);
    assert_eq!(harness.millis(), 0);
    batch.sort();
    assert_eq!(batch, [range("a", 0..5), range("b", 0..5), range("c", 0..5)].concat());
}

// R7
#[tokio::test(start_paused = true)]
async fn a_dropped_next_loses_no_record_and_does_not_extend_the_wait() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    let stream = latest().poll_interval(millis(10)).reads_per_second(1_000);
    let mut batches = batches(&me, stream, 100).await.max_wait(millis(80));
    let producer = tokio::spawn(trickle(Arc::clone(&harness.kinesis)));
    let mut dropped = 0;
    let batch = loop {
        match timeout(millis(3), batches.next()).await {
            Ok(batch) => break batch.unwrap().unwrap(),
            Err(_) => dropped += 1,
        }
    };
    assert_eq!((batch_names(&batch), harness.millis(), dropped), (range("a", 0..5), 110, 36));
    producer.await.unwrap();
}

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

// R7, A1
#[tokio::test(start_paused = true)]
async fn random_arrivals_put_every_record_into_one_batch_in_shard_order() {
    for seed in 0..60 {
        let mut rng = Rng(seed);
        let shards = &["a", "b", "c", "d"][..=rng.index(4)];
        let harness = Harness::new(shards);
        let stream = horizon().poll_interval(millis(20)).reads_per_second(100);
        let subscription = harness.instance("me").subscribe(stream).await;
        let (size, by_shard) = (1 + rng.index(12), rng.below(2) == 0);
        let make = if by_shard { Subscription::batches_by_shard } else { Subscription::batches };
        let mut batches = make(subscription, size).unwrap();
        let (mut put, mut came) = (BTreeMap::<&str, usize>::new(), BTreeMap::<String, Vec<String>>::new());
        for round in (0..=40).rev() {
            let (shard, count) = (*rng.pick(shards), rng.index(9));
            harness.kinesis.put(shard, count);
            *put.entry(shard).or_default() += count;
            let until = Instant::now() + if round == 0 { seconds(2) } else { millis(rng.below(90)) };
            while let Ok(batch) = timeout_at(until, batches.next()).await {
                let batch = batch.unwrap().unwrap();
                let first = batch.deliveries()[0].shard();
                assert!(batch.len() <= size, "seed {seed}");
                assert!(!by_shard || batch.iter().all(|record| record.shard() == first), "seed {seed}");
                for record in &batch {
                    came.entry(record.shard().to_string()).or_default().push(name(record).to_owned());
                }
                batch.ack();
            }
        }
        put.retain(|_, count| *count > 0);
        let expected = put.into_iter().map(|(shard, count)| (shard.to_owned(), range(shard, 0..count))).collect();
        assert_eq!(came, expected, "seed {seed}");
    }
}

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
            subscribe().await.batches(size),
            subscribe().await.batches_by_shard(size),
            subscribe().await.tolerant().batches(size),
            subscribe().await.tolerant().batches_by_shard(size),
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
