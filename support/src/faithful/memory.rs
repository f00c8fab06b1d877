//! What the emulator forgets: when streams were made and records arrived, to the millisecond.

use std::collections::HashMap;

/// Milliseconds since the Unix epoch.
pub(super) type Millis = u64;

/// The moments of every stream and record.
#[derive(Debug, Default)]
pub(super) struct Memory {
    created: HashMap<String, Millis>,
    shards: HashMap<(String, String), Vec<Arrival>>,
}

#[derive(Debug)]
struct Arrival {
    sequence_number: String,
    at: Millis,
}

impl Memory {
    /// A new stream. What is remembered of an older one of that name goes; their moments differ.
    pub(super) fn create(&mut self, stream: &str, at: Millis) {
        self.shards.retain(|(of, _), _| of != stream);
        let before = self.created.get(stream).copied();
        self.created.insert(stream.to_owned(), before.map_or(at, |before| at.max(before + 1)));
    }

    /// When this stream was made.
    pub(super) fn created(&self, stream: &str) -> Option<Millis> {
        self.created.get(stream).copied()
    }

    /// The newest record of a shard. Time does not run backwards within a shard.
    pub(super) fn arrive(&mut self, stream: &str, shard: &str, sequence_number: &str, at: Millis) {
        let shard = self.shards.entry((stream.to_owned(), shard.to_owned())).or_default();
        let at = shard.last().map_or(at, |last| last.at.max(at));
        shard.push(Arrival { sequence_number: sequence_number.to_owned(), at });
    }

    /// When this record arrived.
    pub(super) fn arrived(&self, stream: &str, shard: &str, sequence_number: &str) -> Option<Millis> {
        let shard = self.shard(stream, shard);
        // Numbers are decimal: of two, the longer is the larger.
        let order = |number: &str| number.len().cmp(&sequence_number.len()).then_with(|| number.cmp(sequence_number));
        let found = shard.binary_search_by(|arrival| order(&arrival.sequence_number));
        found.ok().map(|index| shard[index].at)
    }

    /// The first record that arrived at this moment or later.
    pub(super) fn first_since(&self, stream: &str, shard: &str, at: Millis) -> Option<&str> {
        let shard = self.shard(stream, shard);
        let first = shard.partition_point(|arrival| arrival.at < at);
        shard.get(first).map(|arrival| arrival.sequence_number.as_str())
    }

    /// The newest record.
    pub(super) fn newest(&self, stream: &str, shard: &str) -> Option<&str> {
        self.shard(stream, shard).last().map(|arrival| arrival.sequence_number.as_str())
    }

    fn shard(&self, stream: &str, shard: &str) -> &[Arrival] {
        self.shards.get(&(stream.to_owned(), shard.to_owned())).map_or(&[], Vec::as_slice)
    }
}
