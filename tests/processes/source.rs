//! The stream, and the records put into it.

use std::{collections::BTreeMap, sync::Mutex};

use kinesis_stream_support::{Emulator, Rng, Shard};
use tokio::time::{Duration, sleep};

use crate::row::Place;

pub(crate) const STREAM: &str = "stream";

/// The stream and its producer.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) kinesis: Emulator,
    pub(crate) puts: Mutex<Puts>,
}

/// The records put so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Puts {
    /// The sequence numbers of each shard, in order: there is one producer.
    pub(crate) shards: BTreeMap<String, Vec<String>>,
    /// How many records each key has. The payload is `key number`.
    pub(crate) keys: BTreeMap<String, usize>,
}

impl Puts {
    pub(crate) fn count(&self) -> usize {
        self.keys.values().sum()
    }
}

impl Source {
    pub(crate) async fn new(shards: u32) -> Self {
        let kinesis = Emulator::start();
        kinesis.create_stream(STREAM, shards).await;
        Self { kinesis, puts: Mutex::default() }
    }

    /// Puts the next record of a key.
    pub(crate) async fn put(&self, key: &str) {
        let n = self.puts.lock().unwrap().keys.get(key).copied().unwrap_or_default();
        let (shard, number) = self.kinesis.put(STREAM, key, format!("{key} {n}")).await;
        let mut puts = self.puts.lock().unwrap();
        puts.keys.insert(key.to_owned(), n + 1);
        puts.shards.entry(shard).or_default().push(number);
    }

    /// Puts `records` records that take turns with `keys` keys, with a pause after each.
    pub(crate) async fn put_steadily(&self, records: usize, keys: usize, pause: Duration) {
        for n in 0..records {
            self.put(&format!("key{}", n % keys)).await;
            sleep(pause).await;
        }
    }

    /// The position of each shard once all of it is read and settled. Omits open shards without records.
    pub(crate) async fn ends(&self) -> BTreeMap<String, Place> {
        let shards = self.kinesis.shards(STREAM).await;
        let puts = self.puts.lock().unwrap();
        let end = |shard: Shard| {
            if shard.closed {
                return Some((shard.id, Place::End));
            }
            let last = puts.shards.get(&shard.id)?.last()?.clone();
            Some((shard.id, Place::After(last)))
        };
        shards.into_iter().filter_map(end).collect()
    }

    /// Splits a shard, or merges two.
    pub(crate) async fn reshard(&self, rng: &mut Rng) {
        let mut open = self.kinesis.shards(STREAM).await;
        open.retain(|shard| !shard.closed);
        open.sort_by_key(|shard| shard.hash_keys);
        let n = rng.index(open.len() - 1);
        if rng.one_in(2) || open.len() > 8 {
            self.kinesis.merge(STREAM, &open[n].id, &open[n + 1].id).await;
        } else {
            self.kinesis.split(STREAM, &open[n].id).await;
        }
    }
}
