//! An instance that reaches the lease store and not Kinesis (R10, E5).

use tokio::time::sleep;

use super::{
    super::{
        script::{Fault, Rule},
        scripted_service::ServiceOp,
        scripted_table::TableOp,
    },
    EIGHT, shares,
};
use crate::{
    error::service::FailureKind,
    simulation::harness::{Harness, horizon, latest, names, seconds, within},
};

// R10
#[tokio::test(start_paused = true)]
async fn an_instance_that_cannot_read_asks_once_and_gets_its_share_when_it_can_read_again() {
    for fault in [Fault::Fail(FailureKind::Denied), Fault::FailAfter(seconds(5), FailureKind::Other)] {
        let harness = Harness::new(&EIGHT);
        let a = harness.instance("A").subscribe(latest()).await;
        let blind = harness.instance("B");
        blind.service.script.plan(Rule::on(ServiceOp::GetRecords).always(), fault.clone());
        let b = blind.subscribe(latest()).await;
        sleep(seconds(900)).await;
        // Four to B, and four back.
        assert_eq!((harness.shares().await, harness.takes().await), (shares([("A", 8)]), 8 + 4 + 4), "{fault:?}");
        assert_eq!(blind.table.script.calls(TableOp::Want).len(), 4, "{fault:?}");
        let reads = blind.service.script.count(ServiceOp::GetRecords, seconds(300));
        assert!((5..=11).contains(&reads), "{reads} trials in ten minutes, {fault:?}");
        blind.service.script.heal();
        sleep(seconds(75)).await;
        let even = shares([("A", 4), ("B", 4)]);
        assert_eq!((harness.shares().await, harness.takes().await), (even, 8 + 4 + 4 + 4), "{fault:?}");
        drop((a, b));
    }
}

// R10
#[tokio::test(start_paused = true)]
async fn an_instance_that_could_not_read_takes_over_from_one_that_closes() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 1);
    let a = harness.instance("A").subscribe(horizon()).await;
    let blind = harness.instance("B");
    blind.service.script.plan(Rule::on(ServiceOp::GetRecords).always(), Fault::Fail(FailureKind::Denied));
    let mut b = blind.subscribe(horizon()).await;
    sleep(seconds(60)).await;
    assert_eq!(harness.shares().await, shares([("A", 2)]));
    assert!(a.close().await.open.is_empty());
    blind.service.script.heal();
    let mut came = Vec::new();
    let until = harness.millis() + 15_000;
    while came.is_empty() && harness.millis() < until {
        use futures::StreamExt;
        if let Ok(Some(Ok(record))) = tokio::time::timeout(seconds(1), b.next()).await {
            came.push(record);
        }
    }
    assert_eq!(names(&came), ["a0"]);
    assert_eq!(names(&within(&mut b, seconds(1)).await), Vec::<&str>::new());
}

// R10
#[tokio::test(start_paused = true)]
async fn when_no_instance_can_read_each_reads_on_within_a_minute_once_it_can() {
    let harness = Harness::new(&EIGHT);
    let instances = ["A", "B"].map(|owner| harness.instance(owner));
    let mut fleet = Vec::new();
    for instance in &instances {
        fleet.push(instance.subscribe(latest()).await);
    }
    sleep(seconds(20)).await;
    for instance in &instances {
        instance.service.script.plan(Rule::on(ServiceOp::GetRecords).always(), Fault::Fail(FailureKind::Other));
    }
    sleep(seconds(600)).await;
    instances.iter().for_each(|instance| instance.service.script.heal());
    sleep(seconds(75)).await;
    assert_eq!(harness.shares().await, shares([("A", 4), ("B", 4)]));
    drop(fleet);
}
