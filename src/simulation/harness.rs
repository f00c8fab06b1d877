//! Instances, and shorthands for tests.

use std::{
    collections::BTreeMap,
    sync::{Arc, LazyLock},
};

use futures::StreamExt;
use tokio::time::{Duration, Instant, sleep_until, timeout};
use tracing::Dispatch;

use super::{
    kinesis::Kinesis,
    script::{Fault, Rule},
    scripted_service::ScriptedService,
    scripted_table::ScriptedTable,
};
use crate::{
    config::position::KinesisPosition,
    delivery::Delivery,
    error::KinesisError,
    kinesis::Service,
    lease::{Lease, LeaseKey, LeaseStore, MemoryLeaseStore, Take},
    state::context::{Identity, SubscriptionContext},
    subscription::{Subscription, descriptor::KinesisStream, start},
    util::mutex::lock,
};

const CONSUMER: &str = "test";
const STREAM: &str = "s";

/// Longer than any wait of a test.
const LONG: Duration = Duration::from_hours(1);

/// A stream and a lease table that several instances share.
#[derive(Debug)]
pub(crate) struct Harness {
    pub(crate) kinesis: Arc<Kinesis>,
    rows: Arc<dyn LeaseStore>,
    start: Instant,
}

impl Harness {
    pub(crate) fn new(shards: &[&str]) -> Self {
        Self::on(shards, MemoryLeaseStore::new())
    }

    /// Like [`new`](Self::new), with this lease table.
    pub(crate) fn on(shards: &[&str], rows: impl LeaseStore) -> Self {
        Self { kinesis: Arc::new(Kinesis::new(shards)), rows: Arc::new(rows), start: Instant::now() }
    }

    /// An instance with this owner id.
    pub(crate) fn instance(&self, owner: &str) -> Instance {
        let (service, table) =
            (Arc::new(ScriptedService::new(&self.kinesis)), Arc::new(ScriptedTable::new(&self.rows)));
        Instance { owner: owner.into(), service, table }
    }

    /// Time since the start, in milliseconds.
    pub(crate) fn millis(&self) -> u128 {
        self.start.elapsed().as_millis()
    }

    /// Waits until this many milliseconds after the start.
    pub(crate) async fn until(&self, millis: u64) {
        sleep_until(self.start + Duration::from_millis(millis)).await;
    }

    /// The lease row of a shard.
    pub(crate) async fn row(&self, shard: &str) -> Option<Lease> {
        let rows = self.rows.leases(CONSUMER, STREAM).await.unwrap().rows;
        rows.into_iter().find(|row| row.key.shard.as_str() == shard)
    }

    /// The number of lease rows.
    pub(crate) async fn rows(&self) -> usize {
        self.rows.leases(CONSUMER, STREAM).await.unwrap().rows.len()
    }

    /// The checkpoint of a shard as text; empty without one.
    pub(crate) async fn checkpoint(&self, shard: &str) -> String {
        let row = self.row(shard).await;
        row.and_then(|row| row.checkpoint).map(|checkpoint| checkpoint.to_string()).unwrap_or_default()
    }

    /// The owner of a shard; empty without one.
    pub(crate) async fn owner(&self, shard: &str) -> String {
        self.row(shard).await.and_then(|row| row.owner).map(|owner| owner.to_string()).unwrap_or_default()
    }

    /// How many leases each owner holds.
    pub(crate) async fn shares(&self) -> BTreeMap<String, usize> {
        let mut shares = BTreeMap::new();
        for row in self.rows.leases(CONSUMER, STREAM).await.unwrap().rows {
            if let Some(owner) = row.owner {
                *shares.entry(owner.to_string()).or_default() += 1;
            }
        }
        shares
    }

    /// How often leases were taken since the table was made: the sum of all epochs.
    pub(crate) async fn takes(&self) -> u64 {
        self.rows.leases(CONSUMER, STREAM).await.unwrap().rows.iter().map(|row| row.epoch).sum()
    }

    /// Direct access to the table.
    pub(crate) fn table(&self) -> &dyn LeaseStore {
        &*self.rows
    }

    /// Takes a lease as another owner, also while somebody holds it.
    pub(crate) async fn steal(&self, shard: &str, owner: &str) {
        let key = LeaseKey { consumer: CONSUMER.into(), stream: STREAM.into(), shard: shard.into() };
        let seen = self.row(shard).await.map(|row| row.seen());
        let take = Take {
            key,
            owner: owner.into(),
            seen,
            parents: Vec::new(),
            stream_created: None,
            forget_checkpoint: false,
            since: None,
        };
        self.rows.take(&take).await.unwrap();
    }
}

/// One process that uses the library.
#[derive(Debug)]
pub(crate) struct Instance {
    owner: Arc<str>,
    pub(crate) service: Arc<ScriptedService>,
    pub(crate) table: Arc<ScriptedTable>,
}

impl Instance {
    pub(crate) async fn subscribe(&self, stream: KinesisStream) -> Subscription {
        start::start(self.context(stream)).await.unwrap()
    }

    pub(crate) fn context(&self, stream: KinesisStream) -> Arc<SubscriptionContext> {
        let (name, settings) = stream.checked().unwrap();
        let identity = Identity { consumer: CONSUMER.into(), stream: name.into(), owner: Arc::clone(&self.owner) };
        SubscriptionContext::new(
            identity,
            settings,
            Arc::clone(&self.service) as Arc<dyn Service>,
            Arc::clone(&self.table) as Arc<_>,
        )
    }

    /// Kills the process: its later calls do not reach the lease table.
    pub(crate) fn die(&self, subscription: Subscription) {
        self.table.script.plan_first(Rule::everything(), Fault::Hang);
        drop(subscription);
    }
}

/// Subscribes to shard `a`, while another instance holds shard `z`: a reader that fails gives up only for the sake of
/// another instance that is in sight. Returns the subscriptions of both.
pub(crate) async fn beside_another(
    harness: &Harness,
    instance: &Instance,
    stream: KinesisStream,
) -> (Subscription, Subscription) {
    let subscription = instance.subscribe(stream.max_leases(1)).await;
    let others = harness.instance("other").subscribe(latest().max_leases(1)).await;
    assert_eq!((&*harness.owner("a").await, &*harness.owner("z").await), (&*instance.owner, "other"));
    (subscription, others)
}

/// The harness's stream, from the tip.
pub(crate) fn latest() -> KinesisStream {
    KinesisStream::new(STREAM)
}

/// The harness's stream, from its oldest record for a new consumer.
pub(crate) fn horizon() -> KinesisStream {
    latest().initial_position(KinesisPosition::horizon())
}

/// The next item, which must be a record.
pub(crate) async fn next(subscription: &mut Subscription) -> Delivery {
    match item(subscription).await {
        Some(Ok(delivery)) => delivery,
        other => panic!("no record but {other:?}"),
    }
}

/// The next item, which must be an error.
pub(crate) async fn error(subscription: &mut Subscription) -> KinesisError {
    match item(subscription).await {
        Some(Err(error)) => error,
        other => panic!("no error but {other:?}"),
    }
}

/// The next item or the end.
pub(crate) async fn item(subscription: &mut Subscription) -> Option<Result<Delivery, KinesisError>> {
    timeout(LONG, subscription.next()).await.expect("an item comes within an hour")
}

/// The next records.
pub(crate) async fn take(subscription: &mut Subscription, count: usize) -> Vec<Delivery> {
    let mut taken = Vec::with_capacity(count);
    for _ in 0..count {
        taken.push(next(subscription).await);
    }
    taken
}

/// All records that arrive within this time. Fails on an error.
pub(crate) async fn within(subscription: &mut Subscription, time: Duration) -> Vec<Delivery> {
    let until = Instant::now() + time;
    let mut taken = Vec::new();
    while let Ok(item) = tokio::time::timeout_at(until, subscription.next()).await {
        taken.push(item.expect("the stream continues").unwrap());
    }
    taken
}

/// The names of records.
pub(crate) fn names(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(name).collect()
}

/// The name of a record.
pub(crate) fn name(delivery: &Delivery) -> &str {
    delivery.sequence_number().as_str()
}

/// Names in order, as in `a3`, `a4`.
pub(crate) fn range(shard: &str, range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|index| format!("{shard}{index}")).collect()
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Captures the warnings and errors that are logged while it lives, as text.
pub(crate) struct CapturedLogs {
    lines: Arc<std::sync::Mutex<Vec<u8>>>,
    _guard: tracing::subscriber::DefaultGuard,
}

/// A second `tracing` subscriber. With only one, a call site that a thread without a subscriber reaches first stays
/// disabled for all threads.
static SECOND: LazyLock<Dispatch> = LazyLock::new(|| {
    let nowhere = tracing_subscriber::fmt().with_max_level(tracing::Level::WARN).with_writer(std::io::sink);
    Dispatch::new(nowhere.finish())
});

impl CapturedLogs {
    pub(crate) fn new() -> Self {
        LazyLock::force(&SECOND);
        let lines: Arc<std::sync::Mutex<Vec<u8>>> = Arc::default();
        let writer = Arc::clone(&lines);
        let subscriber = tracing_subscriber::fmt()
            .with_max_level(tracing::Level::WARN)
            .with_ansi(false)
            .with_writer(move || Lines(Arc::clone(&writer)))
            .finish();
        Self { lines, _guard: tracing::subscriber::set_default(subscriber) }
    }

    /// The lines that contain this text.
    pub(crate) fn with(&self, text: &str) -> Vec<String> {
        let all = String::from_utf8(lock(&self.lines).clone()).unwrap();
        all.lines().filter(|line| line.contains(text)).map(ToOwned::to_owned).collect()
    }
}

struct Lines(Arc<std::sync::Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
