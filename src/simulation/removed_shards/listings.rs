//! Listings that fail, lag or lack a shard (H4, H6).

use tokio::time::sleep;

use super::{
    super::{
        script::{Fault, Rule},
        scripted_service::ServiceOp,
        scripted_table::TableOp,
    },
    settle, split, vec_of,
};

use crate::{
    delivery::Delivery,
    error::{ErrorClass, KinesisError, chain::Chain, service::FailureKind},
    simulation::harness::{
        Harness, error, horizon, item, latest, millis, name, names, next, range, seconds, take, within,
    },
};

// H6
#[tokio::test(start_paused = true)]
async fn one_listing_without_a_shard_makes_it_neither_gone_nor_finished() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    let held = next(&mut subscription).await;
    split(&harness);
    harness.until(9_000).await;
    harness.kinesis.hide("a");
    harness.until(11_000).await;
    harness.kinesis.show_all();
    assert!(within(&mut subscription, seconds(60)).await.is_empty());
    held.ack();
    assert_eq!(names(&within(&mut subscription, seconds(1)).await), ["b0", "c0"]);
}

// H6
#[tokio::test(start_paused = true)]
async fn children_listed_before_their_parent_wait_for_it() {
    let harness = Harness::new(&["x", "y"]);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    sleep(seconds(3)).await;
    harness.kinesis.merge(["x", "y"], "a");
    harness.kinesis.put("a", 2);
    split(&harness);
    harness.kinesis.hide("a");
    sleep(seconds(5)).await;
    harness.kinesis.show_all();
    assert_eq!(settle(&mut subscription, seconds(60)).await, (vec_of(["a0", "a1", "b0", "c0"]), Vec::new()));
}

// H6
#[tokio::test(start_paused = true)]
async fn a_first_listing_without_the_parent_does_not_start_the_children() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    next(&mut subscription).await.ack();
    subscription.close().await;
    split(&harness);
    harness.kinesis.hide("a");
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    sleep(seconds(5)).await;
    harness.kinesis.show_all();
    assert_eq!(settle(&mut subscription, seconds(60)).await.0, ["a1", "a2", "b0", "c0"]);
}

// H6
#[tokio::test(start_paused = true)]
async fn a_first_listing_without_a_finished_parent_keeps_its_row() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    take(&mut subscription, 3).await.into_iter().for_each(Delivery::ack);
    sleep(millis(1_500)).await;
    me.table.script.plan(Rule::on(TableOp::Take).always(), Fault::Hang);
    split(&harness);
    sleep(seconds(5)).await;
    subscription.close().await;
    assert_eq!(harness.checkpoint("a").await, "SHARD_END");
    for shard in ["a", "b", "c"] {
        harness.kinesis.hide(shard);
    }
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    sleep(seconds(5)).await;
    harness.kinesis.show_all();
    assert_eq!(settle(&mut subscription, seconds(60)).await.0, ["b0", "c0"]);
    assert_eq!((me.table.log("a"), harness.checkpoint("a").await), (Vec::new(), "SHARD_END".into()));
}

// H6
#[tokio::test(start_paused = true)]
async fn failed_listings_make_no_shard_gone_and_delete_no_row() {
    let harness = Harness::new(&["a"]);
    let (me, other) = (harness.instance("me"), harness.instance("other"));
    let mut mine = me.subscribe(horizon()).await;
    let mut others = other.subscribe(horizon()).await;
    other.service.fail(Rule::on(ServiceOp::ListShards).always(), FailureKind::Other);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.split("b", ["d", "e"]);
    harness.kinesis.put("d", 1);
    let (said, gone) = settle(&mut mine, seconds(3)).await;
    assert_eq!((said, gone), (vec!["d0".to_owned()], Vec::new()));
    let (said, gone) = settle(&mut others, seconds(300)).await;
    assert_eq!((said, gone), (Vec::new(), Vec::new()));
    assert_eq!(
        (harness.checkpoint("a").await, harness.checkpoint("b").await),
        ("SHARD_END".into(), "SHARD_END".into())
    );
    assert!(other.table.script.calls(TableOp::Delete).is_empty());
}

// H4
#[tokio::test(start_paused = true)]
async fn children_named_by_the_last_page_start_at_once_regardless_of_listings() {
    for listings in ["hide them", "fail", "are slow"] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 1);
        harness.kinesis.name_children();
        let me = harness.instance("me");
        let mut subscription = me.subscribe(horizon()).await;
        sleep(seconds(1)).await;
        split(&harness);
        match listings {
            "hide them" => ["b", "c"].into_iter().for_each(|child| harness.kinesis.hide(child)),
            "fail" => me.service.fail(Rule::on(ServiceOp::ListShards).always(), FailureKind::Other),
            _ => me.service.script.plan(Rule::on(ServiceOp::ListShards).always(), Fault::Delay(millis(90))),
        }
        next(&mut subscription).await.ack();
        let (said, gone) = settle(&mut subscription, millis(1_100)).await;
        assert_eq!((said, gone), (vec!["b0".to_owned(), "c0".to_owned()], Vec::new()), "{listings}");
        harness.kinesis.show_all();
        assert_eq!(settle(&mut subscription, seconds(60)).await, (Vec::new(), Vec::new()), "{listings}");
        assert_eq!((harness.owner("b").await.as_str(), harness.row("b").await.unwrap().epoch), ("me", 1));
    }
}

// H4
#[tokio::test(start_paused = true)]
async fn a_failed_listing_for_children_is_retried_within_a_second() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    split(&harness);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::ListShards).after(1).times(2), FailureKind::Other);
    harness.kinesis.hide("b");
    harness.kinesis.hide("c");
    let mut subscription = me.subscribe(horizon()).await;
    next(&mut subscription).await.ack();
    sleep(millis(10)).await;
    harness.kinesis.show_all();
    assert!(matches!(error(&mut subscription).await, KinesisError::List { .. }));
    let (said, _) = settle(&mut subscription, millis(2_100)).await;
    assert_eq!(said, ["b0", "c0"]);
}

// H4
#[tokio::test(start_paused = true)]
async fn a_long_stream_is_listed_page_by_page_by_token_alone() {
    let harness = Harness::new(&["a", "b", "c", "d", "e"]);
    harness.kinesis.list_by(2);
    for shard in ["a", "b", "c", "d", "e"] {
        harness.kinesis.put(shard, 1);
    }
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    assert_eq!(names(&within(&mut subscription, seconds(1)).await), ["a0", "b0", "c0", "d0", "e0"]);
    let calls: Vec<String> = me.service.script.calls(ServiceOp::ListShards).into_iter().map(|call| call.what).collect();
    assert_eq!(calls, [r#"Stream("s")"#, r#"Token("b")"#, r#"Token("d")"#]);
}

// H4, H6, L5
#[tokio::test(start_paused = true)]
async fn a_listing_that_fails_half_way_is_discarded() {
    let harness = Harness::new(&["a", "b", "c"]);
    harness.kinesis.list_by(1);
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::ListShards).after(1), FailureKind::Other);
    me.service.fail(Rule::on(ServiceOp::ListShards).after(5), FailureKind::Other);
    let mut subscription = me.subscribe(latest()).await;
    harness.kinesis.put("c", 1);
    assert!(matches!(error(&mut subscription).await, KinesisError::List { .. }));
    assert!(me.table.script.calls(TableOp::Take).is_empty());
    let record = next(&mut subscription).await;
    assert_eq!((name(&record), harness.millis()), ("c0", 1_000));
    record.ack();
    assert!(matches!(error(&mut subscription).await, KinesisError::List { .. }));
    harness.kinesis.put("a", 1);
    assert_eq!(names(&within(&mut subscription, seconds(60)).await), range("a", 0..1));
    assert_eq!(me.table.script.calls(TableOp::Take).len(), 3);
}

// R10, X3
#[tokio::test(start_paused = true)]
async fn expired_credentials_yield_errors_that_name_action_and_stream_and_lose_nothing() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 3);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    take(&mut subscription, 3).await.into_iter().for_each(Delivery::ack);
    for op in [ServiceOp::GetRecords, ServiceOp::GetShardIterator, ServiceOp::ListShards] {
        me.service.fail(Rule::on(op).always(), FailureKind::Denied);
    }
    harness.kinesis.put("a", 3);
    let mut said = Vec::new();
    while said.len() < 40 {
        match item(&mut subscription).await.unwrap() {
            Ok(delivery) => panic!("{delivery:?}"),
            Err(error) => said.push((error.class(), Chain(&error).to_string())),
        }
    }
    for (class, text) in said {
        assert!(matches!(class, ErrorClass::Transient | ErrorClass::Lasting), "{class:?}: {text}");
        assert!(text.contains("stream s"), "{text}");
        let actions = ["kinesis:GetRecords", "kinesis:GetShardIterator", "kinesis:ListShards"];
        assert!(actions.into_iter().any(|action| text.contains(action)), "{text}");
    }
    me.service.script.heal();
    assert_eq!(settle(&mut subscription, seconds(30)).await.0, range("a", 3..6));
}

// H5
#[tokio::test(start_paused = true)]
async fn a_closed_shard_next_to_open_ones_is_no_error_and_is_not_reopened() {
    for (stream, expected) in [(latest(), vec!["b1", "c0"]), (horizon(), vec!["b0", "b1", "c0"])] {
        let harness = Harness::new(&["a", "b", "c"]);
        harness.kinesis.put("b", 1);
        harness.kinesis.close("a");
        sleep(seconds(2)).await;
        let me = harness.instance("me");
        let mut subscription = me.subscribe(stream).await;
        harness.kinesis.put("b", 1);
        harness.kinesis.put("c", 1);
        assert_eq!(names(&within(&mut subscription, seconds(100)).await), expected);
        assert!(me.service.places("a").len() <= 1 && me.table.script.calls(TableOp::Take).len() <= 3);
    }
}

// H6: the first listing was made before the shard existed.
#[tokio::test(start_paused = true)]
async fn a_shard_created_after_the_first_listing_is_not_gone_if_the_next_listing_lags() {
    let harness = Harness::new(&["a"]);
    let first = harness.instance("A").subscribe(horizon()).await;
    let other = harness.instance("B");
    other.table.fail(Rule::on(TableOp::Leases).times(3));
    let mut subscription = other.subscribe(horizon()).await;
    sleep(seconds(1)).await;
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    sleep(seconds(4)).await;
    assert_eq!(harness.owner("b").await, "A");
    harness.kinesis.hide("b");
    harness.until(9_500).await;
    first.close().await;
    harness.until(12_000).await;
    harness.kinesis.show("b");
    assert_eq!(settle(&mut subscription, seconds(30)).await, (vec!["b0".to_owned()], Vec::new()));
}
