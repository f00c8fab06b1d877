//! Custom lease stores: one as a user would write it, and one whose calls fail.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use futures::StreamExt;
use kinesis_stream::{Delivery, KinesisBroker, KinesisError, KinesisPosition, KinesisStream, LeaseStore, Subscription};
use kinesis_stream_support::Emulator;
use tokio::time::{Duration, sleep, timeout};

mod failures;
mod faulty;
mod instances;
mod table;
mod user_store;

const STREAM: &str = "stream";
const PATIENCE: Duration = Duration::from_mins(1);

const SHARDS: [&str; 2] = ["shardId-000000000000", "shardId-000000000001"];

async fn kinesis(shards: u32) -> Emulator {
    let kinesis = Emulator::start();
    kinesis.create_stream(STREAM, shards).await;
    kinesis
}

async fn fill(kinesis: &Emulator, shard: &str, n: usize) {
    for i in 0..n {
        kinesis.put_to_shard(STREAM, shard, "key", i.to_string()).await;
    }
}

fn quick() -> KinesisStream {
    KinesisStream::new(STREAM)
        .initial_position(KinesisPosition::horizon())
        .poll_interval(Duration::from_millis(20))
        .reads_per_second(1_000)
        .checkpoint_interval(Duration::from_millis(50))
        .renew_interval(Duration::from_millis(200))
        .lease_ttl(Duration::from_secs(1))
        .list_interval(Duration::from_millis(500))
}

async fn reading(kinesis: &Emulator, store: impl LeaseStore, stream: KinesisStream) -> Subscription {
    let broker = KinesisBroker::new().endpoint(kinesis.endpoint()).test_credentials().lease_store(store);
    broker.connect().await.unwrap().subscribe(stream).await.unwrap()
}

type Item = Result<Delivery, KinesisError>;

async fn item(subscription: &mut (impl futures::Stream<Item = Item> + Unpin)) -> Item {
    timeout(PATIENCE, subscription.next()).await.expect("an item arrives in time").expect("the stream has not ended")
}

fn text(delivery: &Delivery) -> String {
    String::from_utf8(delivery.payload().to_vec()).unwrap()
}

#[expect(clippy::future_not_send, reason = "callers await it in place")]
async fn eventually(what: &str, condition: impl AsyncFn() -> bool) {
    let waits = async {
        while !condition().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(PATIENCE, waits).await.expect(what);
}
