//! Promises of [`LeaseStore::leases`].

use super::row::{ONE, take};
use crate::{
    lease::{LeaseKey, LeaseStore, Take},
    types::id::ShardId,
};

/// Names that a store confuses if it joins them with a separator, matches prefixes or folds case.
const TABLES: [(&str, &str); 12] = [
    ("contract-a", "b"),
    ("contract-a", "b-c"),
    ("contract-a-b", "c"),
    ("contract-a", "b.c"),
    ("contract-a.b", "c"),
    ("contract-a/b", "c"),
    ("contract-a:b", "c"),
    ("contract-a#b", "c"),
    ("contract-a b", "c"),
    ("contract-A", "b"),
    ("contract-a", "B"),
    ("contract-ä%_\\", "b"),
];

pub(super) async fn leases_are_the_rows_of_one_consumer_and_stream(store: &dyn LeaseStore) {
    let shards: Vec<ShardId> = vec!["shardId-000000000000".into(), "shardId-000000000001".into()];
    for (consumer, stream) in TABLES {
        for shard in &shards {
            let take = take(&key(consumer, stream, shard.clone()), ONE, None);
            store.take(&take).await.expect("the take returns no error");
        }
    }
    for (consumer, stream) in TABLES {
        let expected: Vec<_> = shards.iter().map(|shard| key(consumer, stream, shard.clone())).collect();
        assert_eq!(keys(store, consumer, stream).await, expected, "consumer {consumer}, stream {stream}");
    }
    for (consumer, stream) in [("contract", "b"), ("contract-a", "c"), ("contract-", "a"), ("contract-a-b", "b")] {
        assert!(keys(store, consumer, stream).await.is_empty(), "consumer {consumer}, stream {stream} has no rows");
    }
}

/// More than a megabyte of rows, so that a store which reads in pages has to read several.
pub(super) async fn leases_are_all_rows_however_many(store: &dyn LeaseStore) {
    let consumer = "contract-of-many";
    let parents: Vec<ShardId> = (0..10).map(|parent| format!("{parent:0128}").into()).collect();
    let expected: Vec<_> = (0..1_000).map(|shard| key(consumer, "orders", format!("{shard:0128}").into())).collect();
    for key in &expected {
        let take = Take { parents: parents.clone(), ..take(key, ONE, None) };
        store.take(&take).await.expect("the take returns no error");
    }
    assert_eq!(keys(store, consumer, "orders").await, expected);
}

async fn keys(store: &dyn LeaseStore, consumer: &str, stream: &str) -> Vec<LeaseKey> {
    let rows = store.leases(consumer, stream).await.expect("the leases are read");
    let mut keys: Vec<_> = rows.into_iter().map(|row| row.key).collect();
    keys.sort();
    keys
}

fn key(consumer: &str, stream: &str, shard: ShardId) -> LeaseKey {
    LeaseKey { consumer: consumer.into(), stream: stream.into(), shard }
}
