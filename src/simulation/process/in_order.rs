//! Batches in order: a record that fails holds its shard (A8).

use tokio::time::sleep;

use super::{Calls, dead, run, two_attempts};
use crate::simulation::harness::{Harness, horizon, millis, name, names, seconds, within};

// A8, S1
#[tokio::test(start_paused = true)]
async fn a_record_that_fails_holds_its_shard_until_it_is_given_up() {
    let (harness, calls) = (Harness::new(&["a"]), Calls::default());
    harness.kinesis.put("a", 6);
    let subscription = harness.instance("me").subscribe(two_attempts().max_attempts(3)).await;
    let stats = subscription.stats_handle();
    let work = subscription.batches(3).unwrap().process(4, async |batch| {
        calls.note(&harness, &batch);
        if batch.iter().any(|delivery| name(delivery) == "a1") { Err("poison") } else { Ok(()) }
    });
    run(work.in_order(), seconds(10)).await;
    let expected = [
        "a0-a2 at 0",
        "a0-a1 at 0",
        "a0-a0 at 0",
        "a1-a1 at 0",
        "a1-a1 at 1000",
        "a1-a1 at 3000",
        "a2-a2 at 3000",
        "a3-a5 at 3000",
    ];
    assert_eq!(calls.take(), expected);
    assert_eq!((dead(&harness), harness.checkpoint("a").await.as_str()), (vec!["a1#3: poison".into()], "after a5"));
    let shard = stats.snapshot().shards.remove(0);
    assert_eq!((shard.batches, shard.halvings, shard.acked), (2, 2, 5));
    assert_eq!((shard.given_back, shard.redeliveries, shard.spent), (3, 2, 1));
}

// A8
#[tokio::test(start_paused = true)]
async fn records_that_failed_together_are_tried_again_together_and_other_shards_continue() {
    let (harness, calls) = (Harness::new(&["a", "b"]), Calls::default());
    harness.kinesis.put("a", 4);
    harness.kinesis.put("b", 4);
    let subscription = harness.instance("me").subscribe(horizon()).await;
    let work = subscription.batches(3).unwrap().process(1, async |batch| {
        calls.note(&harness, &batch);
        let fails = |index: &usize| {
            let delivery = &batch.deliveries()[*index];
            matches!(name(delivery), "a0" | "a2") && delivery.attempt() == 1
        };
        Ok::<_, String>((0..batch.len()).filter(fails).collect::<Vec<_>>())
    });
    run(work.in_order(), seconds(10)).await;
    let mut of_shards = [Vec::new(), Vec::new()];
    calls.take().into_iter().for_each(|call| of_shards[usize::from(call.starts_with('b'))].push(call));
    assert_eq!(of_shards[0], ["a0-a2 at 0", "a0-a2 at 1000", "a3-a3 at 1000"]);
    assert_eq!(of_shards[1], ["b0-b2 at 0", "b3-b3 at 50"]);
    assert_eq!([harness.checkpoint("a").await, harness.checkpoint("b").await], ["after a3", "after b3"]);
}

// A8, L9
#[tokio::test(start_paused = true)]
async fn closing_during_a_pause_gives_the_record_and_all_behind_it_back_and_the_next_start_keeps_the_order() {
    let (harness, calls) = (Harness::new(&["a"]), Calls::default());
    harness.kinesis.put("a", 5);
    let me = harness.instance("me");
    let subscription = me.subscribe(horizon().retry_backoff(seconds(60)..=seconds(60))).await;
    let closer = subscription.closer();
    let work = subscription.batches(2).unwrap().process(1, async |batch| {
        calls.note(&harness, &batch);
        Ok::<_, String>(if name(&batch.deliveries()[0]) == "a0" { vec![0] } else { Vec::new() })
    });
    let close = async {
        sleep(millis(500)).await;
        (closer.close().await.is_clean(), harness.millis())
    };
    let (ended, report) = futures::join!(work.in_order(), close);
    assert!(ended.is_ok());
    assert_eq!((calls.take(), report), (vec!["a0-a1 at 0".to_owned()], (false, 1_000)));
    let again = within(&mut me.subscribe(horizon()).await, seconds(3)).await;
    assert_eq!(names(&again), ["a0", "a1", "a2", "a3", "a4"]);
}

// A8, E3
#[tokio::test(start_paused = true)]
async fn a_lease_that_is_lost_during_a_pause_ends_the_batch() {
    let (harness, calls) = (Harness::new(&["a"]), Calls::default());
    harness.kinesis.put("a", 4);
    let subscription = harness.instance("me").subscribe(horizon().retry_backoff(seconds(60)..=seconds(60))).await;
    let work = subscription.tolerant().batches(2).unwrap().process(1, async |batch| {
        calls.note(&harness, &batch);
        Ok::<_, String>(if harness.millis() == 0 { vec![0] } else { Vec::new() })
    });
    let steal = async {
        sleep(seconds(1)).await;
        harness.steal("a", "thief").await;
        sleep(seconds(80)).await;
    };
    run(async { futures::join!(work.in_order(), steal).0 }, seconds(100)).await;
    let seen = calls.take();
    assert_eq!((&seen[0], &seen[1][..5], &seen[2][..5]), (&"a0-a1 at 0".to_owned(), "a0-a1", "a2-a3"), "{seen:?}");
    assert_eq!((seen.len(), harness.checkpoint("a").await.as_str()), (3, "after a3"));
}

// A8
#[tokio::test(start_paused = true)]
async fn a_record_that_becomes_too_old_in_its_pause_is_given_up_and_its_shard_goes_on() {
    let (harness, calls) = (Harness::new(&["a"]), Calls::default());
    harness.kinesis.put("a", 1);
    let stream = two_attempts().max_age(seconds(60)).retry_backoff(seconds(90)..=seconds(90));
    let subscription = harness.instance("me").subscribe(stream).await;
    let put = async {
        sleep(seconds(80)).await;
        harness.kinesis.put("a", 1);
    };
    let work = subscription.batches(1).unwrap().process(1, async |batch| {
        calls.note(&harness, &batch);
        if name(&batch.deliveries()[0]) == "a0" { Err("busy") } else { Ok(()) }
    });
    run(async { futures::join!(work.in_order(), put).0 }, seconds(120)).await;
    assert_eq!(calls.take(), ["a0-a0 at 0", "a1-a1 at 90000"]);
    let letter = "a0#1: older than 60s; the reason before: given back".to_owned();
    assert_eq!((dead(&harness), harness.checkpoint("a").await.as_str()), (vec![letter], "after a1"));
}
