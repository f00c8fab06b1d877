//! Leases stay while the consumer is slow, and are released when it is time (L6, E2, E3).

use futures::future::join;
use tokio::time::{Duration, sleep};

use super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};
use crate::{
    delivery::Delivery,
    error::{
        ErrorClass, KinesisError,
        service::{FailureKind, StoreError},
    },
    simulation::harness::{
        Harness, Instance, error, horizon, item, latest, millis, name, names, next, seconds, take, within,
    },
    subscription::Subscription,
    types::commit::Commit,
};

fn renewals(me: &Instance) -> Vec<Duration> {
    me.table.script.times(TableOp::Renew, "a")
}

fn every_three_seconds(times: u64) -> Vec<Duration> {
    (1..=times).map(|n| seconds(3 * n)).collect()
}

/// The error that ends the stream.
async fn end(subscription: &mut Subscription) -> KinesisError {
    loop {
        let error = error(subscription).await;
        if error.class() == ErrorClass::Fatal {
            assert!(item(subscription).await.is_none());
            return error;
        }
    }
}

// L6
#[tokio::test(start_paused = true)]
async fn a_lease_is_renewed_every_three_seconds_whether_or_not_the_stream_is_polled() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(latest()).await;
    sleep(millis(30_500)).await;
    assert_eq!(renewals(&me), every_three_seconds(10));
    assert!(within(&mut subscription, seconds(30)).await.is_empty());
    assert_eq!(renewals(&me), every_three_seconds(20));
    assert_eq!(harness.row("a").await.unwrap().epoch, 1);
}

// L6, A4
#[tokio::test(start_paused = true)]
async fn renewals_and_checkpoints_are_on_time_independently_of_each_other() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    let subscription = me.subscribe(latest().checkpoint_interval(millis(2_100))).await;
    sleep(seconds(10)).await;
    assert_eq!(renewals(&me), every_three_seconds(3));
    drop(subscription);
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon().checkpoint_interval(millis(4_500))).await;
    harness.kinesis.put("a", 1);
    next(&mut subscription).await.ack();
    sleep(millis(4_499)).await;
    assert_eq!(harness.checkpoint("a").await, "at a0");
    sleep(millis(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a0");
}

// L6
#[tokio::test(start_paused = true)]
async fn a_lease_stays_while_the_consumer_works_long_on_one_record() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let (me, other) = (harness.instance("me"), harness.instance("other"));
    let mut subscription = me.subscribe(horizon()).await;
    let mut others = other.subscribe(horizon()).await;
    let record = next(&mut subscription).await;
    assert!(within(&mut others, seconds(600)).await.is_empty());
    assert_eq!(record.commit().await.unwrap(), Commit::Stored);
    assert_eq!((harness.owner("a").await.as_str(), harness.row("a").await.unwrap().epoch), ("me", 1));
}

// R10, L6
#[tokio::test(start_paused = true)]
async fn a_hanging_read_times_out_and_costs_no_lease() {
    let harness = Harness::new(&["a", "b"]);
    let me = harness.instance("me");
    let fault = Fault::FailAfter(seconds(30), FailureKind::Unreachable);
    me.service.script.plan(Rule::on(ServiceOp::GetRecords).of("a"), fault);
    harness.kinesis.put("a", 1);
    let mut subscription = me.subscribe(horizon()).await;
    let failure = error(&mut subscription).await;
    assert!(matches!(failure, KinesisError::Read { failures: 1, gave_up: false, .. }), "{failure}");
    assert_eq!((name(&next(&mut subscription).await), harness.millis()), ("a0", 31_000));
    assert_eq!((harness.row("a").await.unwrap().epoch, harness.row("b").await.unwrap().epoch), (1, 1));
    assert_eq!(me.service.script.times(ServiceOp::GetRecords, "b").len(), 32);
}

// L6
#[tokio::test(start_paused = true)]
async fn a_dropped_subscription_stores_its_checkpoints_and_releases_its_leases_at_once() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let mut records = take(&mut subscription, 3).await;
    let held = records.pop().unwrap();
    records.into_iter().for_each(Delivery::ack);
    drop(subscription);
    sleep(millis(1)).await;
    assert_eq!((harness.owner("a").await, harness.owner("b").await), (String::new(), String::new()));
    assert_eq!(harness.checkpoint("a").await, "after a1");
    assert_eq!(held.commit().await.unwrap(), Commit::Superseded);
    let mut next_one = harness.instance("other").subscribe(latest()).await;
    assert_eq!(names(&within(&mut next_one, seconds(1)).await), ["a2"]);
}

// X1, E5
#[tokio::test(start_paused = true)]
async fn a_lost_lease_is_yielded_and_its_shard_is_retaken_when_the_other_owner_dies() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let record = next(&mut subscription).await;
    assert_eq!(record.epoch(), 1);
    sleep(seconds(4)).await;
    harness.steal("a", "thief").await;
    sleep(seconds(1)).await;
    assert_eq!(record.commit().await.unwrap(), Commit::Superseded);
    let lost = loop {
        match item(&mut subscription).await.unwrap() {
            Ok(delivery) => assert_eq!(name(&delivery), "a1"),
            Err(error) => break error,
        }
    };
    assert_eq!(lost.class(), ErrorClass::Transient);
    assert!(matches!(&lost, KinesisError::LeaseLost { epoch: 1, owner: Some(owner), .. } if **owner == *"thief"));
    assert_eq!((harness.owner("a").await.as_str(), harness.checkpoint("a").await.as_str()), ("thief", "at a0"));
    let again = take(&mut subscription, 2).await;
    assert_eq!((names(&again), again[0].epoch(), again[0].attempt()), (vec!["a0", "a1"], 3, 1));
    assert!((14_000..=21_000).contains(&harness.millis()), "{}", harness.millis());
}

// E4
#[tokio::test(start_paused = true)]
async fn one_of_two_processes_with_the_same_owner_id_stops_with_an_error() {
    let harness = Harness::new(&["a", "b"]);
    let (one, two) = (harness.instance("twin"), harness.instance("twin"));
    let mut first = one.subscribe(latest()).await;
    sleep(seconds(1)).await;
    let mut second = two.subscribe(latest()).await;
    let fatal = error(&mut first).await;
    assert_eq!(fatal.class(), ErrorClass::Fatal);
    assert!(matches!(&fatal, KinesisError::DuplicateOwner { owner, epoch: 2, .. } if **owner == *"twin"), "{fatal}");
    assert!(item(&mut first).await.is_none());
    assert!(within(&mut second, seconds(60)).await.is_empty());
    assert_eq!((harness.row("a").await.unwrap().epoch, harness.row("b").await.unwrap().epoch), (2, 2));
    assert_eq!(harness.owner("a").await, "twin");
}

// E4: it does not know yet that it was overtaken when it reads the leases again.
#[tokio::test(start_paused = true)]
async fn a_cut_off_process_takes_no_lease_from_its_replacement_with_the_same_owner_id() {
    let harness = Harness::new(&["a", "b", "c"]);
    let (one, two) = (harness.instance("twin"), harness.instance("twin"));
    harness.steal("b", "other").await;
    let mut first = one.subscribe(latest()).await;
    harness.until(4_000).await;
    one.table.script.plan(Rule::everything(), Fault::Hang);
    let mut second = two.subscribe(latest()).await;
    harness.until(20_000).await;
    assert_eq!(two.table.log("b"), ["Take twin"]);
    one.table.script.heal();
    assert!(matches!(end(&mut first).await, KinesisError::DuplicateOwner { .. }));
    assert_eq!(one.table.log("b"), [""; 0]);
    assert!(within(&mut second, seconds(60)).await.is_empty());
    assert_eq!(harness.shares().await, [("twin".to_owned(), 3)].into());
    assert_eq!(harness.takes().await, 2 * 3);
}

// E4: at first neither finds a lease of the other one.
#[tokio::test(start_paused = true)]
async fn one_of_two_processes_that_start_together_with_the_same_owner_id_continues() {
    let harness = Harness::new(&["a", "b"]);
    let (one, two) = (harness.instance("twin"), harness.instance("twin"));
    // Each instance takes one of the leases at first, because both read the leases before either take.
    for (instance, later) in [(&one, "b"), (&two, "a")] {
        instance.table.script.plan(Rule::on(TableOp::Take).of(later), Fault::Delay(millis(100)));
        instance.table.script.plan(Rule::on(TableOp::Take), Fault::Delay(millis(10)));
    }
    let (mut first, mut second) = join(one.subscribe(latest()), two.subscribe(latest())).await;
    let fatal = end(&mut second).await;
    assert!(matches!(&fatal, KinesisError::DuplicateOwner { shard, .. } if shard.as_str() == "a"), "{fatal}");
    assert!(within(&mut first, seconds(60)).await.is_empty());
    assert_eq!(harness.shares().await, [("twin".to_owned(), 2)].into());
}

// E4: it restarts at once, so its leases are there and have not expired.
#[tokio::test(start_paused = true)]
async fn a_restarted_process_gets_its_leases_back_even_if_the_first_take_fails() {
    let harness = Harness::new(&["a", "b"]);
    let (one, two) = (harness.instance("me"), harness.instance("me"));
    one.die(one.subscribe(latest()).await);
    two.table.script.plan(Rule::on(TableOp::Take).of("b"), Fault::Fail(StoreError::new("scripted")));
    let subscription = two.subscribe(latest()).await;
    harness.until(3_010).await;
    assert_eq!((harness.row("a").await.unwrap().epoch, harness.row("b").await.unwrap().epoch), (2, 2));
    drop(subscription);
}

// E5
#[tokio::test(start_paused = true)]
async fn the_lease_of_a_dead_instance_is_taken_once_it_stood_still_for_its_ttl() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    me.die(me.subscribe(latest()).await);
    let other = harness.instance("other");
    let subscription = other.subscribe(latest()).await;
    assert_eq!(subscription.stats().awaited, 1);
    sleep(millis(9_900)).await;
    assert_eq!(harness.owner("a").await, "me");
    sleep(millis(3_200)).await;
    assert_eq!(harness.owner("a").await, "other");
    assert_eq!(subscription.stats().awaited, 0);
}

// E2
#[tokio::test(start_paused = true)]
async fn the_epoch_on_deliveries_grows_with_every_owner() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 4);
    for (epoch, owner) in (1..).zip(["one", "two", "one", "three"]) {
        let mut subscription = harness.instance(owner).subscribe(horizon()).await;
        let record = next(&mut subscription).await;
        assert_eq!(record.epoch(), epoch);
        record.ack();
        subscription.close().await;
    }
    assert_eq!(harness.checkpoint("a").await, "after a3");
}

// E2, A3
#[tokio::test(start_paused = true)]
async fn renewals_do_not_change_the_checkpoint() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    assert_eq!(next(&mut subscription).await.commit().await.unwrap(), Commit::Stored);
    let before = renewals(&me).len();
    sleep(seconds(10)).await;
    assert!(renewals(&me).len() >= before + 3);
    assert_eq!(harness.checkpoint("a").await, "after a0");
}
