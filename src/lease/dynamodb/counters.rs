//! The counter of each row that is held through this store, as the last response showed it.
//!
//! Each write of a holder is conditional on it, so an abandoned write that arrives late is refused.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use crate::{
    lease::{Held, LeaseKey},
    util::mutex::lock,
};

/// The known counters: at most one for each row.
#[derive(Debug, Default)]
pub(super) struct Counters(Mutex<HashMap<LeaseKey, Known>>);

#[derive(Debug)]
struct Known {
    owner: Arc<str>,
    epoch: u64,
    counter: u64,
}

impl Known {
    fn is_of(&self, held: &Held) -> bool {
        self.owner == held.owner && self.epoch == held.epoch
    }
}

impl Counters {
    /// The counter, if it is known for this holder and epoch.
    pub(super) fn of(&self, held: &Held) -> Option<u64> {
        lock(&self.0).get(&held.key).filter(|known| known.is_of(held)).map(|known| known.counter)
    }

    /// A lease was taken. This replaces any older entry.
    pub(super) fn taken(&self, held: &Held, counter: u64) {
        let known = Known { owner: Arc::clone(&held.owner), epoch: held.epoch, counter };
        lock(&self.0).insert(held.key.clone(), known);
    }

    /// The row showed this counter. An entry of a later epoch stays.
    pub(super) fn saw(&self, held: &Held, counter: u64) {
        if lock(&self.0).get(&held.key).is_none_or(|known| known.is_of(held) || known.epoch < held.epoch) {
            self.taken(held, counter);
        }
    }

    /// The lease is no longer held.
    pub(super) fn forget(&self, held: &Held) {
        let mut all = lock(&self.0);
        if all.get(&held.key).is_some_and(|known| known.is_of(held)) {
            all.remove(&held.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(owner: &str, epoch: u64) -> Held {
        let key = LeaseKey { consumer: "c".into(), stream: "s".into(), shard: "x".into() };
        Held { key, owner: owner.into(), epoch }
    }

    #[test]
    fn the_counter_is_that_of_the_last_epoch() {
        let counters = Counters::default();
        let (first, second) = (held("a", 1), held("b", 2));
        assert_eq!(counters.of(&first), None);
        counters.taken(&first, 5);
        counters.saw(&first, 6);
        assert_eq!((counters.of(&first), counters.of(&second)), (Some(6), None));
        counters.taken(&second, 7);
        counters.saw(&first, 9);
        counters.forget(&first);
        assert_eq!((counters.of(&first), counters.of(&second)), (None, Some(7)));
        counters.forget(&second);
        assert_eq!(counters.of(&second), None);
        counters.saw(&second, 8);
        assert_eq!(counters.of(&second), Some(8));
    }

    #[test]
    fn a_row_that_was_deleted_and_made_again_starts_over() {
        let counters = Counters::default();
        counters.taken(&held("a", 4), 50);
        counters.taken(&held("a", 1), 1);
        assert_eq!(counters.of(&held("a", 1)), Some(1));
    }
}
