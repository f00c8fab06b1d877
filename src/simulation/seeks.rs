//! Moving a running subscription to another position (A3, A6).

use futures::{FutureExt, StreamExt, TryStreamExt};
use tokio::time::{Instant, sleep, timeout_at};

use super::{
    kinesis::EPOCH,
    script::{Fault, Rule},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};
use crate::{
    config::position::KinesisPosition,
    delivery::Delivery,
    error::{
        ErrorClass, KinesisError,
        service::{FailureKind, StoreError},
    },
    simulation::harness::{
        Harness, error, horizon, item, latest, millis, name, names, next, range, seconds, take, within,
    },
    state::tracker::Commit::{self, Stored, Superseded},
    subscription::Subscription,
    types::id::ShardId,
};

fn at(shard: &str, index: usize) -> KinesisPosition {
    KinesisPosition::sequence(shard, format!("{shard}{index}"))
}

/// The names of all records that arrive within this time. Settles each one as it arrives.
async fn drain(subscription: &mut Subscription, time: u64) -> Vec<String> {
    let until = Instant::now() + seconds(time);
    let mut names = Vec::new();
    while let Ok(item) = timeout_at(until, subscription.next()).await {
        let delivery = item.expect("the stream continues").unwrap();
        names.push(name(&delivery).to_owned());
        delivery.ack();
    }
    names
}

/// The next records. Skips errors.
async fn records(subscription: &mut Subscription, count: usize) -> Vec<Delivery> {
    let mut records = Vec::new();
    while records.len() < count {
        records.extend(item(subscription).await.expect("the stream continues"));
    }
    records
}

// A3, A6
#[tokio::test(start_paused = true)]
async fn a_seek_back_replays_every_shard_and_its_first_settled_run_replaces_the_checkpoint() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 3);
    harness.kinesis.put("b", 2);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    assert_eq!(drain(&mut subscription, 3).await, ["a0", "a1", "a2", "b0", "b1"]);
    assert_eq!(harness.checkpoint("a").await, "after a2");
    // The seek runs in the consuming task, which does not poll the stream meanwhile.
    subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    assert_eq!(harness.checkpoint("a").await, "after a2", "it does not move until a record is settled");
    let again = take(&mut subscription, 5).await;
    assert_eq!(names(&again), ["a0", "a1", "a2", "b0", "b1"]);
    assert!(again.iter().all(|delivery| (delivery.epoch(), delivery.attempt()) == (1, 1)));
    let mut again = again.into_iter();
    assert_eq!(again.next().unwrap().commit().await.unwrap(), Commit::Stored);
    assert_eq!(harness.checkpoint("a").await, "after a0");
    assert_eq!(harness.checkpoint("b").await, "after b1");
}

// A6
#[tokio::test(start_paused = true)]
async fn deliveries_from_before_a_seek_are_superseded_and_not_redelivered() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 4);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let mut old = take(&mut subscription, 3).await.into_iter();
    old.next().unwrap().nack();
    subscription.seeker().seek(at("a", 3)).await.unwrap();
    assert_eq!(old.next().unwrap().commit().await.unwrap(), Commit::Superseded);
    old.next().unwrap().nack();
    assert_eq!(drain(&mut subscription, 300).await, ["a3"]);
    assert_eq!(harness.checkpoint("a").await, "after a3");
}

// A6
#[tokio::test(start_paused = true)]
async fn a_seek_to_the_tip_skips_records_and_a_seek_to_a_time_starts_there() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 2);
    sleep(seconds(10)).await;
    harness.kinesis.put("a", 2);
    harness.kinesis.put("b", 2);
    sleep(seconds(10)).await;
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let seeker = subscription.seeker();
    seeker.seek(KinesisPosition::latest()).await.unwrap();
    harness.kinesis.put("b", 1);
    assert_eq!(drain(&mut subscription, 30).await, ["b2"]);
    seeker.seek(KinesisPosition::timestamp(EPOCH + 5_000)).await.unwrap();
    assert_eq!(drain(&mut subscription, 30).await, ["a2", "a3", "b0", "b1", "b2"]);
}

// A6
#[tokio::test(start_paused = true)]
async fn a_seek_to_a_record_moves_only_its_shard() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 5);
    harness.kinesis.put("b", 5);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let (mut of_a, mut of_b) = (Vec::new(), Vec::new());
    for delivery in take(&mut subscription, 10).await {
        if delivery.shard().as_str() == "a" { of_a.push(delivery) } else { of_b.push(delivery) }
    }
    subscription.seeker().seek(at("a", 2)).await.unwrap();
    assert_eq!(of_b.pop().unwrap().commit().await.unwrap(), Commit::Deferred);
    assert_eq!(of_a.pop().unwrap().commit().await.unwrap(), Commit::Superseded);
    assert_eq!(drain(&mut subscription, 30).await, range("a", 2..5));
}

// A6, A5, R9
#[tokio::test(start_paused = true)]
async fn a_seek_moves_shards_that_are_at_their_bound_or_throttled_or_failing() {
    let harness = Harness::new(&["a", "b", "c"]);
    for shard in ["a", "b", "c"] {
        harness.kinesis.put(shard, 10);
    }
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon().max_in_flight(2).poll_interval(seconds(60))).await;
    let held = take(&mut subscription, 6).await;
    assert!(subscription.next().now_or_never().is_none(), "all shards are at their bound");
    me.service.script.plan(Rule::on(ServiceOp::GetRecords).of("b").times(2), Fault::Fail(FailureKind::Throttled));
    me.service.script.plan(Rule::on(ServiceOp::GetRecords).of("c").times(2), Fault::Fail(FailureKind::Other));
    subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    let again = records(&mut subscription, 2).await;
    assert_eq!(names(&again), ["a0", "a1"]);
    // Shards whose reads fail now are moved as well, while their readers wait.
    subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    me.service.script.heal();
    let mut again = records(&mut subscription, 6).await;
    again.sort_by_key(|delivery| name(delivery).to_owned());
    assert_eq!(names(&again), ["a0", "a1", "b0", "b1", "c0", "c1"]);
    drop(held);
}

// A6
#[tokio::test(start_paused = true)]
async fn a_failed_seek_names_the_shard_and_leaves_it_where_it_was() {
    let harness = Harness::new(&["a", "b", "c"]);
    for shard in ["a", "b", "c"] {
        harness.kinesis.put(shard, 2);
    }
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let mut first = take(&mut subscription, 6).await;
    me.service.script.plan(Rule::on(ServiceOp::GetShardIterator).of("a"), Fault::Fail(FailureKind::Other));
    me.service.script.plan(Rule::on(ServiceOp::GetShardIterator).of("c"), Fault::Fail(FailureKind::Denied));
    me.service.script.plan(Rule::on(ServiceOp::GetShardIterator).of("b").times(3), Fault::Fail(FailureKind::Throttled));
    let failed = subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap_err();
    let KinesisError::Seek { shards, source, .. } = &failed else { panic!("{failed}") };
    assert_eq!(
        (shards.iter().map(ShardId::as_str).collect::<Vec<_>>(), source.kind()),
        (vec!["a", "c"], FailureKind::Other)
    );
    first.sort_by_key(|delivery| name(delivery).to_owned());
    let mut commits = Vec::new();
    for delivery in first {
        commits.push(delivery.commit().await.unwrap());
    }
    assert_eq!(commits, [Stored, Stored, Superseded, Superseded, Stored, Stored]);
    assert_eq!(drain(&mut subscription, 30).await, ["b0", "b1"]);
}

// A6, H1, H3
#[tokio::test(start_paused = true)]
async fn a_seek_to_the_horizon_rereads_ended_shards_parents_first() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 2);
    harness.kinesis.put("c", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    assert_eq!(drain(&mut subscription, 30).await, ["a0", "a1", "b0", "b1", "c0"]);
    assert_eq!(harness.checkpoint("a").await, "SHARD_END");
    subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    let parents = take(&mut subscription, 2).await;
    assert_eq!(names(&parents), ["a0", "a1"]);
    assert!(within(&mut subscription, seconds(60)).await.is_empty(), "the children wait for their parent");
    parents.into_iter().for_each(Delivery::ack);
    assert_eq!(drain(&mut subscription, 30).await, ["b0", "b1", "c0"]);
    assert_eq!(
        (harness.checkpoint("a").await, harness.checkpoint("b").await),
        ("SHARD_END".to_owned(), "after b1".to_owned())
    );
    harness.kinesis.put("b", 1);
    assert_eq!(drain(&mut subscription, 30).await, ["b2"]);
}

// A6, H5
#[tokio::test(start_paused = true)]
async fn a_seek_to_the_horizon_reads_shards_closed_before_a_start_at_the_tip() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    let mut subscription = harness.instance("me").subscribe(latest()).await;
    assert!(drain(&mut subscription, 30).await.is_empty());
    subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    assert_eq!(drain(&mut subscription, 30).await, ["a0", "a1", "b0"]);
}

// A3
#[tokio::test(start_paused = true)]
async fn a_checkpoint_write_during_a_seek_covers_nothing_of_the_new_generation() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 5);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    take(&mut subscription, 5).await.into_iter().for_each(Delivery::ack);
    me.table.script.plan(Rule::on(TableOp::Checkpoint), Fault::Delay(seconds(2)));
    sleep(millis(1_500)).await;
    subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    let first = next(&mut subscription).await;
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a4", "the old write");
    assert_eq!((first.commit().await.unwrap(), harness.checkpoint("a").await.as_str()), (Commit::Stored, "after a0"));
}

// A3, H3, H4
#[tokio::test(start_paused = true)]
async fn a_shard_end_write_during_a_seek_does_not_start_the_children() {
    for position in [KinesisPosition::horizon(), at("a", 0)] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 2);
        harness.kinesis.split("a", ["b", "c"]);
        harness.kinesis.put("b", 1);
        let me = harness.instance("me");
        let mut subscription = me.subscribe(horizon()).await;
        let records = take(&mut subscription, 2).await;
        sleep(seconds(2)).await;
        me.table.script.plan(Rule::on(TableOp::Checkpoint), Fault::Delay(seconds(2)));
        records.into_iter().for_each(Delivery::ack);
        sleep(seconds(1)).await;
        subscription.seeker().seek(position).await.unwrap();
        let again = take(&mut subscription, 2).await;
        assert_eq!(names(&again), ["a0", "a1"]);
        assert!(within(&mut subscription, seconds(60)).await.is_empty());
        assert_eq!(harness.checkpoint("a").await, "SHARD_END", "the old write");
        again.into_iter().for_each(Delivery::ack);
        assert_eq!(drain(&mut subscription, 30).await, ["b0"]);
    }
}

// A6, R10
#[tokio::test(start_paused = true)]
async fn after_a_seek_the_replacement_of_a_failed_reader_starts_where_the_seek_led() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    assert_eq!(drain(&mut subscription, 3).await, range("a", 0..3));
    me.service.script.plan(Rule::on(ServiceOp::GetRecords).times(11), Fault::Fail(FailureKind::Other));
    subscription.seeker().seek(at("a", 1)).await.unwrap();
    let came = records(&mut subscription, 2).await;
    assert_eq!((names(&came), harness.row("a").await.unwrap().epoch), (vec!["a1", "a2"], 2));
}

// A6
#[tokio::test(start_paused = true)]
async fn a_process_that_dies_after_a_seek_resumes_at_the_stored_checkpoint() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    assert_eq!(drain(&mut subscription, 3).await, range("a", 0..3));
    subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    let again = next(&mut subscription).await;
    me.die(subscription);
    harness.kinesis.put("a", 1);
    let mut after = harness.instance("me").subscribe(horizon()).await;
    assert_eq!(drain(&mut after, 3).await, ["a3"]);
    drop(again);
}

// A6, E5
#[tokio::test(start_paused = true)]
async fn a_seek_never_moves_shards_of_other_instances_even_after_a_hand_over() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 2);
    harness.kinesis.put("b", 2);
    let a = harness.instance("A");
    let mut one = a.subscribe(horizon()).await;
    assert_eq!(drain(&mut one, 3).await, ["a0", "a1", "b0", "b1"]);
    let mut two = harness.instance("B").subscribe(horizon()).await;
    assert!(drain(&mut two, 10).await.is_empty());
    two.seeker().seek(KinesisPosition::horizon()).await.unwrap();
    assert_eq!(drain(&mut two, 10).await, ["a0", "a1"]);
    let gone = two.seeker().seek(at("b", 0)).await.unwrap_err();
    assert!(matches!(&gone, KinesisError::NotHeld { shard, .. } if shard.as_str() == "b"), "{gone}");
    assert!(one.close().await.is_clean());
    harness.kinesis.put("b", 1);
    assert_eq!(drain(&mut two, 30).await, ["b2"]);
}

// A6, R6, L7
#[tokio::test(start_paused = true)]
async fn an_impossible_seek_returns_the_reason() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let seeker = subscription.seeker();
    let future = seeker.seek(KinesisPosition::timestamp(i64::MAX)).await.unwrap_err();
    assert!(matches!(&future, KinesisError::Invalid { what: "position", .. }), "{future}");
    let unknown = seeker.seek(at("z", 0)).await.unwrap_err();
    assert!(matches!(&unknown, KinesisError::NotHeld { .. }), "{unknown}");
    me.table.script.plan(Rule::on(TableOp::Leases), Fault::Fail(StoreError::new("down")));
    let down = seeker.seek(KinesisPosition::horizon()).await.unwrap_err();
    assert!(matches!(&down, KinesisError::Store { shard: None, .. }), "{down}");
    assert_eq!(name(&next(&mut subscription).await), "a0", "the seek completed");
    subscription.close().await;
    let over = seeker.seek(KinesisPosition::horizon()).await.unwrap_err();
    assert!(matches!(&over, KinesisError::NotConnected), "{over}");
}

// A6
#[tokio::test(start_paused = true)]
async fn a_seek_completes_even_if_its_future_is_dropped() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    assert_eq!(drain(&mut subscription, 3).await, ["a0", "a1"]);
    let seeker = subscription.seeker();
    assert!(seeker.seek(at("a", 1)).now_or_never().is_none());
    assert_eq!(drain(&mut subscription, 3).await, ["a1"]);
}

// X2
#[tokio::test(start_paused = true)]
async fn a_tolerant_pipeline_survives_a_fault_a_throttle_a_lost_lease_and_a_seek() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 3);
    harness.kinesis.put("b", 3);
    let me = harness.instance("me");
    let subscription = me.subscribe(horizon()).await;
    let (seeker, closer) = (subscription.seeker(), subscription.closer());
    let troubles = async {
        sleep(seconds(5)).await;
        me.service.script.plan(Rule::on(ServiceOp::GetRecords), Fault::Fail(FailureKind::Other));
        me.service.script.plan(Rule::on(ServiceOp::GetRecords), Fault::Fail(FailureKind::Throttled));
        sleep(seconds(5)).await;
        harness.steal("b", "thief").await;
        sleep(seconds(30)).await;
        seeker.seek(KinesisPosition::horizon()).await.unwrap();
        sleep(seconds(5)).await;
        closer.close().await
    };
    let mut came = Vec::new();
    let pipeline = subscription.tolerant().try_for_each(|delivery| {
        came.push(name(&delivery).to_owned());
        async { delivery.commit().await.map(drop) }
    });
    let (ended, report) = futures::join!(pipeline, troubles);
    ended.unwrap();
    assert!(report.is_clean());
    let all = ["a0", "a1", "a2", "b0", "b1", "b2"];
    assert_eq!(came, [all, all].concat());
}

#[tokio::test(start_paused = true)]
async fn a_seek_error_is_transient() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    me.service.script.plan(Rule::on(ServiceOp::GetRecords), Fault::Fail(FailureKind::Other));
    me.service.script.plan(Rule::on(ServiceOp::GetShardIterator), Fault::Fail(FailureKind::Other));
    let failed = subscription.seeker().seek(KinesisPosition::horizon()).await.unwrap_err();
    assert_eq!(failed.class(), ErrorClass::Transient);
    assert!(matches!(error(&mut subscription).await, KinesisError::Read { .. }));
    harness.kinesis.put("a", 1);
    assert!(matches!(item(&mut subscription).await, Some(Ok(_))));
}
