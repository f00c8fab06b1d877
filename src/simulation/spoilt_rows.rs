//! Rows of the lease table that make no sense, because a person or another program edited them (E6).

use tokio::time::{Duration, sleep};

use super::{
    harness::{CapturedLogs, Harness, error, horizon, item, latest, millis, names, next, seconds, take, within},
    scripted_table::TableOp,
    spoilable_table::SpoilableTable,
};
use crate::{
    error::{ErrorClass, KinesisError, chain::Chain},
    lease::MemoryLeaseStore,
    types::commit::Commit,
};

// E6
#[tokio::test(start_paused = true)]
async fn a_spoilt_row_holds_back_its_own_shard_and_children_alone() {
    for stream in [horizon, latest] {
        let table = SpoilableTable::<MemoryLeaseStore>::default();
        let harness = Harness::on(&["a", "b"], table.clone());
        // An earlier process has read a part of each shard.
        let earlier = harness.instance("earlier");
        let mut before = earlier.subscribe(horizon()).await;
        harness.kinesis.put("a", 1);
        harness.kinesis.put("b", 1);
        for record in take(&mut before, 2).await {
            assert_eq!(record.commit().await.unwrap(), Commit::Stored);
        }
        before.close().await;
        harness.kinesis.split("a", ["a0", "a1"]);
        harness.kinesis.put("a0", 1);
        harness.kinesis.put("b", 1);
        table.spoilt().spoil("a");

        let logs = CapturedLogs::new();
        let (me, begun) = (harness.instance("me"), harness.millis());
        let mut subscription = me.subscribe(stream()).await;
        let told = error(&mut subscription).await;
        assert_eq!(told.class(), ErrorClass::Transient);
        assert_eq!(
            Chain(&told).to_string(),
            "stream s, shard a: the lease store failed while reading the row of the lease: table \"t\", row \"test/s/a\": \
             leaseCounter makes no sense"
        );
        let read = within(&mut subscription, seconds(200)).await;
        assert_eq!(names(&read), ["b1"]);
        assert_eq!(logs.with("makes no sense").len(), 1);
        assert!(me.table.script.times(TableOp::Take, "a").is_empty());
        // It is said again after some minutes.
        assert!(matches!(item(&mut subscription).await, Some(Err(KinesisError::Store { .. }))));
        assert_eq!(harness.millis() - begun, 300_000);

        table.spoilt().mend("a");
        let rest = take(&mut subscription, 1).await;
        assert_eq!(names(&rest), ["a00"]);
    }
}

// E6, E3
#[tokio::test(start_paused = true)]
async fn a_holder_of_a_spoilt_row_writes_ever_more_rarely_and_continues_once_it_is_corrected() {
    let table = SpoilableTable::<MemoryLeaseStore>::default();
    let harness = Harness::on(&["a", "b"], table.clone());
    let me = harness.instance("me");
    let mut subscription = me.subscribe(latest()).await;
    sleep(millis(500)).await;
    table.spoilt().spoil("a");
    assert!(matches!(error(&mut subscription).await, KinesisError::Store { shard: Some(_), .. }));
    sleep(seconds(20)).await;
    harness.kinesis.put("a", 1);
    harness.kinesis.put("b", 1);
    let read = within(&mut subscription, seconds(240)).await;
    assert_eq!(names(&read), ["b0"]);
    let writes = me.table.script.times(TableOp::Renew, "a");
    assert!(writes.len() < 40, "{writes:?}");
    let pauses = writes.windows(2).map(|two| two[1].saturating_sub(two[0]));
    assert_eq!(pauses.max().unwrap(), Duration::from_secs(10));

    table.spoilt().mend("a");
    let record = next(&mut subscription).await;
    assert_eq!((record.sequence_number().as_str(), record.epoch()), ("a0", 1));
}
