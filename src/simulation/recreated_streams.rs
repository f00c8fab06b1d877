//! Streams that were deleted and created again under the same name (H7).

use tokio::time::sleep;

use super::{script::Rule, scripted_service::ServiceOp};
use crate::{
    config::position::KinesisPosition,
    delivery::Delivery,
    error::{ErrorClass, KinesisError, service::FailureKind},
    simulation::harness::{Harness, horizon, item, latest, millis, name, names, next, range, seconds, take, within},
    subscription::{Subscription, descriptor::KinesisStream},
    types::commit::Commit,
};

/// Takes this many records and settles them. Counts the other items: new streams, lost checkpoints, and the rest.
async fn settle(subscription: &mut Subscription, count: usize) -> (Vec<String>, [usize; 3]) {
    let (mut said, mut errors) = (Vec::new(), [0; 3]);
    while said.len() < count {
        match item(subscription).await.unwrap() {
            Ok(delivery) => {
                said.push(name(&delivery).to_owned());
                delivery.ack();
            }
            Err(error) => {
                assert!(matches!(error.class(), ErrorClass::Transient | ErrorClass::Loss), "{error}");
                let kind = match error {
                    KinesisError::StreamRecreated { .. } => 0,
                    KinesisError::CheckpointLost { .. } => 1,
                    _ => 2,
                };
                errors[kind] += 1;
            }
        }
    }
    (said, errors)
}

/// A stream that was read, split and read on, and then recreated with two records.
async fn recreated() -> Harness {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 5);
    let mut subscription = harness.instance("me").subscribe(horizon()).await;
    take(&mut subscription, 5).await.into_iter().for_each(Delivery::ack);
    harness.kinesis.split("a", ["b", "c"]);
    harness.kinesis.put("b", 1);
    next(&mut subscription).await.ack();
    subscription.close().await;
    assert_eq!((harness.checkpoint("a").await, harness.checkpoint("b").await), ("SHARD_END".into(), "after b0".into()));
    harness.kinesis.recreate(&["a"]);
    harness.kinesis.put("a", 2);
    harness
}

fn anyhow() -> [KinesisStream; 3] {
    [latest(), horizon(), latest().initial_position(KinesisPosition::sequence("a", "a3"))]
}

// H7
#[tokio::test(start_paused = true)]
async fn a_stream_recreated_between_two_runs_is_read_from_its_start_and_reported() {
    for stream in anyhow() {
        let harness = recreated().await;
        let me = harness.instance("me");
        let mut subscription = me.subscribe(stream).await;
        assert_eq!(settle(&mut subscription, 2).await, (vec!["a'0".to_owned(), "a'1".to_owned()], [1, 0, 0]));
        assert_eq!(me.service.places("a"), ["Horizon"]);
        assert!(within(&mut subscription, seconds(60)).await.is_empty());
        assert_eq!(harness.checkpoint("a").await, "after a'1");
    }
}

// H7
#[tokio::test(start_paused = true)]
async fn the_rows_of_the_old_stream_are_deleted_and_the_change_is_reported_once() {
    let harness = recreated().await;
    let mut subscription = harness.instance("me").subscribe(latest()).await;
    settle(&mut subscription, 2).await;
    subscription.close().await;
    assert!(harness.row("b").await.is_none() && harness.row("c").await.is_none());
    harness.kinesis.put("a", 1);
    let mut subscription = harness.instance("me").subscribe(latest()).await;
    assert_eq!(names(&within(&mut subscription, seconds(60)).await), ["a'2"]);
}

// H7
#[tokio::test(start_paused = true)]
async fn a_stream_recreated_under_a_live_consumer_is_read_from_its_start() {
    for idle in [false, true] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put("a", 5);
        let me = harness.instance("me");
        let mut subscription = me.subscribe(horizon()).await;
        settle(&mut subscription, 4).await;
        let held = next(&mut subscription).await;
        sleep(seconds(3)).await;
        if idle {
            held.ack();
            subscription.close().await;
            subscription = me.subscribe(horizon()).await;
            sleep(seconds(3)).await;
            harness.kinesis.recreate(&["a", "b"]);
        } else {
            harness.kinesis.recreate(&["a", "b"]);
            sleep(seconds(5)).await;
            assert_eq!(held.commit().await.unwrap(), Commit::Superseded);
        }
        harness.kinesis.put("a", 3);
        harness.kinesis.put("b", 1);
        let (mut said, errors) = settle(&mut subscription, 4).await;
        said.sort();
        assert_eq!((said, errors[0]), ([range("a'", 0..3), vec!["b'0".to_owned()]].concat(), 1), "{errors:?}");
        assert!(within(&mut subscription, seconds(60)).await.is_empty());
        assert_eq!(harness.checkpoint("a").await, "after a'2");
        assert!(harness.row("a").await.unwrap().stream_created > Some(super::kinesis::EPOCH));
    }
}

// H7
#[tokio::test(start_paused = true)]
async fn a_failed_describe_is_retried_until_the_new_stream_is_seen() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 1);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    settle(&mut subscription, 1).await;
    sleep(seconds(3)).await;
    me.service.fail(Rule::on(ServiceOp::DescribeStreamSummary).times(3), FailureKind::Other);
    harness.kinesis.recreate(&["a"]);
    harness.kinesis.put("a", 2);
    let (said, errors) = settle(&mut subscription, 2).await;
    assert_eq!((said, errors[0]), (range("a'", 0..2), 1));
}

// H7
#[tokio::test(start_paused = true)]
async fn an_empty_shard_under_latest_is_read_from_the_start_of_the_recreated_stream() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.iterators_live(millis(2_500));
    let mut subscription = harness.instance("me").subscribe(latest()).await;
    sleep(seconds(60)).await;
    harness.kinesis.recreate(&["a"]);
    harness.kinesis.put("a", 3);
    let (said, errors) = settle(&mut subscription, 3).await;
    assert_eq!((said, errors[0]), (range("a'", 0..3), 1));
    assert!(within(&mut subscription, seconds(60)).await.is_empty());
}

// H7
#[tokio::test(start_paused = true)]
async fn two_instances_share_a_recreated_stream_and_read_it_once() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put("a", 2);
    harness.kinesis.put("b", 2);
    harness.steal("b", "other").await;
    let (me, other) = (harness.instance("me"), harness.instance("other"));
    let mut mine = me.subscribe(horizon()).await;
    let mut others = other.subscribe(horizon()).await;
    settle(&mut mine, 2).await;
    settle(&mut others, 2).await;
    sleep(seconds(3)).await;
    harness.kinesis.recreate(&["a", "b"]);
    harness.kinesis.put("a", 3);
    harness.kinesis.put("b", 3);
    let reads = |mut subscription: Subscription| {
        tokio::spawn(async move {
            let (mut said, mut recreated) = (Vec::new(), 0);
            while let Ok(item) = tokio::time::timeout(seconds(60), item(&mut subscription)).await {
                match item.unwrap() {
                    Ok(delivery) => {
                        said.push(name(&delivery).to_owned());
                        delivery.ack();
                    }
                    Err(KinesisError::StreamRecreated { .. }) => recreated += 1,
                    Err(error) => assert!(matches!(error.class(), ErrorClass::Transient | ErrorClass::Loss), "{error}"),
                }
            }
            (said, recreated)
        })
    };
    let (mine, others) = (reads(mine), reads(others));
    let ((mut said, once), (more, twice)) = (mine.await.unwrap(), others.await.unwrap());
    said.extend(more);
    said.sort();
    assert_eq!(said, [range("a'", 0..3), range("b'", 0..3)].concat());
    assert!(once <= 1 && twice <= 1 && once + twice >= 1, "{once} {twice}");
    assert_eq!(
        (harness.checkpoint("a").await, harness.checkpoint("b").await),
        ("after a'2".into(), "after b'2".into())
    );
}

// H7
#[tokio::test(start_paused = true)]
async fn a_service_that_tells_the_creation_time_in_another_precision_has_the_same_stream() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put("a", 2);
    let me = harness.instance("me");
    let mut subscription = me.subscribe(horizon()).await;
    next(&mut subscription).await.ack();
    subscription.close().await;
    harness.kinesis.tell_seconds();
    let mut subscription = me.subscribe(horizon()).await;
    assert_eq!(name(&next(&mut subscription).await), "a1");
}
