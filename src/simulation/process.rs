//! Batches that a handler processes (A8).

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use futures::{FutureExt, TryStreamExt};
use tokio::time::{Duration, sleep, timeout};

use super::harness::{Harness, horizon, millis, name, names, next, range, seconds, within};
use crate::{
    config::position::KinesisPosition,
    dead_letters::dead_letter::DeadLetter,
    error::KinesisError,
    subscription::{
        batch::Batch, batch_failures::BatchFailures, delivery_stream_ext::DeliveryStreamExt, descriptor::KinesisStream,
    },
    util::mutex::lock,
};

mod in_order;
mod random;

/// A stream whose spent records become dead letters after two attempts.
fn two_attempts() -> KinesisStream {
    horizon().max_attempts(2).dead_letter("dead")
}

/// The calls of a handler, in order: the time in milliseconds, the first and the last record.
#[derive(Default)]
struct Calls(Mutex<Vec<String>>);

impl Calls {
    fn note(&self, harness: &Harness, batch: &Batch) {
        let named = names(batch.deliveries());
        let (first, last) = (named[0], named[named.len() - 1]);
        lock(&self.0).push(format!("{first}-{last} at {}", harness.millis()));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0))
    }
}

/// Runs it for this time.
async fn run(work: impl Future<Output = Result<(), KinesisError>>, time: Duration) {
    assert!(timeout(time, work).await.is_err(), "it goes on as long as its source does");
}

fn dead(harness: &Harness) -> Vec<String> {
    let letters = harness.kinesis.written().into_iter().map(|put| DeadLetter::parse(&put.key, put.data).unwrap());
    letters
        .map(|letter| {
            let name = str::from_utf8(letter.record().payload()).unwrap().to_owned();
            format!("{name}#{}: {}", letter.attempts(), letter.reason())
        })
        .collect()
}

// A8
#[tokio::test(start_paused = true)]
async fn an_error_halves_the_batch_until_the_poison_record_stands_alone_and_is_a_dead_letter() {
    let (harness, calls) = (Harness::new(&["a"]), Calls::default());
    harness.kinesis.put("a", 8);
    let subscription = harness.instance("me").subscribe(two_attempts()).await;
    let stats = subscription.stats_handle();
    let work = subscription.batches(8).unwrap().process(4, async |batch| {
        calls.note(&harness, &batch);
        if batch.iter().any(|delivery| name(delivery) == "a5") { Err("poison") } else { Ok(()) }
    });
    run(work, seconds(10)).await;
    let halved = ["a0-a7", "a0-a3", "a4-a7", "a4-a5", "a4-a4", "a5-a5", "a6-a7"].map(|call| format!("{call} at 0"));
    // The redelivery waits for 1 s, and its batch for 50 ms.
    assert_eq!(calls.take(), [&halved[..], &["a5-a5 at 1050".to_owned()]].concat());
    assert_eq!((dead(&harness), harness.checkpoint("a").await.as_str()), (vec!["a5#2: poison".into()], "after a7"));
    let shard = stats.snapshot().shards.remove(0);
    assert_eq!((shard.batches, shard.halvings, shard.acked), (2, 3, 7));
    assert_eq!((shard.given_back, shard.spent, shard.dead_letters), (2, 1, 1));
}

// A8, A7
#[tokio::test(start_paused = true)]
async fn records_that_the_handler_names_are_given_back_or_rejected_and_the_others_settled() {
    let (harness, calls) = (Harness::new(&["a"]), Calls::default());
    harness.kinesis.put("a", 5);
    let subscription = harness.instance("me").subscribe(two_attempts()).await;
    let work = subscription.batches(5).unwrap().process(1, async |batch| {
        calls.note(&harness, &batch);
        let mut failures = BatchFailures::none();
        for (index, delivery) in batch.iter().enumerate() {
            match (name(delivery), delivery.attempt()) {
                ("a1", _) => failures.reject(index, "no digit"),
                ("a3", 1) => failures.retry(index, "busy"),
                _ => {}
            }
        }
        Ok::<_, String>(failures)
    });
    run(work, seconds(10)).await;
    assert_eq!(calls.take(), ["a0-a4 at 0", "a3-a3 at 1050"]);
    assert_eq!((dead(&harness), harness.checkpoint("a").await.as_str()), (vec!["a1#1: no digit".into()], "after a4"));
}

// A8
#[tokio::test(start_paused = true)]
async fn an_answer_for_all_gives_the_batch_back_without_halving_it() {
    let (harness, calls) = (Harness::new(&["a"]), Calls::default());
    harness.kinesis.put("a", 4);
    let subscription = harness.instance("me").subscribe(horizon()).await;
    let stats = subscription.stats_handle();
    let work = subscription.batches(4).unwrap().process(1, async |batch| {
        calls.note(&harness, &batch);
        let is_away = batch.iter().any(|delivery| delivery.attempt() == 1);
        Ok::<_, String>(if is_away { BatchFailures::all("away") } else { BatchFailures::none() })
    });
    run(work, seconds(10)).await;
    assert_eq!(calls.take(), ["a0-a3 at 0", "a0-a3 at 1000"]);
    assert_eq!((stats.snapshot().shards[0].halvings, harness.checkpoint("a").await.as_str()), (0, "after a3"));
}

// A8, S1
#[tokio::test(start_paused = true)]
async fn a_shard_has_one_batch_at_a_time_and_several_shards_run_at_once() {
    for (n, expected) in [
        (2, ["a0-a1 at 0", "b0-b1 at 0", "a2-a3 at 1000", "b2-b3 at 1000"]),
        (0, ["a0-a1 at 0", "b0-b1 at 1000", "a2-a3 at 2000", "b2-b3 at 3000"]),
    ] {
        let (harness, calls) = (Harness::new(&["a", "b"]), Calls::default());
        harness.kinesis.put("a", 4);
        harness.kinesis.put("b", 4);
        let subscription = harness.instance("me").subscribe(horizon()).await;
        let work = subscription.batches(2).unwrap().process(n, async |batch| {
            calls.note(&harness, &batch);
            sleep(seconds(1)).await;
            Ok::<_, String>(())
        });
        run(work, seconds(20)).await;
        let mut seen = calls.take();
        if n == 0 {
            let (shards, times): (BTreeSet<String>, Vec<String>) =
                seen.iter().map(|call| call.split_once(" at ").unwrap()).map(|(s, t)| (s.into(), t.into())).unzip();
            assert_eq!((shards.len(), times), (4, ["0", "1000", "2000", "3000"].map(Into::into).into()));
        } else {
            seen.sort_by_key(|call| {
                call.split_once(" at ").map(|(of, at)| (at.parse::<u64>().unwrap(), of.to_owned()))
            });
            assert_eq!(seen, expected);
        }
        assert_eq!([harness.checkpoint("a").await, harness.checkpoint("b").await], ["after a3", "after b3"]);
    }
}

// A8, A2
#[tokio::test(start_paused = true)]
async fn a_dropped_future_gives_all_records_back_even_with_ack_on_drop_and_only_the_call_counts_as_an_attempt() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 8);
    let mut subscription = harness.instance("me").subscribe(horizon().ack_on_drop()).await;
    let work = (&mut subscription).batches(4).unwrap().process(1, async |batch| {
        if batch.len() == 4 {
            return Err("poison");
        }
        sleep(seconds(60)).await;
        Ok(())
    });
    run(work, millis(500)).await;
    let mut again = within(&mut subscription, seconds(3)).await;
    again.sort_by_key(|delivery| name(delivery).to_owned());
    assert_eq!(names(&again), range("a", 0..8));
    let attempts: Vec<u32> = again.iter().map(crate::Delivery::attempt).collect();
    assert_eq!(attempts, [2, 2, 1, 1, 1, 1, 1, 1]);
}

// A8, A6
#[tokio::test(start_paused = true)]
async fn after_a_seek_the_handler_gets_no_other_part_of_its_batch() {
    let (harness, calls) = (Harness::new(&["a"]), Calls::default());
    harness.kinesis.put("a", 4);
    let subscription = harness.instance("me").subscribe(horizon()).await;
    let seeker = subscription.seeker();
    let work = subscription.batches(4).unwrap().process(1, async |batch| {
        calls.note(&harness, &batch);
        if harness.millis() > 0 {
            return Ok(());
        }
        sleep(seconds(1)).await;
        seeker.seek(KinesisPosition::horizon()).await.unwrap();
        Err("poison")
    });
    run(work, seconds(10)).await;
    assert_eq!(calls.take(), ["a0-a3 at 0", "a0-a3 at 1000"]);
    assert_eq!(harness.checkpoint("a").await, "after a3");
}

// A8, X1
#[tokio::test(start_paused = true)]
async fn it_ends_at_the_first_error_of_its_source_and_gives_the_rest_back() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    next(&mut subscription).await.reject("no digit");
    let work = (&mut subscription).map_ok(|delivery| delivery).batches(4).unwrap();
    let work = work.process(1, async |_| Ok::<_, String>(()));
    assert!(matches!(work.await, Err(KinesisError::AttemptsSpent { .. })));
    let again = within(&mut subscription, seconds(3)).await;
    // The first one was in an unfinished batch, and is redelivered after a pause.
    assert_eq!((names(&again), again[1].attempt()), (vec!["a2", "a1"], 1));
}

// A8, L9
#[tokio::test(start_paused = true)]
async fn closing_processes_the_batches_that_wait_and_ends_it() {
    let (harness, calls) = (Harness::new(&["a"]), Calls::default());
    harness.kinesis.put("a", 5);
    let subscription = harness.instance("me").subscribe(horizon()).await;
    let closer = subscription.closer();
    let work = subscription.batches(2).unwrap().process(2, async |batch| {
        calls.note(&harness, &batch);
        sleep(seconds(1)).await;
        Ok::<_, String>(())
    });
    let close = async {
        sleep(millis(500)).await;
        closer.close().await
    };
    let (ended, report) = futures::join!(work, close);
    assert_eq!((ended.is_ok(), report.is_clean()), (true, true));
    assert_eq!(calls.take(), ["a0-a1 at 0", "a2-a3 at 1000", "a4-a4 at 2000"]);
    assert_eq!(harness.checkpoint("a").await, "after a4");
}

// A8, A2
#[tokio::test(start_paused = true)]
async fn a_batch_that_its_handler_keeps_is_settled_when_it_is_dropped() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let subscription = harness.instance("me").subscribe(horizon()).await;
    let (stats, kept) = (subscription.stats_handle(), Mutex::new(Vec::new()));
    let work = subscription.batches(2).unwrap().process(1, async |batch: Arc<Batch>| {
        if batch.deliveries()[0].attempt() == 1 {
            lock(&kept).push(batch);
        }
        Ok::<_, String>(())
    });
    let drop_it = async {
        sleep(seconds(5)).await;
        assert_eq!(stats.snapshot().shards[0].in_flight, 2);
        lock(&kept).clear();
    };
    run(async { futures::join!(work, drop_it).0 }, seconds(20)).await;
    assert_eq!((harness.checkpoint("a").await.as_str(), stats.snapshot().shards[0].given_back), ("after a1", 2));
}

// A8
#[tokio::test(start_paused = true)]
async fn a_panic_of_the_handler_reaches_the_caller_and_acknowledges_nothing() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let mut subscription = harness.instance("me").subscribe(horizon().ack_on_drop()).await;
    let work = (&mut subscription).batches(2).unwrap().process(1, async |_| -> Result<(), String> { panic!("poison") });
    assert!(std::panic::AssertUnwindSafe(work).catch_unwind().await.is_err());
    assert_eq!(names(&within(&mut subscription, seconds(3)).await), ["a0", "a1"]);
}
