//! Lost leases, closing, drops and panics while records wait (A2, A7, L9, R10).

use futures::{FutureExt, StreamExt};
use tokio::{runtime::Builder, time::sleep};

use super::{
    super::{script::Rule, scripted_service::ServiceOp},
    History, on, results, second,
};

use crate::{
    delivery::Delivery,
    error::service::FailureKind,
    simulation::harness::{Harness, beside_another, horizon, millis, name, names, seconds, take, within},
    subscription::delivery_stream_ext::DeliveryStreamExt,
    types::commit::Commit,
};

// A7, A1
#[tokio::test(start_paused = true)]
async fn waiting_records_of_a_lost_lease_do_not_run_and_are_delivered_under_the_next_lease() {
    let (harness, history) = (Harness::new(&["a"]), History::default());
    harness.kinesis.put_keys("a", "xxyy");
    let work = async |delivery: Delivery| {
        let what = format!("{} of epoch {}", name(&delivery), delivery.epoch());
        history.note(&harness, &what);
        let (first, fails) = (delivery.epoch() == 1, name(&delivery) == "a0");
        if first {
            sleep(seconds(if fails { 1 } else { 30 })).await;
        }
        if first && fails {
            return Ok(format!("{what} fails"));
        }
        let expected = if first { Commit::Superseded } else { Commit::Stored };
        assert_eq!(delivery.commit().await?, expected, "{what}");
        Ok(what)
    };
    let mut work = on(&harness).await.tolerant().buffer_by_key(10, work);
    assert_eq!(results(&mut work, seconds(2)).await, ["a0 of epoch 1 fails"]);
    // The record is redelivered after two seconds and again after four. The lease is lost in between.
    assert_eq!(results(&mut work, millis(600)).await, ["a0 of epoch 1 fails"; 0]);
    harness.steal("a", "thief").await;
    let done = results(&mut work, seconds(100)).await;
    let of_third = ["a0 of epoch 3", "a1 of epoch 3"];
    assert_eq!(done.iter().filter(|what| of_third.contains(&what.as_str())).count(), 2, "{done:?}");
    let events = history.take();
    let begun = |what: &str| events.iter().position(|line| line.starts_with(what));
    assert!(begun("a1 of epoch 1").is_none() && begun("a3 of epoch 1").is_none(), "{events:?}");
    assert!(begun("a0 of epoch 3") < begun("a1 of epoch 3") && begun("a2 of epoch 3") < begun("a3 of epoch 3"));
    assert_eq!(harness.checkpoint("a").await, "after a3");
}

// A7, R10
#[tokio::test(start_paused = true)]
async fn a_lost_lease_unblocks_its_keys_at_once() {
    let (harness, history) = (Harness::new(&["a", "b"]), History::default());
    harness.kinesis.put_keys("a", "x");
    let work = async |delivery: Delivery| match (name(&delivery), delivery.attempt()) {
        ("a0", ..7) => {
            drop(delivery);
            Ok("failed".to_owned())
        }
        _ => second(delivery, &harness, &history).await,
    };
    let mut work = on(&harness).await.tolerant().buffer_by_key(10, work);
    // After six attempts, at 31 s, the next attempt is due at 63 s.
    assert_eq!(results(&mut work, seconds(32)).await.len(), 6);
    harness.kinesis.put_keys("b", "x");
    assert_eq!(results(&mut work, seconds(2)).await, ["failed"; 0]);
    harness.steal("a", "thief").await;
    harness.kinesis.put_keys("b", "x");
    assert_eq!(results(&mut work, seconds(8)).await, ["b0#1", "b1#1"]);
}

// A7, R10
#[tokio::test(start_paused = true)]
async fn a_reader_that_gives_up_drops_waiting_records_and_all_are_redelivered_in_order() {
    let (harness, history) = (Harness::new(&["a", "z"]), History::default());
    harness.kinesis.put_keys("a", "xxx");
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::GetRecords).after(1).times(11), FailureKind::Other);
    let work = async |delivery: Delivery| {
        if delivery.epoch() == 1 {
            // The reader gives up after eleven seconds, while this record has four seconds to its redelivery.
            sleep(seconds(if delivery.attempt() == 3 { 2 } else { 1 })).await;
            history.note(&harness, &format!("{} fails", name(&delivery)));
            return Ok("failed".to_owned());
        }
        second(delivery, &harness, &history).await
    };
    let (subscription, _others) = beside_another(&harness, &me, horizon()).await;
    let mut work = subscription.tolerant().buffer_by_key(10, work);
    let done = results(&mut work, seconds(40)).await;
    assert_eq!(done, ["failed", "failed", "failed", "a0#1", "a1#1", "a2#1"]);
    let expected = ["a0 fails at 1000", "a0 fails at 3000", "a0 fails at 7000"];
    assert_eq!(history.take()[..3], expected);
    assert_eq!((harness.checkpoint("a").await.as_str(), harness.row("a").await.unwrap().epoch), ("after a2", 2));
}

// A7, L9
#[tokio::test(start_paused = true)]
async fn closing_runs_records_behind_running_ones_but_not_behind_returned_ones() {
    let (harness, history) = (Harness::new(&["a"]), History::default());
    harness.kinesis.put_keys("a", "yyyxxyy");
    let work = async |delivery: Delivery| match (name(&delivery), delivery.attempt()) {
        ("a3", 1) => {
            drop(delivery);
            Ok("failed".to_owned())
        }
        ("a5", 1) => {
            sleep(seconds(1)).await;
            delivery.nack();
            Ok("failed too".to_owned())
        }
        _ => second(delivery, &harness, &history).await,
    };
    let subscription = on(&harness).await;
    let closer = subscription.closer();
    let mut work = subscription.buffer_by_key(10, work);
    assert_eq!(results(&mut work, millis(500)).await, ["failed"]);
    let closing = tokio::spawn(async move { closer.close().await });
    assert_eq!(results(&mut work, seconds(60)).await, ["a0#1", "a1#1", "a2#1", "failed too"]);
    assert!(work.next().now_or_never().is_some_and(|end| end.is_none()));
    drop(work);
    let report = closing.await.unwrap();
    assert_eq!((report.open[0].deliveries, report.open[0].oldest.as_str()), (4, "a3"));
    assert!(harness.millis() < 5_000, "no delivery is open: {}", harness.millis());
    assert_eq!(harness.checkpoint("a").await, "after a2");
    let mut next = harness.instance("me").subscribe(horizon()).await;
    assert_eq!(names(&take(&mut next, 4).await), ["a3", "a4", "a5", "a6"]);
}

// A2
#[tokio::test(start_paused = true)]
async fn dropping_the_stream_gives_back_waiting_records_even_with_ack_on_drop() {
    let (harness, history) = (Harness::new(&["a"]), History::default());
    harness.kinesis.put_keys("a", "xxx");
    let subscription = harness.instance("me").subscribe(horizon().ack_on_drop()).await;
    let mut work = subscription.buffer_by_key(10, |delivery| second(delivery, &harness, &history));
    assert_eq!(results(&mut work, millis(1_500)).await, ["a0#1"]);
    drop(work);
    sleep(seconds(1)).await;
    assert_eq!((harness.checkpoint("a").await.as_str(), harness.owner("a").await.as_str()), ("after a0", ""));

    let mut subscription = harness.instance("me").subscribe(horizon().ack_on_drop()).await;
    let mut work = (&mut subscription).buffer_by_key(1, |delivery| second(delivery, &harness, &history));
    assert_eq!(results(&mut work, millis(500)).await, [""; 0]);
    drop(work);
    // The dropped future of the running record acknowledged it, as a cancelled future does under `ack_on_drop`.
    let rest = within(&mut subscription, seconds(5)).await;
    assert_eq!(names(&rest), ["a2"]);
}

// A7
#[test]
fn a_panic_reaches_the_polling_task_and_acknowledges_nothing() {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put_keys("a", "xx");
        let work = async |delivery: Delivery| {
            assert_eq!(name(&delivery), "something else", "on purpose");
            Ok(())
        };
        let mut work = on(&harness).await.buffer_by_key(10, work);
        let panicked = std::panic::AssertUnwindSafe(work.next()).catch_unwind().await;
        assert!(panicked.is_err());
        drop(work);
        sleep(seconds(1)).await;
        assert_eq!((harness.checkpoint("a").await.as_str(), harness.owner("a").await.as_str()), ("at a0", ""));
    });
}
