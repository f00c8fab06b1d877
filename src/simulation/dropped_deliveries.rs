//! The effect of dropping a delivery (A2).

use std::panic::{AssertUnwindSafe, catch_unwind};

use tokio::time::sleep;

use crate::{
    delivery::{Acker, Delivery},
    simulation::harness::{CapturedLogs, Harness, horizon, millis, name, next, seconds, take, within},
};

// A2
#[tokio::test(start_paused = true)]
async fn a_dropped_delivery_is_redelivered_and_only_the_first_drop_warns() {
    let logged = CapturedLogs::new();
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    drop(take(&mut subscription, 3).await);
    for (index, record) in take(&mut subscription, 3).await.into_iter().enumerate() {
        assert_eq!((name(&record), record.attempt()), (format!("a{index}").as_str(), 2));
    }
    assert_eq!(harness.millis() / 10, 100);
    let said = logged.with("dropped without being settled");
    assert_eq!(said.len(), 1);
    assert!(["commit", "`ack`", "ack_on_drop", "shard=a"].iter().all(|word| said[0].contains(word)), "{said:?}");
}

// A2
#[tokio::test(start_paused = true)]
async fn nack_logs_no_warning() {
    let logged = CapturedLogs::new();
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    next(&mut subscription).await.nack();
    next(&mut subscription).await.ack();
    assert_eq!(logged.with("dropped"), Vec::<String>::new());
}

// A2
#[tokio::test(start_paused = true)]
async fn ack_on_drop_acknowledges_a_dropped_delivery() {
    let logged = CapturedLogs::new();
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let mut subscription = harness.instance("me").subscribe(horizon().ack_on_drop()).await;
    drop(take(&mut subscription, 3).await);
    assert!(within(&mut subscription, seconds(5)).await.is_empty());
    assert_eq!(harness.checkpoint("a").await, "after a2");
    assert_eq!(logged.with("dropped"), Vec::<String>::new());
}

// A2
#[tokio::test(start_paused = true)]
async fn ack_on_drop_acknowledges_nothing_during_a_panic() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(horizon().ack_on_drop()).await;
    let record = next(&mut subscription).await;
    let worker = AssertUnwindSafe(move || {
        assert_eq!(name(&record), "something else", "on purpose");
    });
    assert!(catch_unwind(worker).is_err());
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "at a0");
    assert_eq!(next(&mut subscription).await.attempt(), 2);
}

// A2
#[tokio::test(start_paused = true)]
async fn ack_on_drop_acknowledges_nothing_after_the_subscription_is_gone() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let mut subscription = harness.instance("me").subscribe(horizon().ack_on_drop()).await;
    let mut records = take(&mut subscription, 2).await;
    drop(records.remove(0));
    drop(subscription);
    drop(records);
    sleep(seconds(2)).await;
    assert_eq!(harness.checkpoint("a").await, "after a0");
}

// A2, L9
#[tokio::test(start_paused = true)]
async fn ack_on_drop_acknowledges_while_a_closing_subscription_drains() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(horizon().ack_on_drop()).await;
    let record = next(&mut subscription).await;
    let closing = tokio::spawn(subscription.close());
    sleep(seconds(5)).await;
    drop(record);
    assert!(closing.await.unwrap().is_clean());
    assert_eq!(harness.checkpoint("a").await, "after a0");
}

// A2
#[tokio::test(start_paused = true)]
async fn the_acker_stays_responsible_after_the_payload_is_moved_out() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let (record, acker): (_, Acker) = next(&mut subscription).await.map(|bytes| bytes.len()).into_parts();
    assert_eq!(record.into_payload(), 2);
    sleep(seconds(5)).await;
    drop(acker);
    let again: Delivery = next(&mut subscription).await;
    assert_eq!((again.payload().as_ref(), again.attempt()), (b"a0".as_ref(), 2));
    again.ack();
    sleep(seconds(1) + millis(10)).await;
    assert_eq!(harness.checkpoint("a").await, "after a0");
}
