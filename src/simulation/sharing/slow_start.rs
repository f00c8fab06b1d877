//! Calls on Kinesis that hang during the first pass (L5, E5).

use tokio::time::sleep;

use super::{
    super::{
        script::{Fault, Rule},
        scripted_service::ServiceOp,
    },
    EIGHT, shares,
};
use crate::simulation::harness::{Harness, latest, name, next, seconds};

// L5
#[tokio::test(start_paused = true)]
async fn an_iterator_that_hangs_in_the_first_pass_delays_neither_the_start_nor_an_instance_that_joins() {
    let harness = Harness::new(&EIGHT);
    let slow = harness.instance("A");
    slow.service.script.plan(Rule::on(ServiceOp::GetShardIterator).of("a").times(2), Fault::Delay(seconds(90)));
    let starting = slow.subscribe(latest());
    let joining = async {
        sleep(seconds(1)).await;
        harness.instance("B").subscribe(latest()).await
    };
    let started = async {
        let subscription = starting.await;
        assert_eq!(harness.millis(), 5_000);
        harness.kinesis.put("a", 1);
        subscription
    };
    let (mut a, mut b) = futures::future::join(started, joining).await;
    harness.until(60_000).await;
    assert_eq!((harness.shares().await, harness.takes().await), (shares([("A", 4), ("B", 4)]), 8 + 4));
    // The shard moved while its iterator was still under way, and opens at the start of its first owner.
    let record = tokio::select! {
        record = next(&mut a) => record,
        record = next(&mut b) => record,
    };
    assert_eq!(name(&record), "a0");
}

// L5
#[tokio::test(start_paused = true)]
async fn a_shard_whose_first_iterator_hangs_opens_at_the_time_of_subscribing() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 1);
    sleep(seconds(5)).await;
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::GetShardIterator).of("a"), Fault::Hang);
    let mut subscription = me.subscribe(latest()).await;
    assert_eq!(harness.millis(), 5_000 + 5_000);
    harness.kinesis.put("a", 1);
    assert_eq!((name(&next(&mut subscription).await), harness.millis()), ("a1", 11_000));
}

// L5: also where the calls of more shards hang than are made at once.
#[tokio::test(start_paused = true)]
async fn many_iterators_that_hang_delay_the_start_no_longer_than_one() {
    let shards: Vec<String> = (0..300).map(|n| format!("s{n:03}.")).collect();
    let harness = Harness::new(&shards.iter().map(String::as_str).collect::<Vec<_>>());
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::GetShardIterator).times(300), Fault::Hang);
    let subscription = me.subscribe(latest()).await;
    assert_eq!((harness.millis(), harness.shares().await), (5_000, shares([("me", 300)])));
    drop(subscription);
}

// L5
#[tokio::test(start_paused = true)]
async fn a_first_listing_that_hangs_delays_the_start_by_seconds() {
    let harness = Harness::new(&["a"]);
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::ListShards), Fault::Delay(seconds(40)));
    let mut subscription = me.subscribe(latest()).await;
    assert_eq!(harness.millis(), 5_000);
    harness.kinesis.put("a", 1);
    assert_eq!(name(&next(&mut subscription).await), "a0");
}
