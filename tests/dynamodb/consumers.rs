//! Consumers on the lease table, and the calls that they cost.

use kinesis_stream::{Checkpoint, Delivery, DynamoDbLeaseStore, ErrorClass, LeaseStore, Subscription};
use kinesis_stream_support::{AwsError, Call, Emulator, Faults, Op};
use tokio::time::Duration;

use crate::{
    lease_table::LeaseTable,
    wire::{eventually, item, quick, reading, record, records, rows, seal, text, texts, up_to_seals},
};

const STREAM: &str = "stream";
const SHARD: &str = "shardId-000000000000";

async fn kinesis(shards: u32) -> Emulator {
    let kinesis = Emulator::start();
    kinesis.create_stream(STREAM, shards).await;
    kinesis
}

async fn put(kinesis: &Emulator, range: std::ops::Range<usize>) {
    kinesis.put_all(STREAM, range.map(|i| ("key", i.to_string()))).await;
}

fn patient() -> kinesis_stream::KinesisStream {
    quick(STREAM).renew_interval(Duration::from_secs(3)).lease_ttl(Duration::from_secs(20))
}

/// The next record. Ignores transient errors before it.
async fn record_after_errors(subscription: &mut Subscription) -> Delivery {
    loop {
        match item(subscription).await.unwrap() {
            Ok(delivery) => return delivery,
            Err(error) => assert_eq!(error.class(), ErrorClass::Transient, "{error}"),
        }
    }
}

// S4, R4
#[tokio::test]
async fn a_restarted_consumer_resumes_and_another_consumer_sees_every_record() {
    let (kinesis, table) = (kinesis(1).await, LeaseTable::new().await);
    put(&kinesis, 0..4).await;
    let mut first = reading(&kinesis, &table.store(), patient()).await;
    let taken = records(&mut first, 4).await;
    assert_eq!(texts(&taken), ["0", "1", "2", "3"]);
    let mut taken = taken.into_iter();
    let settled = taken.by_ref().take(2).collect::<Vec<_>>();
    kinesis_stream::commit_all(settled).await.unwrap();
    drop((taken, first));

    let mut again = reading(&kinesis, &table.store(), patient()).await;
    assert_eq!(texts(&records(&mut again, 2).await), ["2", "3"]);
    let audit = kinesis_stream::KinesisBroker::new()
        .endpoint(kinesis.endpoint())
        .test_credentials()
        .consumer("audit/eu")
        .lease_store(table.store());
    let mut audit = audit.connect().await.unwrap().subscribe(patient()).await.unwrap();
    let seals = seal(&kinesis, STREAM).await;
    assert_eq!(up_to_seals(&mut audit, seals).await, ["0", "1", "2", "3"]);
}

// E3
#[tokio::test]
async fn a_table_that_throttles_for_less_than_a_ttl_costs_no_lease() {
    let (kinesis, table) = (kinesis(1).await, LeaseTable::embedded().await);
    let faults = Faults::default();
    let hasty = || quick(STREAM).renew_interval(Duration::from_secs(1)).lease_ttl(Duration::from_secs(20));
    let mut subscription = reading(&kinesis, &table.once_through(&faults), hasty()).await;
    let other = reading(&kinesis, &table.store(), hasty()).await;
    put(&kinesis, 0..1).await;
    let before = record(&mut subscription).await;

    let throttles: Vec<_> =
        [Op::UpdateItem, Op::GetItem, Op::Scan].map(|op| faults.on(op).fail(AwsError::THROTTLED)).into();
    let count = faults.count(Op::UpdateItem);
    before.ack();
    faults.called(Op::UpdateItem, count + 4).await;
    throttles.iter().for_each(kinesis_stream_support::Rule::lift);

    put(&kinesis, 1..2).await;
    let after = record_after_errors(&mut subscription).await;
    assert_eq!((text(&after).as_str(), after.epoch()), ("1", 1));
    after.commit().await.unwrap();
    assert_eq!(rows(&table.store(), STREAM).await[SHARD].epoch, 1);
    drop(other);
}

/// The writes on the row of a shard, in order.
fn writes(faults: &Faults, shard: &str) -> Vec<Call> {
    let mut writes = faults.calls(Op::UpdateItem);
    writes.retain(|call| call.shard() == Some(shard));
    writes
}

/// Asserts that these calls came at most once per interval. Calls twice as often would take half the time, and a busy
/// machine delays them by less than a quarter of it.
fn came_once_per(interval: Duration, calls: &[Call]) {
    let took = calls[calls.len() - 1].at() - calls[0].at();
    let intervals = u32::try_from(calls.len() - 1).unwrap();
    assert!(took >= intervals * interval * 3 / 4, "{intervals} intervals of {interval:?} in {took:?}");
}

async fn counters_are_calls(store: &DynamoDbLeaseStore, faults: &Faults, shards: usize) {
    let rows = rows(store, STREAM).await;
    assert_eq!(rows.len(), shards);
    for (shard, row) in rows {
        assert_eq!(row.counter, writes(faults, &shard).len() as u64, "every write was applied at its first attempt");
    }
}

// E1: the cost of an idle instance
#[tokio::test]
async fn per_renewal_interval_an_idle_shard_costs_one_renewal_and_a_stream_one_scan() {
    let (kinesis, table) = (kinesis(3).await, LeaseTable::embedded().await);
    let faults = Faults::default();
    // This is also the timeout of a call, and calls are slow on a busy machine.
    let interval = Duration::from_secs(1);
    // A listing also reads the leases, so avoid listings.
    let idle = quick(STREAM).renew_interval(interval).list_interval(Duration::from_hours(1));
    let idle = idle.lease_ttl(Duration::from_secs(20));
    let subscription = reading(&kinesis, &table.once_through(&faults), idle).await;
    faults.called(Op::UpdateItem, 3 + 3 * 5).await;
    faults.called(Op::Scan, 5).await;
    drop(subscription);
    let store = table.store();
    eventually("the leases are released", async || rows(&store, STREAM).await.values().all(|row| row.owner.is_none()))
        .await;
    faults.idle().await;

    counters_are_calls(&store, &faults, 3).await;
    for shard in rows(&store, STREAM).await.keys() {
        let writes = writes(&faults, shard);
        let (release, held) = writes.split_last().unwrap();
        assert!(release.body()["UpdateExpression"].as_str().unwrap().ends_with("REMOVE #leaseOwner"));
        assert!(held.len() > 4, "one take and several renewals: {}", held.len());
        came_once_per(interval, held);
        let renewals = &held[1..];
        let renews = |call: &Call| call.body()["UpdateExpression"] == "SET #leaseCounter = :leaseCounter";
        assert!(renewals.iter().all(renews), "an idle shard is only renewed");
    }
    came_once_per(interval, &faults.calls(Op::Scan));
    for op in [Op::GetItem, Op::DeleteItem, Op::DescribeTable, Op::CreateTable] {
        assert_eq!(faults.count(op), 0, "{op:?}");
    }
}

// A4: the cost of a busy shard
#[tokio::test]
async fn a_busy_shard_costs_one_checkpoint_per_checkpoint_interval_and_no_renewal() {
    let (kinesis, table) = (kinesis(1).await, LeaseTable::embedded().await);
    let faults = Faults::default();
    let interval = Duration::from_millis(200);
    // Longer than the checkpoint interval, so checkpoints replace renewals. Short enough that renewals would show up.
    let busy = quick(STREAM).checkpoint_interval(interval).renew_interval(Duration::from_millis(1_500));
    let busy = busy.lease_ttl(Duration::from_secs(20));
    let mut subscription = reading(&kinesis, &table.once_through(&faults), busy).await;
    let mut last = None;
    for i in 0.. {
        put(&kinesis, i..i + 1).await;
        let delivery = record(&mut subscription).await;
        last = Some(delivery.sequence_number().clone());
        delivery.ack();
        if faults.count(Op::UpdateItem) >= 16 {
            break;
        }
    }
    drop(subscription);
    let store = table.store();
    eventually("the lease is released", async || rows(&store, STREAM).await[SHARD].owner.is_none()).await;
    faults.idle().await;
    counters_are_calls(&store, &faults, 1).await;
    assert_eq!(rows(&store, STREAM).await[SHARD].checkpoint, last.map(Checkpoint::After));
    let writes = writes(&faults, SHARD);
    let (held, _end) = writes.split_at(16);
    let saves = |call: &&Call| call.body()["UpdateExpression"].as_str().unwrap().contains("#checkpoint = ");
    assert!(held.iter().all(|call| saves(&call)), "the take also sets a checkpoint, and no write only renews");
    // The first checkpoint, the position of opening, is written at once.
    came_once_per(interval, &held[2..]);
}

#[tokio::test]
async fn a_commit_is_in_the_table_when_it_returns() {
    let (kinesis, table) = (kinesis(1).await, LeaseTable::new().await);
    put(&kinesis, 0..1).await;
    let store = table.store();
    let mut subscription = reading(&kinesis, &store, patient()).await;
    let delivery = record(&mut subscription).await;
    let expected = Checkpoint::After(delivery.sequence_number().clone());
    delivery.commit().await.unwrap();
    let rows = store.leases("default", STREAM).await.unwrap();
    assert_eq!(rows[0].checkpoint, Some(expected));
}
