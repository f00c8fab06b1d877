//! Outages of the lease store that all instances see (E3, E5).

use tokio::time::{Duration, sleep};

use super::{
    super::{
        script::{Fault, Rule},
        scripted_table::TableOp,
    },
    shares,
};
use crate::{
    error::service::StoreError,
    simulation::harness::{Harness, Instance, latest, millis, seconds},
};

/// Four instances with six shards each.
async fn even_fleet(harness: &Harness) -> (Vec<Instance>, Vec<crate::Subscription>) {
    let (mut instances, mut fleet) = (Vec::new(), Vec::new());
    for owner in ["A", "B", "C", "D"] {
        let instance = harness.instance(owner);
        fleet.push(instance.subscribe(latest()).await);
        instances.push(instance);
        sleep(millis(20_700)).await;
    }
    assert_eq!(harness.shares().await, shares([("A", 6), ("B", 6), ("C", 6), ("D", 6)]));
    (instances, fleet)
}

fn shards() -> Vec<String> {
    (0..24).map(|n| format!("s{n:02}.")).collect()
}

// E3
#[tokio::test(start_paused = true)]
async fn an_outage_of_the_lease_store_moves_no_shard() {
    let shards = shards();
    for length in [5, 8, 12, 20, 90] {
        for fault in [Fault::Fail(StoreError::new("scripted")), Fault::Hang] {
            let harness = Harness::new(&shards.iter().map(String::as_str).collect::<Vec<_>>());
            let (instances, fleet) = even_fleet(&harness).await;
            let before = harness.takes().await;
            instances.iter().for_each(|it| it.table.script.plan(Rule::everything(), fault.clone()));
            sleep(seconds(length)).await;
            instances.iter().for_each(|it| it.table.script.heal());
            sleep(seconds(60)).await;
            assert_eq!(harness.takes().await - before, 0, "{length} s, {fault:?}");
            drop(fleet);
        }
    }
}

// E3, E5
#[tokio::test(start_paused = true)]
async fn a_dead_instance_is_noticed_although_every_second_read_of_the_leases_fails() {
    let harness = Harness::new(&["a"]);
    let a = harness.instance("A");
    let dying = a.subscribe(latest()).await;
    let b = harness.instance("B");
    let subscription = b.subscribe(latest()).await;
    for n in 0..20 {
        b.table.fail(Rule::on(TableOp::Leases).after(n));
    }
    a.die(dying);
    let begun = harness.millis();
    while harness.owner("a").await != "B" {
        sleep(millis(100)).await;
    }
    let took = Duration::from_millis(u64::try_from(harness.millis() - begun).unwrap());
    assert!((seconds(15)..seconds(27)).contains(&took), "{took:?}");
    drop(subscription);
}
