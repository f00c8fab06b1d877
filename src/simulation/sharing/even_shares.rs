//! The way to even shares (E5).

use futures::future::join_all;
use tokio::{select, time::sleep};

use super::{
    super::{
        script::{Fault, Rule},
        scripted_service::ServiceOp,
        scripted_table::TableOp,
    },
    EIGHT, shares,
};

use crate::{
    error::service::{FailureKind, StoreError},
    lease::Held,
    simulation::harness::{Harness, horizon, latest, millis, name, next, seconds},
    state::stats::ShardState,
};

// E5
#[tokio::test(start_paused = true)]
async fn a_second_instance_gets_half_of_eight_shards_in_four_moves_and_then_nothing_moves() {
    let harness = Harness::new(&EIGHT);
    let a = harness.instance("A").subscribe(latest()).await;
    let b = harness.instance("B").subscribe(latest()).await;
    assert_eq!(harness.shares().await, shares([("A", 8)]));
    sleep(millis(6_500)).await;
    assert_eq!(harness.shares().await, shares([("A", 4), ("B", 4)]));
    sleep(seconds(600)).await;
    assert_eq!((harness.shares().await, harness.takes().await), (shares([("A", 4), ("B", 4)]), 8 + 4));
    drop((a, b));
}

// E5
#[tokio::test(start_paused = true)]
async fn shares_of_four_and_three_need_three_requests_and_no_more() {
    let harness = Harness::new(&EIGHT[..7]);
    let (one, two) = (harness.instance("A"), harness.instance("B"));
    let a = one.subscribe(latest()).await;
    let b = two.subscribe(latest()).await;
    sleep(seconds(600)).await;
    assert_eq!(harness.shares().await, shares([("A", 4), ("B", 3)]));
    let requests = [&one, &two].map(|instance| instance.table.script.calls(TableOp::Want).len());
    assert_eq!(requests, [0, 3]);
    drop((a, b));
}

// E5
#[tokio::test(start_paused = true)]
async fn the_leases_of_a_dead_instance_make_nobody_request_a_shard() {
    let harness = Harness::new(&EIGHT);
    let instances = ["A", "B", "C"].map(|owner| harness.instance(owner));
    let mut fleet = Vec::new();
    for (instance, most) in instances.iter().zip([4, 2, 2]) {
        fleet.push(instance.subscribe(latest().max_leases(most)).await);
        sleep(seconds(60)).await;
    }
    assert_eq!(harness.shares().await, shares([("A", 4), ("B", 2), ("C", 2)]));
    let before = instances.each_ref().map(|instance| instance.table.script.calls(TableOp::Want).len());
    instances[0].die(fleet.remove(0));
    sleep(seconds(600)).await;
    let after = instances.each_ref().map(|instance| instance.table.script.calls(TableOp::Want).len());
    assert_eq!(after, before);
    drop(fleet);
}

// E5
#[tokio::test(start_paused = true)]
async fn a_sixth_instance_gets_its_share_of_forty_shards_within_a_few_passes() {
    let shards: Vec<String> = (0..40).map(|n| format!("s{n:02}.")).collect();
    let harness = Harness::new(&shards.iter().map(String::as_str).collect::<Vec<_>>());
    let mut fleet = Vec::new();
    for n in 0..5 {
        fleet.push(harness.instance(&format!("i{n}")).subscribe(latest()).await);
        sleep(seconds(20)).await;
    }
    assert_eq!(harness.shares().await.into_values().collect::<Vec<_>>(), [8; 5]);
    let before = harness.takes().await;
    fleet.push(harness.instance("i5").subscribe(latest()).await);
    sleep(millis(6_500)).await;
    let mut counts: Vec<usize> = harness.shares().await.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [6, 6, 7, 7, 7, 7]);
    sleep(seconds(60)).await;
    assert_eq!(harness.takes().await, before + 6);
}

// E5
#[tokio::test(start_paused = true)]
async fn instances_that_start_together_reach_an_even_share() {
    let harness = Harness::new(&EIGHT);
    let instances: Vec<_> = (0..3).map(|n| harness.instance(&format!("i{n}"))).collect();
    let fleet = join_all(instances.iter().map(|instance| instance.subscribe(latest()))).await;
    sleep(seconds(20)).await;
    let mut counts: Vec<usize> = harness.shares().await.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 3, 3]);
    let before = harness.takes().await;
    sleep(seconds(300)).await;
    assert_eq!(harness.takes().await, before);
    drop(fleet);
}

// E5
#[tokio::test(start_paused = true)]
async fn an_ignored_request_expires_and_another_shard_is_requested() {
    let harness = Harness::new(&["a", "b", "c", "d"]);
    for shard in ["a", "b", "c", "d"] {
        harness.steal(shard, "foreign").await;
    }
    let foreign = async {
        loop {
            for shard in ["a", "b", "c", "d"] {
                let row = harness.row(shard).await.unwrap();
                let held = Held { key: row.key, owner: "foreign".into(), epoch: row.epoch };
                harness.table().renew(&held).await.unwrap();
                if shard == "d" && row.wanted_by.is_some() {
                    harness.table().release(&held).await.unwrap();
                }
            }
            sleep(seconds(1)).await;
        }
    };
    let instance = harness.instance("me");
    let me = async {
        let _subscription = instance.subscribe(latest()).await;
        sleep(seconds(600)).await;
    };
    select! {
        () = foreign => {}
        () = me => {}
    }
    assert_eq!(instance.table.log("a"), ["Want me"]);
    assert_eq!(instance.table.log("b"), ["Want me"]);
    assert_eq!(instance.table.script.times(TableOp::Want, "c"), [seconds(45)]);
    assert_eq!(instance.table.script.times(TableOp::Want, "d"), [seconds(45)]);
    assert_eq!(harness.shares().await, shares([("foreign", 3), ("me", 1)]));
}

// E5: something else happens between its read of the rows and its request.
#[tokio::test(start_paused = true)]
async fn a_shard_handed_over_during_another_take_counts_once() {
    let harness = Harness::new(&["a", "b", "c", "d", "e"]);
    let instances = ["A", "B", "C"].map(|owner| harness.instance(owner));
    for instance in &instances {
        let late = Fault::FailAfter(seconds(1), StoreError::new("scripted"));
        instance.table.script.plan(Rule::on(TableOp::Take).of("e").always(), late);
    }
    let a = instances[0].subscribe(latest()).await;
    let b = instances[1].subscribe(latest().max_leases(2)).await;
    sleep(seconds(20)).await;
    assert_eq!(harness.shares().await, shares([("A", 2), ("B", 2)]));
    let c = instances[2].subscribe(latest().max_leases(1)).await;
    sleep(seconds(20)).await;
    assert_eq!(harness.shares().await, shares([("A", 1), ("B", 2), ("C", 1)]));
    assert!(instances[0].table.script.calls(TableOp::Want).is_empty());
    drop((a, b, c));
}

// E5
#[tokio::test(start_paused = true)]
async fn an_instance_that_cannot_list_the_shards_requests_none() {
    let harness = Harness::new(&EIGHT);
    let a = harness.instance("A").subscribe(latest()).await;
    let blind = harness.instance("B");
    blind.service.fail(Rule::on(ServiceOp::ListShards).always(), FailureKind::Denied);
    let b = blind.subscribe(latest()).await;
    sleep(seconds(60)).await;
    assert_eq!((harness.shares().await, harness.takes().await), (shares([("A", 8)]), 8));
    assert!(blind.table.script.calls(TableOp::Want).is_empty());
    blind.service.script.heal();
    sleep(seconds(8)).await;
    assert_eq!((harness.shares().await, harness.takes().await), (shares([("A", 4), ("B", 4)]), 8 + 4));
    drop((a, b));
}

// E5, R10
#[tokio::test(start_paused = true)]
async fn a_shard_given_up_before_the_last_listing_is_taken_at_the_hand_over() {
    let harness = Harness::new(&["a", "b", "c", "z"]);
    harness.kinesis.put("a", 1);
    let instance = harness.instance("A");
    instance.service.script.plan(Rule::on(ServiceOp::GetRecords).times(3 * 11), Fault::Fail(FailureKind::Other));
    let a = instance.subscribe(horizon().max_leases(3)).await;
    // A reader gives up only for the sake of another instance that is in sight.
    let c = harness.instance("C").subscribe(latest().max_leases(1)).await;
    harness.until(10_500).await;
    let mut b = harness.instance("B").subscribe(horizon()).await;
    assert_eq!(harness.shares().await, shares([("B", 3), ("C", 1)]));
    let record = next(&mut b).await;
    harness.until(21_000).await;
    record.ack();
    harness.until(24_000).await;
    assert_eq!(harness.shares().await, shares([("A", 1), ("B", 2), ("C", 1)]));
    drop((a, b, c));
}

// E5
#[tokio::test(start_paused = true)]
async fn shards_without_room_are_counted_and_logged_and_read_once_there_is_room() {
    let logged = crate::simulation::harness::CapturedLogs::new();
    let harness = Harness::new(&["a", "b", "c"]);
    let one = harness.instance("one").subscribe(latest().max_leases(1)).await;
    let two = harness.instance("two").subscribe(latest().max_leases(1)).await;
    assert_eq!((one.stats().unowned, two.stats().unowned), (2, 1));
    sleep(seconds(60)).await;
    assert_eq!((one.stats().unowned, two.stats().unowned), (1, 1));
    assert_eq!(harness.shares().await, shares([("one", 1), ("two", 1)]));
    assert_eq!(logged.with("no instance reads these shards").len(), 2);
    let states: Vec<(ShardState, Option<String>)> =
        one.stats().shards.into_iter().map(|shard| (shard.state, shard.owner.map(|owner| owner.to_string()))).collect();
    let expected = [
        (ShardState::Reading, Some("one".to_owned())),
        (ShardState::Elsewhere, Some("two".to_owned())),
        (ShardState::Released, None),
    ];
    assert_eq!(states, expected);
    let three = harness.instance("three").subscribe(latest()).await;
    assert_eq!(harness.shares().await, shares([("one", 1), ("three", 1), ("two", 1)]));
    sleep(seconds(4)).await;
    assert_eq!((one.stats().unowned, two.stats().unowned, three.stats().unowned), (0, 0, 0));
}

// H4
#[tokio::test(start_paused = true)]
async fn the_children_of_an_ended_shard_use_the_room_that_it_frees() {
    let harness = Harness::new(&["a"]);
    let mut subscription = harness.instance("me").subscribe(horizon().max_leases(1)).await;
    harness.kinesis.put("a", 1);
    let last = next(&mut subscription).await;
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("c", 1);
    harness.kinesis.put("b", 1);
    sleep(seconds(2)).await;
    let begun = harness.millis();
    last.ack();
    assert_eq!((name(&next(&mut subscription).await), subscription.stats().unowned), ("b0", 1));
    assert!(harness.millis() - begun < 1_500, "{}", harness.millis() - begun);
}
