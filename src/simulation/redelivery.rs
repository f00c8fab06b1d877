//! Redelivered records (A7).

use std::sync::Arc;

use tokio::time::{Instant, sleep};

use crate::{
    config::redelivery::{Reason, RedeliveryDecision, Wish},
    delivery::Delivery,
    error::KinesisError,
    lease::Held,
    simulation::harness::{Harness, horizon, item, latest, millis, name, names, next, seconds, take, within},
    state::{
        events::{Redelivery, Returned},
        shard::{HandOut, ReturnOutcome, Shard},
    },
    types::{
        commit::Commit,
        record::{Headers, Kept},
    },
};

// A7
#[tokio::test(start_paused = true)]
async fn the_pause_doubles_from_a_second_to_a_minute_and_attempts_are_counted() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let mut record = next(&mut subscription).await;
    for (attempt, pause) in (2..).zip([1, 2, 4, 8, 16, 32, 60, 60, 60]) {
        let before = harness.millis();
        record.nack();
        record = next(&mut subscription).await;
        assert_eq!((name(&record), record.attempt(), record.epoch()), ("a0", attempt, 1));
        assert_eq!(harness.millis() - before, pause * 1_000);
    }
    assert_eq!(record.commit().await.unwrap(), Commit::Stored);
    assert_eq!(subscription.stats().shards[0].redeliveries, 9);
}

// A7
#[tokio::test(start_paused = true)]
async fn the_rest_of_the_shard_continues_during_the_pause() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 5);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    next(&mut subscription).await.nack();
    let rest = take(&mut subscription, 4).await;
    assert_eq!((names(&rest), harness.millis() < 10), (vec!["a1", "a2", "a3", "a4"], true));
    assert_eq!(name(&next(&mut subscription).await), "a0");
}

// A7, A3
#[tokio::test(start_paused = true)]
async fn a_checkpoint_never_passes_a_pending_redelivery() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 4);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let mut records = take(&mut subscription, 4).await;
    records.remove(2).nack();
    records.into_iter().for_each(Delivery::ack);
    sleep(seconds(20)).await;
    assert_eq!(harness.checkpoint("a").await, "after a1");
    next(&mut subscription).await.ack();
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a3");
}

// A7
#[tokio::test(start_paused = true)]
async fn records_due_at_the_same_time_are_redelivered_in_the_order_of_their_return() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 5);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    take(&mut subscription, 5).await.into_iter().rev().for_each(Delivery::nack);
    let again = within(&mut subscription, seconds(30)).await;
    assert_eq!(names(&again), ["a4", "a3", "a2", "a1", "a0"]);
}

// A7
#[tokio::test(start_paused = true)]
async fn a_redelivery_wakes_a_stream_that_another_task_polls() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let record = next(&mut subscription).await;
    let waiting = tokio::spawn(async move {
        let again = next(&mut subscription).await;
        again.attempt()
    });
    sleep(millis(2_500)).await;
    record.nack();
    assert_eq!(waiting.await.unwrap(), 2);
    assert_eq!(harness.millis() / 10, 350);
}

// A7
#[tokio::test(start_paused = true)]
async fn a_lost_lease_drops_pending_redeliveries_unsettled() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let mut records = take(&mut subscription, 2).await;
    let held = records.pop().unwrap();
    sleep(millis(2_900)).await;
    records.pop().unwrap().nack();
    harness.steal("a", "thief").await;
    assert!(matches!(item(&mut subscription).await, Some(Err(KinesisError::LeaseLost { .. }))));
    drop(held);
    let again = take(&mut subscription, 2).await;
    assert_eq!(names(&again), ["a0", "a1"]);
    assert!(again.iter().all(|record| (record.attempt(), record.epoch()) == (1, 3)));
    assert!(within(&mut subscription, seconds(100)).await.is_empty());
}

// A7: another thread may end the generation between the two steps of a return.
#[tokio::test(start_paused = true)]
async fn a_record_is_not_redelivered_if_its_generation_ends_while_it_is_given_back() {
    for ends in [false, true] {
        let harness = Harness::new(&["a"]);
        harness.steal("a", "me").await;
        let row = harness.row("a").await.unwrap();
        let context = harness.instance("me").context(latest());
        let shard = Shard::new(Arc::clone(&context), "a".into());
        let held = Held { key: row.key.clone(), owner: "me".into(), epoch: row.epoch };
        let now = Instant::now();
        let generation = shard.begin(&row, held, false, now).generation;
        let HandOut::Out(ticket, _) = shard.hand_out(generation, &"a0".into(), now) else { panic!("there is room") };
        let record = Kept {
            payload: "a0".into(),
            headers: Headers::default(),
            partition_key: None,
            sequence_number: "a0".into(),
            arrived_at: None,
        };
        let (shard_id, reason) = ("a".into(), Reason::GivenBack);
        let returned =
            Returned { ticket, shard: shard_id, record, attempts: 1, wish: Wish::Retry, reason, settlement: None };
        let again = RedeliveryDecision::Redeliver(seconds(1));
        let outcome = shard.put_down(returned, |returned| {
            if ends {
                shard.retire();
            }
            context.events.due(Redelivery::Again(returned), now + seconds(1));
            again
        });
        assert_eq!(outcome, ReturnOutcome::Queued(again));
        assert_eq!(context.events.next_due(), (!ends).then_some(now + seconds(1)));
    }
}
