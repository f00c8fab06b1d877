//! When a batch is yielded and what it holds (R7).

use std::{collections::BTreeMap, sync::Arc};

use futures::StreamExt;

use kinesis_stream_support::Rng;
use tokio::time::{Duration, Instant, sleep, timeout, timeout_at};

use super::{super::kinesis::Kinesis, batch_names, batches, next, timed};

use crate::{
    simulation::harness::{Harness, horizon, latest, millis, name, names, range, seconds, take},
    subscription::Subscription,
};

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
