//! A queue of the records of all shards, from which the records of one shard can be dropped without a look at the
//! others: when every shard ends its generation at once, as at a seek, the work stays linear.

use std::collections::{BTreeMap, BTreeSet};

use crate::types::id::ShardId;

/// What knows its shard and the generation in which it was read.
pub(crate) trait OfShard {
    fn shard(&self) -> &ShardId;
    fn generation(&self) -> u64;
}

/// See the module. `K` is the order of the queue, and each key occurs once.
#[derive(Debug)]
pub(crate) struct ShardQueue<K, V> {
    entries: BTreeMap<K, V>,
    /// The keys of each generation of each shard. No set is empty.
    keys: BTreeMap<(ShardId, u64), BTreeSet<K>>,
}

impl<K, V> Default for ShardQueue<K, V> {
    fn default() -> Self {
        Self { entries: BTreeMap::new(), keys: BTreeMap::new() }
    }
}

impl<K: Ord + Copy, V: OfShard> ShardQueue<K, V> {
    pub(crate) fn insert(&mut self, key: K, value: V) {
        let place = (value.shard().clone(), value.generation());
        self.keys.entry(place).or_default().insert(key);
        self.entries.insert(key, value);
    }

    pub(crate) fn first_key(&self) -> Option<K> {
        self.entries.first_key_value().map(|(key, _)| *key)
    }

    pub(crate) fn pop_first(&mut self) -> Option<V> {
        let (key, value) = self.entries.pop_first()?;
        let place = (value.shard().clone(), value.generation());
        if let Some(keys) = self.keys.get_mut(&place) {
            keys.remove(&key);
            if keys.is_empty() {
                self.keys.remove(&place);
            }
        }
        Some(value)
    }

    /// Removes the records of a shard up to this generation, and returns them in the order of their generations.
    pub(crate) fn remove(&mut self, shard: &ShardId, upto: u64) -> Vec<V> {
        let places: Vec<_> =
            self.keys.range((shard.clone(), 0)..=(shard.clone(), upto)).map(|(at, _)| at.clone()).collect();
        let keys = places.iter().filter_map(|place| self.keys.remove(place)).flatten();
        keys.filter_map(|key| self.entries.remove(&key)).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, cmp::Ordering};

    use proptest::{collection::vec, prelude::*};

    use super::*;

    thread_local! {
        static COMPARED: Cell<usize> = const { Cell::new(0) };
    }

    /// A key that counts how often keys are compared.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Counted(usize);

    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
            Some(self.cmp(other))
        }
    }

    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Waiting {
        shard: ShardId,
        generation: u64,
        number: usize,
    }

    impl OfShard for Waiting {
        fn shard(&self) -> &ShardId {
            &self.shard
        }

        fn generation(&self) -> u64 {
            self.generation
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert { order: u8, shard: usize, generation: u64 },
        Pop,
        Remove { shard: usize, upto: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let (shard, generation) = (0..3_usize, 0..4_u64);
        let insert = (0..9_u8, shard.clone(), generation.clone());
        let insert = insert.prop_map(|(order, shard, generation)| Step::Insert { order, shard, generation });
        let remove = (shard, generation).prop_map(|(shard, upto)| Step::Remove { shard, upto });
        vec(prop_oneof![6 => insert, 2 => Just(Step::Pop), 1 => remove], 0..80)
    }

    /// One map that is searched from end to end.
    #[derive(Default)]
    struct Model(BTreeMap<(u8, usize), Waiting>);

    fn sorted(mut removed: Vec<Waiting>) -> Vec<usize> {
        removed.sort_by_key(|waiting| waiting.number);
        removed.into_iter().map(|waiting| waiting.number).collect()
    }

    proptest! {
        // A7
        #[test]
        fn it_does_what_one_map_does_that_is_searched_from_end_to_end(steps in steps()) {
            let id = |shard: usize| ShardId::from(["a", "b", "aa"][shard]);
            let (mut queue, mut model) = (ShardQueue::default(), Model::default());
            for (number, step) in steps.into_iter().enumerate() {
                match step {
                    Step::Insert { order, shard, generation } => {
                        let waiting = Waiting { shard: id(shard), generation, number };
                        queue.insert((order, number), waiting.clone());
                        model.0.insert((order, number), waiting);
                    }
                    Step::Pop => prop_assert_eq!(queue.pop_first(), model.0.pop_first().map(|(_, waiting)| waiting)),
                    Step::Remove { shard, upto } => {
                        let is_over = |waiting: &Waiting| waiting.shard == id(shard) && waiting.generation <= upto;
                        let over = model.0.extract_if(.., |_, waiting| is_over(waiting)).map(|(_, waiting)| waiting);
                        prop_assert_eq!(sorted(queue.remove(&id(shard), upto)), sorted(over.collect()));
                    }
                }
                prop_assert_eq!(queue.first_key(), model.0.first_key_value().map(|(key, _)| *key));
                prop_assert_eq!(queue.is_empty(), model.0.is_empty());
                let kept: usize = queue.keys.values().map(BTreeSet::len).sum();
                prop_assert_eq!((queue.entries.len(), kept), (model.0.len(), model.0.len()));
                prop_assert!(queue.keys.values().all(|keys| !keys.is_empty()));
            }
        }
    }

    // A7
    #[test]
    fn dropping_the_records_of_one_shard_after_another_looks_at_each_record_once() {
        const SHARDS: usize = 200;
        const RECORDS: usize = 100;
        let ids: Vec<ShardId> = (0..SHARDS).map(|shard| shard.to_string().into()).collect();
        let mut queue = ShardQueue::default();
        for number in 0..SHARDS * RECORDS {
            queue.insert(Counted(number), Waiting { shard: ids[number % SHARDS].clone(), generation: 1, number });
        }
        COMPARED.set(0);
        for id in &ids {
            assert_eq!(queue.remove(id, 1).len(), RECORDS);
        }
        assert!(queue.is_empty());
        // A search in a map of 20,000 entries compares some 30 keys. A look at all records for each shard would make
        // 2,000,000 comparisons.
        assert!(COMPARED.get() < 60 * SHARDS * RECORDS, "{}", COMPARED.get());
    }
}
