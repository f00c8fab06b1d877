//! All shards that a subscription knows.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use crate::{
    state::{context::SubscriptionContext, shard::inner::Shard},
    types::id::ShardId,
    util::mutex::lock,
};

/// All shards that a subscription knows, by id.
#[derive(Debug, Default)]
pub(crate) struct Shards(Mutex<BTreeMap<ShardId, Arc<Shard>>>);

impl Shards {
    pub(crate) fn get(&self, shard: &ShardId) -> Option<Arc<Shard>> {
        lock(&self.0).get(shard).map(Arc::clone)
    }

    pub(crate) fn get_or_open(&self, context: &Arc<SubscriptionContext>, shard: &ShardId) -> Arc<Shard> {
        let mut shards = lock(&self.0);
        let new = || Arc::new(Shard::new(Arc::clone(context), shard.clone()));
        Arc::clone(shards.entry(shard.clone()).or_insert_with(new))
    }

    /// Forgets a shard that left the stream. Whoever still works on it keeps it.
    pub(crate) fn forget(&self, shard: &ShardId) {
        lock(&self.0).remove(shard);
    }

    pub(crate) fn all(&self) -> Vec<Arc<Shard>> {
        lock(&self.0).values().map(Arc::clone).collect()
    }
}
