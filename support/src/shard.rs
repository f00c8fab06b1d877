//! A shard, as a listing describes it.

use aws_sdk_kinesis::types;

/// A shard of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    /// Its id.
    pub id: String,
    /// Its parent shards: none, one (after a split) or two (after a merge).
    pub parents: Vec<String>,
    /// Whether it is closed to new records.
    pub closed: bool,
    /// The first and the last hash key of its range.
    pub hash_keys: (u128, u128),
}

impl Shard {
    /// The first hash key of its upper half.
    pub(crate) fn middle(&self) -> u128 {
        let (first, last) = self.hash_keys;
        first + (last - first) / 2 + 1
    }
}

impl From<types::Shard> for Shard {
    fn from(shard: types::Shard) -> Self {
        let parents = [shard.parent_shard_id, shard.adjacent_parent_shard_id].into_iter().flatten().collect();
        let closed = shard.sequence_number_range.is_some_and(|range| range.ending_sequence_number.is_some());
        let hash_key = |text: String| text.parse().unwrap_or_default();
        let hash_keys = shard
            .hash_key_range
            .map(|range| (hash_key(range.starting_hash_key), hash_key(range.ending_hash_key)))
            .unwrap_or_default();
        Self { id: shard.shard_id, parents, closed, hash_keys }
    }
}
