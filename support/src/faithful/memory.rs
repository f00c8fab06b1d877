//! Times that the emulator does not keep: stream creation and record arrival, in milliseconds.

use std::collections::HashMap;

/// Milliseconds since the Unix epoch.
pub(super) type Millis = u64;

/// The creation time of every stream and the arrival time of every record.
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
    /// Adds a stream. Forgets an older stream of that name; the two creation times differ.
    pub(super) fn create(&mut self, stream: &str, at: Millis) {
        self.shards.retain(|(of, _), _| of != stream);
        let before = self.created.get(stream).copied();
        self.created.insert(stream.to_owned(), before.map_or(at, |before| at.max(before + 1)));
    }

    /// The creation time of this stream.
    pub(super) fn created(&self, stream: &str) -> Option<Millis> {
        self.created.get(stream).copied()
    }

    /// Adds the newest record of a shard. Arrival times never decrease within a shard.
    pub(super) fn arrive(&mut self, stream: &str, shard: &str, sequence_number: &str, at: Millis) {
        let shard = self.shards.entry((stream.to_owned(), shard.to_owned())).or_default();
        let at = shard.last().map_or(at, |last| last.at.max(at));
        shard.push(Arrival { sequence_number: sequence_number.to_owned(), at });
    }

    /// The arrival time of this record.
    pub(super) fn arrived(&self, stream: &str, shard: &str, sequence_number: &str) -> Option<Millis> {
        let shard = self.shard(stream, shard);
        // The numbers are decimal: the longer of two is the larger.
        let order = |number: &str| number.len().cmp(&sequence_number.len()).then_with(|| number.cmp(sequence_number));
        let found = shard.binary_search_by(|arrival| order(&arrival.sequence_number));
        found.ok().map(|index| shard[index].at)
    }

    /// The first record that arrived at this time or later.
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
