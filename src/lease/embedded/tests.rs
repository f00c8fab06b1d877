//! Tests from inside the store: they count syncs and make the disk fail.

use futures::future::join_all;

use super::EmbeddedLeaseStore;
use crate::{
    config::position::Checkpoint,
    lease::{Held, Lease, LeaseKey, LeaseStore, Take, Write},
};

mod commits;
mod disk;
mod failures;
mod queue;

fn take_of(shard: usize) -> Take {
    Take::new(LeaseKey::new("c", "s", format!("shard-{shard}")), "a")
}

fn held(shard: usize) -> Held {
    Held { key: take_of(shard).key, owner: "a".into(), epoch: 1 }
}

fn after(number: usize) -> Checkpoint {
    Checkpoint::After(number.to_string().into())
}

async fn taken(store: &EmbeddedLeaseStore, shards: usize) {
    for take in join_all((0..shards).map(async |shard| store.take(&take_of(shard)).await.unwrap())).await {
        assert!(matches!(take, Write::Applied(_)));
    }
}

async fn leases(store: &EmbeddedLeaseStore) -> Vec<Lease> {
    store.leases("c", "s").await.unwrap()
}
