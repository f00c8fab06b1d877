//! The exact number of calls that many shards cause in a minute without changes (E1, L6, A4).

use std::env;

use futures::StreamExt;
use tokio::time::{Duration, Instant, sleep, timeout_at};

use super::{
    script::{Fault, Rule},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};
use crate::{
    delivery::Delivery,
    error::service::FailureKind,
    simulation::harness::{Harness, Instance, horizon, latest, millis, next, seconds, take},
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
        let service = |op| instances.iter().map(|instance| instance.service.script.count(op, since)).sum();
        let table = |op| instances.iter().map(|instance| instance.table.script.count(op, since)).sum::<usize>();
        Self {
            listings: service(ServiceOp::ListShards),
            iterators: service(ServiceOp::GetShardIterator),
            reads: service(ServiceOp::GetRecords),
            leases: table(TableOp::Leases),
            renewals: table(TableOp::Renew),
            checkpoints: table(TableOp::Checkpoint),
            others: [TableOp::Take, TableOp::Release, TableOp::Want, TableOp::Delete].into_iter().map(table).sum(),
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

fn harness(shards: usize) -> Harness {
    let shards: Vec<String> = (0..shards).map(|n| format!("shardId-{n:012}")).collect();
    let harness = Harness::new(&shards.iter().map(String::as_str).collect::<Vec<_>>());
    harness.kinesis.list_by(LISTED_AT_ONCE);
    harness
}

/// Lets instances share the shards until nothing moves. Returns their calls during the next minute.
async fn a_minute_of(shards: usize, instances: usize, stream: KinesisStream) -> Calls {
    let harness = harness(shards);
    let instances: Vec<Instance> = (0..instances).map(|n| harness.instance(&format!("i{n}"))).collect();
    let mut fleet = Vec::new();
    for instance in &instances {
        fleet.push(instance.subscribe(stream.clone()).await);
    }
    sleep(millis(60_500)).await;
    assert_eq!(
        harness.shares().await.into_values().collect::<Vec<_>>(),
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
    let harness = harness(SHARDS);
    let instances = [harness.instance("me")];
    let mut subscription = instances[0].subscribe(horizon()).await;
    for _ in 0..20 {
        busy(&harness, &mut subscription, SHARDS).await;
    }
    let since = Duration::from_millis(u64::try_from(harness.millis()).unwrap());
    for _ in 0..60 {
        busy(&harness, &mut subscription, SHARDS).await;
    }
    // The reader waits half an interval after a page with records, and a whole one after an empty page.
    let idle = Calls::idle(SHARDS, 1, 90);
    assert_eq!(Calls::since(&instances, since), Calls { renewals: 0, checkpoints: SHARDS * 60, ..idle });
}

/// One second in which every shard gets a record, which the consumer acknowledges.
async fn busy(harness: &Harness, subscription: &mut Subscription, shards: usize) {
    let until = Instant::now() + seconds(1);
    (0..shards).for_each(|n| harness.kinesis.put(&format!("shardId-{n:012}"), 1));
    while let Ok(Some(item)) = timeout_at(until, subscription.next()).await {
        item.unwrap().ack();
    }
}

// H1, H4, H6
#[tokio::test(start_paused = true)]
async fn a_reshard_that_doubles_the_shards_is_read_through_and_old_rows_are_deleted() {
    let shards = shards(100);
    let harness = harness(shards);
    let me = harness.instance("me");
    let stream = horizon().poll_interval(seconds(10));
    let mut subscription = me.subscribe(stream).await;
    sleep(seconds(12)).await;
    for n in 0..shards {
        let parent = format!("shardId-{n:012}");
        let child = |side| format!("shardId-{:012}", shards + 2 * n + side);
        harness.kinesis.split(&parent, [&child(0), &child(1)]);
        harness.kinesis.put(&child(0), 1);
        harness.kinesis.put(&child(1), 1);
    }
    for _ in 0..2 * shards {
        next(&mut subscription).await.ack();
    }
    sleep(seconds(30)).await;
    assert_eq!((harness.rows().await, harness.shares().await["me"]), (3 * shards, 2 * shards));
    for n in 0..shards {
        harness.kinesis.forget(&format!("shardId-{n:012}"));
    }
    sleep(seconds(30)).await;
    assert_eq!((harness.rows().await, harness.shares().await["me"]), (2 * shards, 2 * shards));
}

/// The most calls within any span of this length.
fn most_within(mut times: Vec<Duration>, span: Duration) -> usize {
    times.sort_unstable();
    let until = |n: usize| times.partition_point(|time| *time < times[n] + span);
    (0..times.len()).map(|n| until(n) - n).max().unwrap_or_default()
}

// E1, L6
#[tokio::test(start_paused = true)]
async fn renewals_are_spread_over_the_interval_and_each_lease_is_renewed_once_per_interval() {
    const SHARDS: usize = 1_000;
    let harness = harness(SHARDS);
    let me = harness.instance("me");
    let subscription = me.subscribe(latest().poll_interval(seconds(60))).await;
    sleep(seconds(60)).await;
    let times: Vec<Duration> = me.table.script.times_of(TableOp::Renew);
    let most = most_within(times, millis(100));
    assert!((SHARDS / 30..=64).contains(&most), "{most} renewals within 0.1 s");
    for n in [0, 1, 2, 500, 999] {
        let times = me.table.script.times(TableOp::Renew, &format!("shardId-{n:012}"));
        assert!(times[0] <= seconds(3), "{times:?}");
        let gaps = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        assert!(gaps.clone().all(|gap| (millis(2_950)..=millis(3_021)).contains(&gap)), "{times:?}");
    }
    drop(subscription);
}

// E1, E3
#[tokio::test(start_paused = true)]
async fn a_slow_store_gets_a_bounded_number_of_renewals_at_once_and_no_lease_is_late() {
    const SHARDS: usize = 1_000;
    // How long a renewal takes, and whether 128 at once are enough.
    for (takes, suffice) in [(millis(300), true), (millis(2_500), false)] {
        let harness = harness(SHARDS);
        let me = harness.instance("me");
        let subscription = me.subscribe(latest().poll_interval(seconds(60))).await;
        sleep(seconds(20)).await;
        me.table.script.plan(Rule::on(TableOp::Renew).always(), Fault::Delay(takes));
        sleep(seconds(60)).await;
        let times: Vec<Duration> = me.table.script.times_of(TableOp::Renew);
        let most = most_within(times.into_iter().filter(|time| *time > seconds(25)).collect(), takes);
        assert_eq!(most <= 128, suffice, "{most} renewals at once");
        for n in [0, 1, 2, 500, 999] {
            let times = me.table.script.times(TableOp::Renew, &format!("shardId-{n:012}"));
            let longest = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0])).max().unwrap();
            assert!(longest <= seconds(7), "{longest:?}");
        }
        assert_eq!(harness.takes().await, SHARDS as u64);
        drop(subscription);
    }
}

// L9, E1
#[tokio::test(start_paused = true)]
async fn closing_sends_a_bounded_number_of_writes_at_once_and_releases_every_lease() {
    const SHARDS: usize = 1_000;
    // How long a write takes, and whether 96 at once are enough before leases are late.
    for (takes, suffice) in [(millis(50), true), (millis(2_500), false)] {
        let harness = harness(SHARDS);
        let me = harness.instance("me");
        let mut subscription = me.subscribe(horizon().poll_interval(seconds(60))).await;
        (0..SHARDS).for_each(|n| harness.kinesis.put(&format!("shardId-{n:012}"), 1));
        let records = take(&mut subscription, SHARDS).await;
        for op in [TableOp::Checkpoint, TableOp::Release] {
            me.table.script.plan(Rule::on(op).always(), Fault::Delay(takes));
        }
        let begun = Instant::now();
        records.into_iter().for_each(Delivery::ack);
        assert!(subscription.close().await.is_clean());
        let longest = if suffice { millis(1_300) } else { seconds(12) };
        assert!(begun.elapsed() <= longest, "{:?}", begun.elapsed());
        let mut times: Vec<Duration> = me.table.script.times_of(TableOp::Release);
        assert_eq!(times.len(), SHARDS);
        times.extend(me.table.script.times_of(TableOp::Checkpoint));
        let since = millis(u64::try_from(harness.millis()).unwrap()).saturating_sub(begun.elapsed());
        let most = most_within(times.into_iter().filter(|time| *time > since).collect(), takes);
        assert_eq!(most <= 96, suffice, "{most} writes at once");
        assert!(harness.shares().await.is_empty());
    }
}

// E1
#[tokio::test(start_paused = true)]
async fn refused_reads_of_many_shards_at_most_double_the_reads_of_the_leases() {
    for kind in [FailureKind::Rejected, FailureKind::NotFound, FailureKind::Denied] {
        let harness = harness(400);
        let me = harness.instance("me");
        let subscription = me.subscribe(latest()).await;
        sleep(seconds(20)).await;
        let before = me.table.script.calls(TableOp::Leases).len();
        me.service.script.plan(Rule::on(ServiceOp::GetRecords).always(), Fault::Fail(kind));
        me.service.script.plan(Rule::on(ServiceOp::GetShardIterator).always(), Fault::Fail(kind));
        sleep(seconds(300)).await;
        let reads = me.table.script.calls(TableOp::Leases).len() - before;
        assert!(reads <= 2 * 300 / 3 + 5, "{reads} reads of the leases, {kind:?}");
        drop(subscription);
    }
}
