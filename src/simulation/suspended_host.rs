//! A host that is suspended: its monotonic clock stands still, and time continues for the other instances (E3).

use futures::{FutureExt, StreamExt};
use tokio::time::sleep;

use super::{
    script::{Fault, Rule},
    scripted_table::TableOp,
};
use crate::{
    error::KinesisError,
    simulation::harness::{Harness, error, horizon, millis, name, next, seconds},
    util::clock::suspended,
};

// E3
#[tokio::test(start_paused = true)]
async fn a_host_that_was_suspended_for_a_ttl_delivers_nothing_until_it_has_renewed() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    assert_eq!(name(&next(&mut subscription).await), "a0");
    sleep(millis(1_500)).await;
    suspended::for_millis(30_000);
    assert!(subscription.next().now_or_never().is_none());
    let record = next(&mut subscription).await;
    assert_eq!((name(&record), record.epoch(), harness.millis()), ("a1", 1, 1_500));
}

// E3
#[tokio::test(start_paused = true)]
async fn a_host_that_was_suspended_learns_that_another_instance_has_its_shard() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let first = next(&mut subscription).await;
    sleep(millis(1_500)).await;
    suspended::for_millis(30_000);
    harness.steal("a", "other").await;
    assert!(!first.lease().is_held());
    let lost = error(&mut subscription).await;
    assert!(matches!(&lost, KinesisError::LeaseLost { owner: Some(owner), .. } if **owner == *"other"), "{lost}");
}

// E3
#[tokio::test(start_paused = true)]
async fn a_short_suspension_shortens_the_lease_by_its_length() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    let first = next(&mut subscription).await;
    me.table.script.plan(Rule::on(TableOp::Renew).always(), Fault::Hang);
    let renewed = harness.millis();
    suspended::for_millis(4_000);
    assert_eq!(name(&next(&mut subscription).await), "a1");
    let lease = first.lease();
    lease.lost().await;
    assert_eq!(harness.millis() - renewed, 10_000 - 4_000);
    // The renewal that hangs is reported, and no record comes.
    while let Some(item) = subscription.next().now_or_never() {
        assert!(matches!(item, Some(Err(KinesisError::Store { .. }))), "{item:?}");
    }
}

// E3
#[tokio::test(start_paused = true)]
async fn a_renewal_sent_before_the_suspension_does_not_count() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    assert_eq!(name(&next(&mut subscription).await), "a0");
    me.table.script.plan(Rule::on(TableOp::Renew).times(2), Fault::Delay(seconds(1)));
    harness.until(3_500).await;
    suspended::for_millis(30_000);
    assert!(subscription.next().now_or_never().is_none());
    let record = next(&mut subscription).await;
    assert_eq!((name(&record), harness.millis()), ("a1", 5_000));
}

// E3
#[tokio::test(start_paused = true)]
async fn a_take_sent_before_the_suspension_gives_no_time() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let mut before = harness.instance("before").subscribe(horizon()).await;
    next(&mut before).await.commit().await.unwrap();
    assert!(before.close().await.is_clean());
    let me = harness.instance("me");
    me.table.script.plan(Rule::on(TableOp::Take), Fault::Delay(seconds(2)));
    me.table.script.plan(Rule::on(TableOp::Renew), Fault::Delay(seconds(1)));
    let suspends = async {
        sleep(seconds(1)).await;
        suspended::for_millis(30_000);
    };
    let begun = harness.millis();
    let (mut subscription, ()) = futures::future::join(me.subscribe(horizon()), suspends).await;
    let record = next(&mut subscription).await;
    assert_eq!((name(&record), harness.millis() - begun), ("a1", 3_000));
}
