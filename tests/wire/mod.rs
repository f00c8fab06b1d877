//! Helpers of the end-to-end tests: instances of a consumer that share a store, and reading with a timeout. Every wait
//! is for a condition, never for a fixed time. A condition that does not hold in time fails the test.

use std::collections::BTreeMap;

use kinesis_stream::{
    ConnectedKinesisBroker, Delivery, KinesisBroker, KinesisError, KinesisPosition, KinesisStream, Lease, LeaseStore,
    Subscription,
};
use kinesis_stream_support::Harness;
use tokio::time::{Duration, Instant, sleep, timeout};

/// The timeout of every wait.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The payload of the last record that a test puts into a shard.
const SEAL: &str = "seal";

/// An instance on this harness and this store, with a unique owner id.
pub(crate) async fn instance(harness: &Harness, store: &(impl LeaseStore + Clone)) -> ConnectedKinesisBroker {
    let broker = KinesisBroker::new().endpoint(harness.endpoint()).test_credentials().lease_store(store.clone());
    broker.connect().await.expect("the configuration is complete")
}

/// A stream that is read from the horizon with short intervals: a local server has no limits, and tests wait for
/// leases.
pub(crate) fn quick(stream: &str) -> KinesisStream {
    KinesisStream::new(stream)
        .initial_position(KinesisPosition::horizon())
        .poll_interval(Duration::from_millis(20))
        .reads_per_second(1_000)
        .checkpoint_interval(Duration::from_millis(50))
        .renew_interval(Duration::from_millis(200))
        .lease_ttl(Duration::from_secs(1))
        .list_interval(Duration::from_millis(500))
}

/// Subscribes with a new instance.
pub(crate) async fn reading(
    harness: &Harness,
    store: &(impl LeaseStore + Clone),
    stream: KinesisStream,
) -> Subscription {
    instance(harness, store).await.subscribe(stream).await.expect("the stream can be read")
}

/// The next item.
pub(crate) async fn item(subscription: &mut Subscription) -> Option<Result<Delivery, KinesisError>> {
    use futures::StreamExt;
    timeout(PATIENCE, subscription.next()).await.expect("an item arrives in time")
}

/// The next record.
pub(crate) async fn record(subscription: &mut Subscription) -> Delivery {
    item(subscription).await.expect("the stream has not ended").expect("the item is a record")
}

/// The next `n` records, unsettled.
pub(crate) async fn records(subscription: &mut Subscription, n: usize) -> Vec<Delivery> {
    let mut taken = Vec::new();
    while taken.len() < n {
        taken.push(record(subscription).await);
    }
    taken
}

/// The payload of a record as text.
pub(crate) fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.payload().to_vec()).expect("payloads in tests are text")
}

/// The payloads of records as texts.
pub(crate) fn texts<'a>(deliveries: impl IntoIterator<Item = &'a Delivery>) -> Vec<String> {
    deliveries.into_iter().map(text).collect()
}

/// Puts a seal, the last record, into every open shard. Returns the number of seals.
pub(crate) async fn seal(harness: &Harness, stream: &str) -> usize {
    let mut open = harness.shards(stream).await;
    open.retain(|shard| !shard.closed);
    for shard in &open {
        harness.put_to_shard(stream, &shard.id, SEAL, SEAL).await;
    }
    open.len()
}

/// Acknowledges all records up to this number of seals. Returns the texts of the records before the seals.
pub(crate) async fn up_to_seals(subscription: &mut Subscription, seals: usize) -> Vec<String> {
    let (mut said, mut seen) = (Vec::new(), 0);
    while seen < seals {
        let delivery = record(subscription).await;
        match text(&delivery) {
            text if text == SEAL => seen += 1,
            text => said.push(text),
        }
        delivery.ack();
    }
    said
}

/// The lease rows of the default consumer, by shard.
pub(crate) async fn rows(store: &(impl LeaseStore + Clone), stream: &str) -> BTreeMap<String, Lease> {
    let rows = store.leases("default", stream).await.expect("the leases can be read");
    rows.into_iter().map(|row| (row.key.shard.to_string(), row)).collect()
}

/// Waits for a condition.
pub(crate) async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !condition().await {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        sleep(Duration::from_millis(5)).await;
    }
}
