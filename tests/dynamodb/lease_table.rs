//! A table per test, stores on it, and short constructors for rows.

use std::collections::HashMap;

use aws_sdk_dynamodb::{
    Client,
    config::{
        Builder,
        retry::{RetryConfig, RetryPartition, TokenBucket},
        timeout::TimeoutConfig,
    },
    types::AttributeValue,
};
use kinesis_stream::{Checkpoint, DynamoDbLeaseStore, Held, Lease, LeaseKey, LeaseStore, Seen, Take, Write};
use kinesis_stream_support::{DynamoDb, Faults, unique};
use tokio::time::Duration;

pub(crate) type Item = HashMap<String, AttributeValue>;

/// The row that most tests use.
pub(crate) const CONSUMER: &str = "default";
pub(crate) const STREAM: &str = "orders";
pub(crate) const SHARD: &str = "shardId-000000000002";
pub(crate) const PATH: &str = "default/orders/shardId-000000000002";

/// A table on a server. It may not exist yet.
#[derive(Clone, Debug)]
pub(crate) struct LeaseTable {
    pub(crate) server: DynamoDb,
    pub(crate) name: String,
}

impl LeaseTable {
    /// A table that does not exist yet.
    pub(crate) fn bare() -> Self {
        Self { server: DynamoDb::from_env(), name: unique("leases") }
    }

    /// An empty table.
    pub(crate) async fn new() -> Self {
        Self::bare().with_table().await
    }

    /// An empty table in this process, whatever the environment says. For tests that count calls per time: they test
    /// the client and need a fast server.
    pub(crate) async fn embedded() -> Self {
        Self { server: DynamoDb::start(), name: unique("leases") }.with_table().await
    }

    async fn with_table(self) -> Self {
        self.server.create_table(&self.name, "leaseKey").await;
        self
    }

    /// A store on the table, with a separate client.
    pub(crate) fn store(&self) -> DynamoDbLeaseStore {
        self.through(&Faults::default())
    }

    /// A store with these faults. The SDK retries its calls.
    pub(crate) fn through(&self, faults: &Faults) -> DynamoDbLeaseStore {
        let retries = RetryConfig::standard().with_max_attempts(8).with_initial_backoff(Duration::from_millis(1));
        // By default the SDK shares one retry budget in the process, and a test injects more errors than a service
        // returns.
        let budget = RetryPartition::custom("tests").token_bucket(TokenBucket::unlimited()).build();
        self.on(self.config(faults).retry_config(retries).retry_partition(budget))
    }

    /// A store with these faults. The SDK does not retry.
    pub(crate) fn once_through(&self, faults: &Faults) -> DynamoDbLeaseStore {
        self.on(self.config(faults).retry_config(RetryConfig::disabled()))
    }

    fn config(&self, faults: &Faults) -> Builder {
        let timeouts = TimeoutConfig::builder().operation_attempt_timeout(Duration::from_secs(30)).build();
        self.server.config().http_client(faults.http_client()).timeout_config(timeouts)
    }

    fn on(&self, config: Builder) -> DynamoDbLeaseStore {
        DynamoDbLeaseStore::from_client(self.name.as_str(), Client::from_conf(config.build())).unwrap()
    }

    pub(crate) async fn item(&self, key: &str) -> Item {
        self.server.item(&self.name, "leaseKey", key).await
    }

    pub(crate) async fn put<const N: usize>(&self, key: &str, attributes: [(&str, AttributeValue); N]) {
        let mut item: Item = attributes.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        item.insert("leaseKey".to_owned(), s(key));
        self.server.put(&self.name, item).await;
    }
}

pub(crate) fn s(text: &str) -> AttributeValue {
    AttributeValue::S(text.to_owned())
}

pub(crate) fn n(number: i64) -> AttributeValue {
    AttributeValue::N(number.to_string())
}

pub(crate) fn ss<const N: usize>(texts: [&str; N]) -> AttributeValue {
    AttributeValue::Ss(texts.map(str::to_owned).to_vec())
}

pub(crate) fn key() -> LeaseKey {
    key_of(SHARD)
}

pub(crate) fn key_of(shard: &str) -> LeaseKey {
    LeaseKey::new(CONSUMER, STREAM, shard)
}

pub(crate) fn taking(owner: &str, seen: Option<Seen>) -> Take {
    let parents = vec!["shardId-000000000000".into(), "shardId-000000000001".into()];
    Take::new(key(), owner).with_seen(seen).with_parents(parents).with_stream_created(Some(1_700_000_000_123))
}

/// Takes the lease, whatever its state.
pub(crate) async fn taken(store: &DynamoDbLeaseStore, owner: &str) -> Held {
    let seen = row(store).await.as_ref().map(Lease::seen);
    match store.take(&taking(owner, seen)).await.unwrap() {
        Write::Applied(lease) => held(owner, lease.epoch),
        Write::Refused(row) => panic!("refused with {row:?}"),
    }
}

pub(crate) fn held(owner: &str, epoch: u64) -> Held {
    Held::new(key(), owner, epoch)
}

/// The row of [`key`], as the store reads it.
pub(crate) async fn row(store: &DynamoDbLeaseStore) -> Option<Lease> {
    let rows = store.leases(CONSUMER, STREAM).await.unwrap();
    rows.into_iter().find(|row| row.key == key())
}

/// The same, if the row must exist.
pub(crate) async fn lease(store: &DynamoDbLeaseStore) -> Lease {
    row(store).await.unwrap()
}

pub(crate) fn after(number: &str) -> Checkpoint {
    Checkpoint::After(number.into())
}

/// The attribute names, sorted.
pub(crate) fn names(item: &Item) -> Vec<&str> {
    let mut names: Vec<_> = item.keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}
