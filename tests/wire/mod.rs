//! What the tests on the wire stand on: instances of a consumer that share a store, and taking records under a time
//! limit. Nothing here waits for luck: every wait is for a condition, and a condition that does not come fails the test.

use std::collections::BTreeMap;

use kinesis_stream::{
    ConnectedKinesisBroker, Delivery, KinesisBroker, KinesisError, KinesisPosition, KinesisStream, Lease, LeaseStore,
    Subscription,
};
use kinesis_stream_support::Ground;
use tokio::time::{Duration, Instant, sleep, timeout};

/// How long anything may take that has to come.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// The payload that closes off what a test put into a shard.
const SEAL: &str = "seal";

/// An instance on this ground and this store, with an owner id of its own.
pub(crate) async fn instance(ground: &Ground, store: &(impl LeaseStore + Clone)) -> ConnectedKinesisBroker {
    let broker = KinesisBroker::new().endpoint(ground.endpoint()).test_credentials().lease_store(store.clone());
    broker.connect().await.expect("the configuration is complete")
}

/// A stream that is read from the horizon, and with haste: a local server has no limits, and tests wait for leases.
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

/// A new instance that reads.
pub(crate) async fn reading(ground: &Ground, store: &(impl LeaseStore + Clone), stream: KinesisStream) -> Subscription {
    instance(ground, store).await.subscribe(stream).await.expect("the stream can be read")
}

/// The next item.
pub(crate) async fn item(subscription: &mut Subscription) -> Option<Result<Delivery, KinesisError>> {
    use futures::StreamExt;
    timeout(PATIENCE, subscription.next()).await.expect("an item comes")
}

/// The next record.
pub(crate) async fn record(subscription: &mut Subscription) -> Delivery {
    item(subscription).await.expect("the stream has not ended").expect("no error comes")
}

/// So many records, unsettled.
pub(crate) async fn records(subscription: &mut Subscription, n: usize) -> Vec<Delivery> {
    let mut taken = Vec::new();
    while taken.len() < n {
        taken.push(record(subscription).await);
    }
    taken
}

/// What a record says.
pub(crate) fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.payload().to_vec()).expect("tests put text")
}

/// What records say.
pub(crate) fn texts<'a>(deliveries: impl IntoIterator<Item = &'a Delivery>) -> Vec<String> {
    deliveries.into_iter().map(text).collect()
}

/// Puts the last record into every open shard.
pub(crate) async fn seal(ground: &Ground, stream: &str) -> usize {
    let mut open = ground.shards(stream).await;
    open.retain(|shard| !shard.closed);
    for shard in &open {
        ground.put_to_shard(stream, &shard.id, SEAL, SEAL).await;
    }
    open.len()
}

/// Acknowledges all records up to the seals of so many shards, and tells what those before the seals say.
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
