//! Parallel work that keeps the order of each key (A7).

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use futures::{FutureExt, Stream, StreamExt, TryStreamExt, stream};
use proptest::prelude::*;
use tokio::{
    runtime::Builder,
    time::{Duration, sleep, timeout},
};

use super::{script::Rule, scripted_service::ServiceOp};
use crate::{
    delivery::Delivery,
    error::{KinesisError, service::FailureKind},
    simulation::harness::{Harness, horizon, millis, name, names, seconds, take, within},
    state::tracker::Commit,
    subscription::{Subscription, buffer_by::DeliveryStreamExt},
    util::mutex::lock,
};

/// The events of a test, each with its time.
#[derive(Clone, Debug, Default)]
struct History(Arc<Mutex<Vec<String>>>);

impl History {
    fn note(&self, harness: &Harness, what: &str) {
        // The first reads take some milliseconds.
        lock(&self.0).push(format!("{what} at {}", harness.millis() / 100 * 100));
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.0))
    }
}

/// Works on a record for a second, then acknowledges it.
async fn second(delivery: Delivery, harness: &Harness, history: &History) -> Result<String, KinesisError> {
    let what = format!("{}#{}", name(&delivery), delivery.attempt());
    history.note(harness, &what);
    sleep(seconds(1)).await;
    delivery.ack();
    Ok(what)
}

/// All results within this time. Fails on an error.
async fn results<R>(of: &mut (impl Stream<Item = Result<R, KinesisError>> + Unpin), time: Duration) -> Vec<R> {
    let mut results = Vec::new();
    let all = async {
        while let Some(result) = of.next().await {
            results.push(result.unwrap());
        }
    };
    let _ = timeout(time, all).await;
    results
}

async fn on(harness: &Harness) -> Subscription {
    harness.instance("me").subscribe(horizon()).await
}

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
    let mut work = on(&harness).await.try_filter_map(put_aside).buffer_by_key(10, work);
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

// A7, A1
#[tokio::test(start_paused = true)]
async fn waiting_records_of_a_lost_lease_do_not_run_and_are_delivered_under_the_next_lease() {
    let (harness, history) = (Harness::new(&["a"]), History::default());
    harness.kinesis.put_keys("a", "xxyy");
    let work = async |delivery: Delivery| {
        let what = format!("{} of epoch {}", name(&delivery), delivery.epoch());
        history.note(&harness, &what);
        let (first, fails) = (delivery.epoch() == 1, name(&delivery) == "a0");
        if first {
            sleep(seconds(if fails { 1 } else { 30 })).await;
        }
        if first && fails {
            return Ok(format!("{what} fails"));
        }
        let expected = if first { Commit::Superseded } else { Commit::Stored };
        assert_eq!(delivery.commit().await?, expected, "{what}");
        Ok(what)
    };
    let mut work = on(&harness).await.tolerant().buffer_by_key(10, work);
    assert_eq!(results(&mut work, seconds(2)).await, ["a0 of epoch 1 fails"]);
    // The record is redelivered after two seconds and again after four. The lease is lost in between.
    assert_eq!(results(&mut work, millis(600)).await, ["a0 of epoch 1 fails"; 0]);
    harness.steal("a", "thief").await;
    let done = results(&mut work, seconds(100)).await;
    let of_third = ["a0 of epoch 3", "a1 of epoch 3"];
    assert_eq!(done.iter().filter(|what| of_third.contains(&what.as_str())).count(), 2, "{done:?}");
    let events = history.take();
    let begun = |what: &str| events.iter().position(|line| line.starts_with(what));
    assert!(begun("a1 of epoch 1").is_none() && begun("a3 of epoch 1").is_none(), "{events:?}");
    assert!(begun("a0 of epoch 3") < begun("a1 of epoch 3") && begun("a2 of epoch 3") < begun("a3 of epoch 3"));
    assert_eq!(harness.checkpoint("a").await, "after a3");
}

// A7, R10
#[tokio::test(start_paused = true)]
async fn a_lost_lease_unblocks_its_keys_at_once() {
    let (harness, history) = (Harness::new(&["a", "b"]), History::default());
    harness.kinesis.put_keys("a", "x");
    let work = async |delivery: Delivery| match (name(&delivery), delivery.attempt()) {
        ("a0", ..7) => {
            drop(delivery);
            Ok("failed".to_owned())
        }
        _ => second(delivery, &harness, &history).await,
    };
    let mut work = on(&harness).await.tolerant().buffer_by_key(10, work);
    // After six attempts, at 31 s, the next attempt is due at 63 s.
    assert_eq!(results(&mut work, seconds(32)).await.len(), 6);
    harness.kinesis.put_keys("b", "x");
    assert_eq!(results(&mut work, seconds(2)).await, ["failed"; 0]);
    harness.steal("a", "thief").await;
    harness.kinesis.put_keys("b", "x");
    assert_eq!(results(&mut work, seconds(8)).await, ["b0#1", "b1#1"]);
}

// A7, R10
#[tokio::test(start_paused = true)]
async fn a_reader_that_gives_up_drops_waiting_records_and_all_are_redelivered_in_order() {
    let (harness, history) = (Harness::new(&["a"]), History::default());
    harness.kinesis.put_keys("a", "xxx");
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).after(1).times(11), FailureKind::Other);
    let work = async |delivery: Delivery| {
        if delivery.epoch() == 1 {
            // The reader gives up after eleven seconds, while this record has four seconds to its redelivery.
            sleep(seconds(if delivery.attempt() == 3 { 2 } else { 1 })).await;
            history.note(&harness, &format!("{} fails", name(&delivery)));
            return Ok("failed".to_owned());
        }
        second(delivery, &harness, &history).await
    };
    let mut work = me.subscribe(horizon()).await.tolerant().buffer_by_key(10, work);
    let done = results(&mut work, seconds(40)).await;
    assert_eq!(done, ["failed", "failed", "failed", "a0#1", "a1#1", "a2#1"]);
    let expected = ["a0 fails at 1000", "a0 fails at 3000", "a0 fails at 7000"];
    assert_eq!(history.take()[..3], expected);
    assert_eq!((harness.checkpoint("a").await.as_str(), harness.row("a").await.unwrap().epoch), ("after a2", 2));
}

// A7, L9
#[tokio::test(start_paused = true)]
async fn closing_runs_records_behind_running_ones_but_not_behind_returned_ones() {
    let (harness, history) = (Harness::new(&["a"]), History::default());
    harness.kinesis.put_keys("a", "yyyxxyy");
    let work = async |delivery: Delivery| match (name(&delivery), delivery.attempt()) {
        ("a3", 1) => {
            drop(delivery);
            Ok("failed".to_owned())
        }
        ("a5", 1) => {
            sleep(seconds(1)).await;
            delivery.nack();
            Ok("failed too".to_owned())
        }
        _ => second(delivery, &harness, &history).await,
    };
    let subscription = on(&harness).await;
    let closer = subscription.closer();
    let mut work = subscription.buffer_by_key(10, work);
    assert_eq!(results(&mut work, millis(500)).await, ["failed"]);
    let closing = tokio::spawn(async move { closer.close().await });
    assert_eq!(results(&mut work, seconds(60)).await, ["a0#1", "a1#1", "a2#1", "failed too"]);
    assert!(work.next().now_or_never().is_some_and(|end| end.is_none()));
    drop(work);
    let report = closing.await.unwrap();
    assert_eq!((report.open[0].deliveries, report.open[0].oldest.as_str()), (4, "a3"));
    assert!(harness.millis() < 5_000, "no delivery is open: {}", harness.millis());
    assert_eq!(harness.checkpoint("a").await, "after a2");
    let mut next = harness.instance("me").subscribe(horizon()).await;
    assert_eq!(names(&take(&mut next, 4).await), ["a3", "a4", "a5", "a6"]);
}

// A2
#[tokio::test(start_paused = true)]
async fn dropping_the_stream_gives_back_waiting_records_even_with_ack_on_drop() {
    let (harness, history) = (Harness::new(&["a"]), History::default());
    harness.kinesis.put_keys("a", "xxx");
    let subscription = harness.instance("me").subscribe(horizon().ack_on_drop()).await;
    let mut work = subscription.buffer_by_key(10, |delivery| second(delivery, &harness, &history));
    assert_eq!(results(&mut work, millis(1_500)).await, ["a0#1"]);
    drop(work);
    sleep(seconds(1)).await;
    assert_eq!((harness.checkpoint("a").await.as_str(), harness.owner("a").await.as_str()), ("after a0", ""));

    let mut subscription = harness.instance("me").subscribe(horizon().ack_on_drop()).await;
    let mut work = (&mut subscription).buffer_by_key(1, |delivery| second(delivery, &harness, &history));
    assert_eq!(results(&mut work, millis(500)).await, [""; 0]);
    drop(work);
    // The dropped future of the running record acknowledged it, as a cancelled future does under `ack_on_drop`.
    let rest = within(&mut subscription, seconds(5)).await;
    assert_eq!(names(&rest), ["a2"]);
}

// A7
#[test]
fn a_panic_reaches_the_polling_task_and_acknowledges_nothing() {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put_keys("a", "xx");
        let work = async |delivery: Delivery| {
            assert_eq!(name(&delivery), "something else", "on purpose");
            Ok(())
        };
        let mut work = on(&harness).await.buffer_by_key(10, work);
        let panicked = std::panic::AssertUnwindSafe(work.next()).catch_unwind().await;
        assert!(panicked.is_err());
        drop(work);
        sleep(seconds(1)).await;
        assert_eq!((harness.checkpoint("a").await.as_str(), harness.owner("a").await.as_str()), ("at a0", ""));
    });
}

/// How the handler treats the attempts of one record.
#[derive(Clone, Copy, Debug)]
struct Work {
    takes: u64,
    fails: u32,
    nacks: bool,
}

fn work() -> impl Strategy<Value = Work> {
    (0..50_u64, prop_oneof![6 => Just(0), 1 => 1..3_u32], any::<bool>()).prop_map(|(takes, fails, nacks)| Work {
        takes,
        fails,
        nacks,
    })
}

/// Plays records of these keys and checks the invariants of every run.
async fn play(records: &[(u8, Work)], n: usize, max_waiting: usize, max_in_flight: usize) {
    let harness = Harness::new(&["a", "b"]);
    let (mut works, mut of_key, mut put) = (BTreeMap::new(), BTreeMap::<String, Vec<String>>::new(), [0, 0]);
    for (key, work) in records {
        let shard = usize::from(key % 2);
        let (name, key) = (format!("{}{}", ["a", "b"][shard], put[shard]), char::from(b'k' + key).to_string());
        harness.kinesis.put_keys(["a", "b"][shard], &key);
        put[shard] += 1;
        works.insert(name.clone(), *work);
        of_key.entry(key).or_default().push(name);
    }
    let subscription = harness.instance("me").subscribe(horizon().max_in_flight(max_in_flight)).await;
    let (running, settled) = (Mutex::new(BTreeMap::new()), Mutex::new(BTreeMap::<String, Vec<String>>::new()));
    let work = async |delivery: Delivery| {
        let (key, named) = (delivery.partition_key().unwrap().to_owned(), name(&delivery).to_owned());
        assert_eq!(
            lock(&running).insert(key.clone(), named.clone()),
            None,
            "{named} runs while another record of its key does"
        );
        assert!(lock(&running).len() <= n);
        let before = lock(&settled).get(&key).map_or(0, Vec::len);
        assert_eq!(of_key[&key][before], named, "a record runs once those before it are settled");
        let Work { takes, fails, nacks } = works[&named];
        sleep(millis(takes)).await;
        lock(&running).remove(&key);
        if delivery.attempt() <= fails {
            if nacks {
                delivery.nack();
            }
            return Ok(false);
        }
        lock(&settled).entry(key).or_default().push(named);
        delivery.ack();
        Ok(true)
    };
    let mut work = subscription.buffer_by_key(n, work).max_waiting(max_waiting);
    let all = async {
        let mut left = records.len();
        while left > 0 {
            left -= usize::from(work.next().await.unwrap().unwrap());
        }
    };
    timeout(Duration::from_mins(20), all).await.expect("every record completes");
    drop(work);
    assert_eq!(settled.into_inner().unwrap(), of_key);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    // A7
    #[test]
    fn random_failures_and_durations_keep_the_order_of_each_key_and_complete_every_record(
        records in proptest::collection::vec((0..6_u8, work()), 0..60),
        n in 1..8_usize,
        max_waiting in 1..10_usize,
        max_in_flight in 1..20_usize,
    ) {
        let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(play(&records, n, max_waiting, max_in_flight));
    }
}
