//! Closing a subscription, and shutting the broker down.

use std::pin::pin;

use futures::{FutureExt, StreamExt};
use kinesis_stream::{Checkpoint, Commit, Delivery, MemoryLeaseStore};
use kinesis_stream_support::Harness;
use tokio::time::{Duration, Instant, sleep_until};

use crate::{
    NEVER, after, fill, numbered, stream,
    wire::{instance, item, quick, reading, record, records, rows, text, texts},
};

// L9
#[tokio::test]
async fn closing_stores_the_checkpoint_then_releases_the_lease_and_the_next_subscription_resumes_there() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "close", 1).await;
    let shard = &harness.shards(stream).await[0].id;
    fill(&harness, stream, shard, "record", 10).await;
    let store = MemoryLeaseStore::new();
    let broker = instance(&harness, &store).await;
    let mut first = broker.subscribe(quick(stream).checkpoint_interval(NEVER)).await.unwrap();
    let mut taken = records(&mut first, 6).await;
    let at = Some(Checkpoint::At(taken[0].sequence_number().clone()));
    let covered = Some(after(&taken[4]));
    let held = taken.pop().unwrap();
    taken.into_iter().for_each(Delivery::ack);
    assert_eq!(rows(&store, stream).await[shard].checkpoint, at, "the checkpoint is not written yet");

    let closer = first.closer();
    let mut closing = pin!(closer.close());
    assert!(closing.as_mut().now_or_never().is_none(), "a delivery is in flight");
    assert!(item(&mut first).await.is_none(), "the stream ends");
    assert!(closing.as_mut().now_or_never().is_none(), "a delivery is in flight");
    let covered_by_held = Some(after(&held));
    assert_eq!(held.commit().await.unwrap(), Commit::Stored);
    assert!(closing.await.is_clean());
    let row = &rows(&store, stream).await[shard];
    assert_ne!(covered, covered_by_held);
    assert_eq!((&row.checkpoint, &row.owner, row.epoch), (&covered_by_held, &None, 1));
    assert!(item(&mut first).await.is_none(), "the stream stays ended");

    // The same broker can subscribe again as soon as the first subscription has ended.
    let mut second = broker.subscribe(quick(stream)).await.unwrap();
    let rest = records(&mut second, 4).await;
    assert_eq!(texts(&rest), numbered("record", 10)[6..]);
    assert!(rest.iter().all(|delivery| delivery.epoch() == 2));
}

// L9
#[tokio::test]
async fn closing_reports_open_deliveries_and_later_commits_are_superseded() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "open", 1).await;
    let shard = &harness.shards(stream).await[0].id;
    fill(&harness, stream, shard, "record", 3).await;
    let store = MemoryLeaseStore::new();
    let mut subscription = reading(&harness, &store, quick(stream).drain_timeout(Duration::from_millis(100))).await;
    let mut taken = records(&mut subscription, 3).await;
    let first = taken.remove(0);
    let covered = Some(after(&first));
    first.ack();
    let report = subscription.close().await;
    assert!(!report.is_clean() && report.unsaved.is_empty(), "{report:?}");
    let [open] = &report.open[..] else { panic!("{report:?}") };
    assert_eq!((open.shard.as_str(), open.deliveries, &open.oldest), (shard.as_str(), 2, taken[0].sequence_number()));
    for delivery in taken {
        assert_eq!(delivery.commit().await.unwrap(), Commit::Superseded);
    }
    let row = &rows(&store, stream).await[shard];
    assert_eq!((&row.checkpoint, &row.owner), (&covered, &None));
}

// L9, L6
#[tokio::test]
async fn a_lease_is_kept_while_closing_waits_for_a_delivery() {
    let harness = Harness::from_env();
    let stream = &stream(&harness, "drain", 1).await;
    let shard = &harness.shards(stream).await[0].id;
    fill(&harness, stream, shard, "record", 2).await;
    let store = MemoryLeaseStore::new();
    let mut closing = reading(&harness, &store, quick(stream)).await;
    let held = record(&mut closing).await;
    let mut waiting = reading(&harness, &store, quick(stream)).await;
    let closer = closing.closer();
    let mut finishing = pin!(closer.close());
    assert!(finishing.as_mut().now_or_never().is_none(), "a delivery is in flight");
    assert!(item(&mut closing).await.is_none());

    // Later than the TTL of the lease without renewals.
    let end = Instant::now() + Duration::from_secs(3);
    tokio::select! {
        _ = waiting.next() => panic!("the other instance took a shard that is still being settled"),
        () = sleep_until(end) => {}
    }
    assert_eq!(held.commit().await.unwrap(), Commit::Stored);
    assert!(finishing.await.is_clean());
    assert_eq!(text(&record(&mut waiting).await), "record 1");
}

// L7
#[tokio::test]
async fn shutting_down_closes_every_subscription_of_the_broker() {
    let harness = Harness::from_env();
    let streams = [stream(&harness, "shut", 1).await, stream(&harness, "shut", 1).await];
    let store = MemoryLeaseStore::new();
    let broker = instance(&harness, &store).await;
    let mut subscriptions = Vec::new();
    for stream in &streams {
        harness.put(stream, "key", "payload").await;
        let mut subscription = broker.subscribe(quick(stream)).await.unwrap();
        record(&mut subscription).await.ack();
        subscriptions.push(subscription);
    }
    broker.shutdown().await;
    for (stream, subscription) in streams.iter().zip(&mut subscriptions) {
        assert!(item(subscription).await.is_none());
        let rows = rows(&store, stream).await;
        let row = rows.values().next().unwrap();
        assert!(row.owner.is_none() && matches!(row.checkpoint, Some(Checkpoint::After(_))), "{row:?}");
    }
}
