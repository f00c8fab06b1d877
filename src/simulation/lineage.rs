//! Splits and merges: parents before children, and no time lost in between (H1 to H6).

use tokio::time::{Duration, Instant, sleep};

use super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};
use crate::{
    delivery::Delivery,
    lease::Held,
    simulation::harness::{
        Harness, Instance, horizon, item, latest, millis, name, names, next, range, seconds, take, within,
    },
    state::shard::{NextOp, Shards, StoreOp},
};

/// When a shard was first read.
fn first_read(me: &Instance, shard: &str) -> Option<Duration> {
    me.service.script.times(ServiceOp::GetRecords, shard).first().copied()
}

/// A shard with records that is split, and a record in each child.
fn split(count: usize) -> Harness {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", count);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    harness.kinesis.put("c", 1);
    harness
}

// H1, H5
#[tokio::test(start_paused = true)]
async fn a_new_consumer_at_the_horizon_reads_the_parent_and_then_its_children() {
    let harness = split(10);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let parents = take(&mut subscription, 10).await;
    assert_eq!(names(&parents), range("a", 0..10));
    parents.into_iter().for_each(Delivery::ack);
    assert_eq!(names(&within(&mut subscription, seconds(2)).await), ["b0", "c0"]);
}

// H1, H3, A7
#[tokio::test(start_paused = true)]
async fn one_open_delivery_delays_the_shard_end_and_the_children() {
    let harness = split(10);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let mut parents = take(&mut subscription, 10).await;
    let held = parents.remove(4);
    parents.into_iter().for_each(Delivery::ack);
    assert!(within(&mut subscription, seconds(100)).await.is_empty());
    assert_eq!(harness.checkpoint("a").await, "after a3");
    let settled_at = harness.millis();
    held.ack();
    let child = next(&mut subscription).await;
    assert_eq!((name(&child), harness.millis() - settled_at), ("b0", 0));
    assert_eq!(first_read(&me, "b").unwrap().as_millis(), settled_at);
    assert_eq!(harness.checkpoint("a").await, "SHARD_END");
}

// H3
#[tokio::test(start_paused = true)]
async fn a_pending_redelivery_delays_the_shard_end() {
    let harness = split(2);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let mut parents = take(&mut subscription, 2).await;
    parents.remove(0).nack();
    parents.remove(0).ack();
    sleep(seconds(30)).await;
    assert_eq!(harness.checkpoint("a").await, "at a0");
    next(&mut subscription).await.ack();
    sleep(millis(1)).await;
    assert_eq!(harness.checkpoint("a").await, "SHARD_END");
}

// H2
#[tokio::test(start_paused = true)]
async fn a_shard_ends_with_its_last_page_with_or_without_records() {
    for limit in [1, 4, 5, 100] {
        let harness = split(5);
        let me = harness.instance("me");
        let mut subscription = me.subscribe(horizon().read_limit(limit)).await;
        take(&mut subscription, 5).await.into_iter().for_each(Delivery::ack);
        assert_eq!(names(&take(&mut subscription, 2).await), ["b0", "c0"]);
        assert_eq!(me.table.log("a").split_off(2).last().unwrap(), "Release");
        assert_eq!(me.service.script.times(ServiceOp::GetRecords, "a").len(), 5_usize.div_ceil(limit as usize));
    }
}

// H4
#[tokio::test(start_paused = true)]
async fn children_start_at_the_last_settlement_even_after_a_large_page() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put_bytes("a", 8 << 20);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    next(&mut subscription).await.ack();
    assert_eq!(name(&next(&mut subscription).await), "b0");
    assert_eq!(harness.millis(), 0);
}

// H3
#[tokio::test(start_paused = true)]
async fn a_restart_on_an_ended_shard_without_new_records_stores_its_end_at_once() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    take(&mut subscription, 3).await.into_iter().for_each(Delivery::ack);
    subscription.close().await;
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("c", 1);
    let begun = harness.millis();
    let mut subscription = harness.instance("me").subscribe(latest()).await;
    let child = next(&mut subscription).await;
    assert_eq!((name(&child), harness.checkpoint("a").await.as_str()), ("c0", "SHARD_END"));
    assert!(harness.millis() - begun < 1_100, "{}", harness.millis() - begun);
}

// H4
#[tokio::test(start_paused = true)]
async fn children_that_the_listing_shows_late_start_within_a_second_of_it() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    next(&mut subscription).await.ack();
    sleep(millis(1_500)).await;
    harness.kinesis.close("a");
    sleep(millis(4_100)).await;
    assert_eq!(harness.checkpoint("a").await, "SHARD_END");
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    let appeared = harness.millis();
    assert_eq!(name(&next(&mut subscription).await), "b0");
    assert!(harness.millis() - appeared <= 1_000, "{}", harness.millis() - appeared);
}

// R6, H4
#[tokio::test(start_paused = true)]
async fn after_a_crash_right_after_the_parents_end_children_start_at_their_oldest_record() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    me.table.script.plan(Rule::on(TableOp::Take).always(), Fault::Hang);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 3);
    harness.kinesis.put("c", 3);
    next(&mut subscription).await.ack();
    sleep(seconds(2)).await;
    assert_eq!((harness.checkpoint("a").await.as_str(), harness.row("b").await), ("SHARD_END", None));
    me.die(subscription);
    let next_one = harness.instance("me");
    let mut subscription = next_one.subscribe(latest()).await;
    let records = within(&mut subscription, seconds(5)).await;
    assert_eq!(names(&records), ["b0", "b1", "b2", "c0", "c1", "c2"]);
    assert_eq!(first_read(&next_one, "a"), None);
}

// H1
#[tokio::test(start_paused = true)]
async fn the_child_of_a_merge_follows_all_records_of_both_parents() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 1_000);
    harness.kinesis.put("b", 1);
    harness.kinesis.merge(["a", "b"], "c");
    harness.kinesis.put("c", 1);
    let mut subscription = harness.instance("me").subscribe(horizon().read_limit(100)).await;
    for index in 0..1_001 {
        let record = next(&mut subscription).await;
        assert_ne!(name(&record), "c0", "after {index}");
        record.ack();
    }
    assert_eq!(name(&next(&mut subscription).await), "c0");
}

// H4
#[tokio::test(start_paused = true)]
async fn the_child_of_a_merge_waits_for_parents_on_two_instances() {
    let harness = Harness::new(&["a", "b"]);
    harness.steal("b", "other").await;
    let (me, other) = (harness.instance("me"), harness.instance("other"));
    let mut mine = me.subscribe(horizon()).await;
    let mut others = other.subscribe(horizon()).await;
    harness.kinesis.put("a", 1);
    harness.kinesis.put("b", 1);
    let (of_a, of_b) = (next(&mut mine).await, next(&mut others).await);
    assert_eq!((name(&of_a), name(&of_b)), ("a0", "b0"));
    harness.kinesis.merge(["a", "b"], "c");
    harness.kinesis.put("c", 1);
    of_a.ack();
    assert!(within(&mut mine, seconds(30)).await.is_empty());
    assert_eq!((harness.checkpoint("a").await.as_str(), harness.row("c").await), ("SHARD_END", None));
    let begun = harness.millis();
    of_b.ack();
    assert_eq!((name(&next(&mut others).await), harness.millis() - begun), ("c0", 0));
}

// H1, H3
#[tokio::test(start_paused = true)]
async fn a_finished_parent_is_not_reread_after_a_restart_and_blocks_no_child() {
    let harness = split(3);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    take(&mut subscription, 3).await.into_iter().for_each(Delivery::ack);
    take(&mut subscription, 2).await.into_iter().for_each(Delivery::ack);
    subscription.close().await;
    harness.kinesis.put("b", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(latest()).await;
    assert_eq!(names(&within(&mut subscription, seconds(30)).await), ["b1"]);
    assert_eq!(me.service.places("a"), Vec::<String>::new());
    assert_eq!(harness.row("a").await.unwrap().epoch, 1);
}

// H1, H6
#[tokio::test(start_paused = true)]
async fn a_child_waits_for_a_listed_parent_without_a_row() {
    let harness = split(1);
    let me = harness.instance("me");
    me.table.fail(Rule::on(TableOp::Take).of("a").times(10));
    let mut subscription = me.subscribe(horizon()).await;
    let mut records = Vec::new();
    while records.len() < 3 {
        if let Some(Ok(record)) = item(&mut subscription).await {
            records.push(name(&record).to_owned());
            record.ack();
        }
    }
    assert_eq!(records, ["a0", "b0", "c0"]);
}

// R6
#[tokio::test(start_paused = true)]
async fn a_child_that_appears_later_is_read_from_its_oldest_record_even_under_latest() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 5);
    sleep(seconds(5)).await;
    let mut subscription = harness.instance("me").subscribe(latest()).await;
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 5);
    sleep(seconds(30)).await;
    harness.kinesis.put("b", 1);
    assert_eq!(names(&within(&mut subscription, seconds(30)).await), range("b", 0..6));
}

// H4
#[tokio::test(start_paused = true)]
async fn a_long_chain_of_empty_shards_is_read_through_at_once() {
    let harness = Harness::new(&["a"]);
    for two in ["a", "b", "c", "d", "e", "f"].windows(2) {
        harness.kinesis.split(two[0], [two[1], &format!("{}x", two[1])]);
    }
    harness.kinesis.put("f", 1);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    assert_eq!(name(&next(&mut subscription).await), "f0");
    assert!(harness.millis() < 100, "{}", harness.millis());
}

// H6
#[tokio::test(start_paused = true)]
async fn a_gone_shard_does_not_block_its_children() {
    let harness = Harness::new(&["a"]);
    let mut subscription = harness.instance("me").subscribe(latest()).await;
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    harness.kinesis.forget("a");
    let mut errors = 0;
    loop {
        match item(&mut subscription).await.unwrap() {
            Ok(record) => break assert_eq!(name(&record), "b0"),
            Err(_) => errors += 1,
        }
    }
    assert!(harness.millis() <= 21_000 && errors <= 11, "{} ms, {errors} errors", harness.millis());
}

// H3
#[tokio::test(start_paused = true)]
async fn a_late_shard_end_does_not_pass_undelivered_records() {
    let harness = split(3);
    let me = harness.instance("me");
    let context = me.context(horizon());
    let shard = Shards::default().get_or_open(&context, &"a".into());
    harness.steal("a", "me").await;
    let lease = harness.row("a").await.unwrap();
    let held = Held { key: lease.key.clone(), owner: "me".into(), epoch: lease.epoch };
    let now = Instant::now();
    let opening = shard.begin(&lease, held, lease.checkpoint.is_some(), now);
    shard.fetched(opening.generation, 3).unwrap();
    shard.leave(now);
    shard.at_end(opening.generation, Vec::new());
    let NextOp::Send(op) = shard.next_op(now, false) else { panic!("nothing to send") };
    assert_eq!(op.store_op, StoreOp::Release);
}
