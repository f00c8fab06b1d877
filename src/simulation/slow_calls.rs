//! Reads of the lease table and listings that take long (E1, H6).

use tokio::time::{Duration, sleep};

use super::{
    harness::{Harness, error, horizon, item, name, seconds},
    script::{Fault, Rule},
    scripted_service::ServiceOp,
    scripted_table::TableOp,
};
use crate::{
    error::{KinesisError, chain::Chain},
    subscription::Subscription,
};

/// The next records, which are settled, and the texts of the errors before the last of them.
async fn records(subscription: &mut Subscription, count: usize) -> (Vec<String>, Vec<String>) {
    let (mut records, mut errors) = (Vec::new(), Vec::new());
    while records.len() < count {
        match item(subscription).await.unwrap() {
            Ok(record) => {
                records.push(name(&record).to_owned());
                record.ack();
            }
            Err(error @ (KinesisError::Store { .. } | KinesisError::List { .. })) => {
                errors.push(Chain(&error).to_string());
            }
            Err(error) => panic!("{error}"),
        }
    }
    records.sort();
    (records, errors)
}

// E1
#[tokio::test(start_paused = true)]
async fn a_table_that_takes_longer_than_a_renew_interval_to_read_is_read() {
    // Seconds of one read, and the limits that it passed.
    for (slow, limits) in [(2, vec![]), (4, vec![3]), (20, vec![3, 6, 12]), (100, vec![3, 6, 12, 24, 48, 96])] {
        let harness = Harness::new(&["a", "b"]);
        let me = harness.instance("me");
        me.table.script.plan(Rule::on(TableOp::Leases).always(), Fault::Delay(seconds(slow)));
        harness.kinesis.put("a", 1);
        harness.kinesis.put("b", 1);
        let mut subscription = me.subscribe(horizon()).await;
        let mut said = Vec::new();
        let (read, errors) = records(&mut subscription, 2).await;
        said.extend(errors);
        assert_eq!(read, ["a0", "b0"], "{slow} s");
        // The stream keeps the newest error only.
        let last = limits.last().map(|limit| {
            let next = limit * 2;
            format!(
                "stream s: the lease store failed while reading the leases: the rows were not read within {limit}s: the \
                 table is slow, large or throttled; the next read may take {next}s"
            )
        });
        assert_eq!(said.last(), last.as_ref(), "{slow} s");

        // Reads overlap with listings, so the children of a split are still found and taken.
        harness.kinesis.split("a", ["a0", "a1"]);
        harness.kinesis.put("a0", 1);
        harness.kinesis.put("a1", 1);
        let (read, errors) = records(&mut subscription, 2).await;
        assert_eq!((read, errors), (vec!["a00".to_owned(), "a10".to_owned()], vec![]), "{slow} s");
        let begun = harness.millis();
        assert!(subscription.close().await.is_clean());
        assert_eq!(harness.millis() - begun, 0, "closing does not wait for a read");
    }
}

// E3
#[tokio::test(start_paused = true)]
async fn a_slow_read_of_the_table_does_not_make_live_leases_look_expired() {
    let harness = Harness::new(&["a", "b", "c"]);
    let (me, other) = (harness.instance("me"), harness.instance("other"));
    let _mine = me.subscribe(horizon().max_leases(2)).await;
    sleep(seconds(1)).await;
    // The rows are as old as the request, and the answer takes 20 s.
    other.table.script.plan(Rule::on(TableOp::Leases).always(), Fault::DelayAnswer(seconds(20)));
    let _others = other.subscribe(horizon()).await;
    sleep(seconds(300)).await;
    assert_eq!(harness.shares().await, [("me".to_owned(), 2), ("other".to_owned(), 1)].into());
    let taken: Vec<_> = other.table.script.calls(TableOp::Take).into_iter().filter_map(|call| call.shard).collect();
    assert_eq!(taken, ["c".into()]);
}

// L5, X1
#[tokio::test(start_paused = true)]
async fn a_listing_without_an_end_is_an_error_of_that_listing() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    harness.kinesis.list_by(0);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let error = error(&mut subscription).await;
    assert_eq!(
        Chain(&error).to_string(),
        "stream s: the shards could not be listed; the library retries: kinesis:ListShards failed: the listing has no \
         end: it returned the same token twice in a row"
    );
    harness.kinesis.list_by(usize::MAX);
    assert_eq!(records(&mut subscription, 1).await.0, ["a0"]);
}

// H4, H6
#[tokio::test(start_paused = true)]
async fn children_are_taken_although_each_listing_takes_long() {
    // Shards on a page, and seconds of a page.
    for (page, slow) in [(100, 12), (1, 6), (2, 25)] {
        let harness = Harness::new(&["a", "b", "c"]);
        harness.kinesis.list_by(page);
        let me = harness.instance("me");
        me.service.script.plan(Rule::on(ServiceOp::ListShards).always(), Fault::Delay(seconds(slow)));
        let mut subscription = me.subscribe(horizon()).await;
        harness.kinesis.split("a", ["a0", "a1"]);
        harness.kinesis.put("a0", 1);
        harness.kinesis.put("a1", 1);
        let begun = harness.millis();
        let (read, errors) = records(&mut subscription, 2).await;
        assert_eq!((read, errors), (vec!["a00".to_owned(), "a10".to_owned()], vec![]), "{page}, {slow} s");
        let took = Duration::from_millis(u64::try_from(harness.millis() - begun).unwrap());
        assert!(took < seconds(400), "{page}, {slow} s: {took:?}");
    }
}
