//! The exact number of calls that many shards cause in a minute without changes (E1, L6, A4).

use std::env;

use futures::StreamExt;
use tokio::time::{Duration, Instant, sleep, timeout_at};

use super::{table::Ask, wire::Op};
use crate::{
    simulation::harness::{Ground, Instance, horizon, latest, millis, next, seconds},
    subscription::{Subscription, descriptor::KinesisStream},
};

/// How many shards one page of a listing holds.
const LISTED_AT_ONCE: usize = 1_000;

/// The calls of all instances in a minute.
#[derive(Debug, PartialEq, Eq)]
struct Calls {
    listings: usize,
    iterators: usize,
    reads: usize,
    leases: usize,
    renewals: usize,
    checkpoints: usize,
    /// Takes, releases, asks and deletes.
    others: usize,
}

impl Calls {
    /// The calls that the instances have made since then.
    fn since(instances: &[Instance], since: Duration) -> Self {
        let wire = |op| instances.iter().map(|instance| instance.wire.script.count(op, since)).sum();
        let table = |ask| instances.iter().map(|instance| instance.table.script.count(ask, since)).sum::<usize>();
        Self {
            listings: wire(Op::ListShards),
            iterators: wire(Op::GetShardIterator),
            reads: wire(Op::GetRecords),
            leases: table(Ask::Leases),
            renewals: table(Ask::Renew),
            checkpoints: table(Ask::Checkpoint),
            others: [Ask::Take, Ask::Release, Ask::Want, Ask::Delete].into_iter().map(table).sum(),
        }
    }

    /// The expected calls for idle shards that several instances share, with the default intervals except
    /// `poll_interval`.
    fn idle(shards: usize, instances: usize, reads_of_a_shard: usize) -> Self {
        let (rounds, listings) = (60 / 3, 60 / 10);
        Self {
            listings: instances * listings * shards.div_ceil(LISTED_AT_ONCE),
            iterators: 0,
            reads: shards * reads_of_a_shard,
            leases: instances * rounds,
            renewals: shards * rounds,
            checkpoints: 0,
            others: 0,
        }
    }
}

/// How many shards to use: a default, or `KINESIS_STREAM_SHARDS` for a closer look.
fn shards(in_every_run: usize) -> usize {
    env::var("KINESIS_STREAM_SHARDS").ok().and_then(|shards| shards.parse().ok()).unwrap_or(in_every_run)
}

fn ground(shards: usize) -> Ground {
    let shards: Vec<String> = (0..shards).map(|n| format!("shardId-{n:012}")).collect();
    let ground = Ground::new(&shards.iter().map(String::as_str).collect::<Vec<_>>());
    ground.kinesis.list_by(LISTED_AT_ONCE);
    ground
}

/// Lets instances share the shards until nothing moves. Returns their calls during the next minute.
async fn a_minute_of(shards: usize, instances: usize, stream: KinesisStream) -> Calls {
    let ground = ground(shards);
    let instances: Vec<Instance> = (0..instances).map(|n| ground.instance(&format!("i{n}"))).collect();
    let mut fleet = Vec::new();
    for instance in &instances {
        fleet.push(instance.subscribe(stream.clone()).await);
    }
    sleep(millis(60_500)).await;
    assert_eq!(
        ground.shares().await.into_values().collect::<Vec<_>>(),
        vec![shards / instances.len(); instances.len()]
    );
    sleep(seconds(60)).await;
    Calls::since(&instances, millis(60_500))
}

// L6, R7
#[tokio::test(start_paused = true)]
async fn idle_shards_cost_one_renewal_and_read_per_interval_and_one_read_of_the_leases_per_round() {
    assert_eq!(a_minute_of(1, 1, latest()).await, Calls::idle(1, 1, 60));
    let many = shards(1_000);
    assert_eq!(a_minute_of(many, 1, latest().poll_interval(seconds(60))).await, Calls::idle(many, 1, 1));
}

// E1
#[tokio::test(start_paused = true)]
async fn sharing_adds_only_listings_and_reads_of_the_leases() {
    assert_eq!(a_minute_of(1_000, 4, latest().poll_interval(seconds(10))).await, Calls::idle(1_000, 4, 6));
}

// A4: a checkpoint renews the lease.
#[tokio::test(start_paused = true)]
async fn busy_shards_store_one_checkpoint_per_interval_and_need_no_renewals() {
    const SHARDS: usize = 100;
    let ground = ground(SHARDS);
    let instances = [ground.instance("me")];
    let mut subscription = instances[0].subscribe(horizon()).await;
    for _ in 0..20 {
        busy(&ground, &mut subscription, SHARDS).await;
    }
    let since = Duration::from_millis(u64::try_from(ground.millis()).unwrap());
    for _ in 0..60 {
        busy(&ground, &mut subscription, SHARDS).await;
    }
    // The reader waits half an interval after a page with records, and a whole one after an empty page.
    let idle = Calls::idle(SHARDS, 1, 90);
    assert_eq!(Calls::since(&instances, since), Calls { renewals: 0, checkpoints: SHARDS * 60, ..idle });
}

/// One second in which every shard gets a record, which the consumer acknowledges.
async fn busy(ground: &Ground, subscription: &mut Subscription, shards: usize) {
    let until = Instant::now() + seconds(1);
    (0..shards).for_each(|n| ground.kinesis.put(&format!("shardId-{n:012}"), 1));
    while let Ok(Some(item)) = timeout_at(until, subscription.next()).await {
        item.unwrap().ack();
    }
}

// H1, H4, H6
#[tokio::test(start_paused = true)]
async fn a_reshard_that_doubles_the_shards_is_read_through_and_old_rows_are_deleted() {
    let shards = shards(100);
    let ground = ground(shards);
    let me = ground.instance("me");
    let stream = horizon().poll_interval(seconds(10));
    let mut subscription = me.subscribe(stream).await;
    sleep(seconds(12)).await;
    for n in 0..shards {
        let parent = format!("shardId-{n:012}");
        let child = |side| format!("shardId-{:012}", shards + 2 * n + side);
        ground.kinesis.split(&parent, [&child(0), &child(1)]);
        ground.kinesis.put(&child(0), 1);
        ground.kinesis.put(&child(1), 1);
    }
    for _ in 0..2 * shards {
        next(&mut subscription).await.ack();
    }
    sleep(seconds(30)).await;
    assert_eq!((ground.rows().await, ground.shares().await["me"]), (3 * shards, 2 * shards));
    for n in 0..shards {
        ground.kinesis.forget(&format!("shardId-{n:012}"));
    }
    sleep(seconds(30)).await;
    assert_eq!((ground.rows().await, ground.shares().await["me"]), (2 * shards, 2 * shards));
}
