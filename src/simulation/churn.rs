//! Changes to a stream while it is read: records arrive, shards split and merge, listings lag, and records that were
//! read reach the end of their retention. Each change goes to both the model and the [`Oracle`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

use tokio::time::Duration;

use kinesis_stream_support::Rng;

use super::{
    clock::Clock,
    kinesis::{Kinesis, OnTrimmed},
};
use crate::{
    simulation::{
        harness::{millis, seconds},
        oracle::Oracle,
    },
    util::mutex::lock,
};

/// How long after its end was stored a shard stays listed, in milliseconds. Listings lag by less.
const KEPT: u64 = 20_000;

/// Changes the stream and tells the oracle.
pub(crate) struct Churn {
    pub(crate) kinesis: Arc<Kinesis>,
    oracle: Arc<Mutex<Oracle>>,
    clock: Clock,
    /// The shards that listings hide, each with the time until which they hide it. A shard is hidden only once, and for
    /// less than the time after which it would count as gone.
    hidden: BTreeMap<String, u64>,
    /// The shards whose stored end the churn has seen, and the shards that left the stream.
    finished: BTreeMap<String, u64>,
    forgotten: BTreeSet<String>,
}

impl Churn {
    pub(crate) fn new(kinesis: &Arc<Kinesis>, oracle: &Arc<Mutex<Oracle>>, clock: Clock, rng: &mut Rng) -> Self {
        kinesis.list_by(1 + rng.index(8));
        // A trimmed position that the service accepts is noticed after a minute of empty pages, so iterators live
        // longer.
        let (lifetime, trimmed) = *rng.pick(&[
            (millis(900), OnTrimmed::Reject),
            (seconds(4), OnTrimmed::Land),
            (seconds(300), OnTrimmed::Reject),
            (seconds(300), OnTrimmed::Land),
            (seconds(300), OnTrimmed::Stick),
            (seconds(70), OnTrimmed::Stick),
        ]);
        kinesis.iterators_live(lifetime);
        kinesis.keeps(Duration::from_hours(24), trimmed);
        if rng.one_in(2) {
            kinesis.name_children();
        }
        Self {
            kinesis: Arc::clone(kinesis),
            oracle: Arc::clone(oracle),
            clock,
            hidden: BTreeMap::new(),
            finished: BTreeMap::new(),
            forgotten: BTreeSet::new(),
        }
    }

    /// Puts a few records with random keys.
    pub(crate) fn put(&self, rng: &mut Rng) {
        for _ in 0..rng.index(30) {
            self.put_one(rng);
        }
    }

    /// Puts a record with a random key.
    pub(crate) fn put_one(&self, rng: &mut Rng) {
        let shard = lock(&self.oracle).put(rng);
        self.kinesis.put(&shard, 1);
    }

    pub(crate) fn reshard(&mut self, rng: &mut Rng) {
        let open = lock(&self.oracle).open_shards();
        let (parent, other) = (rng.pick(&open).clone(), rng.pick(&open).clone());
        let [low, high] = [0, 1].map(|offset| lock(&self.oracle).new_shard(offset));
        if open.len() < 6 && rng.one_in(2) {
            self.kinesis.split(&parent, [&low, &high]);
            lock(&self.oracle).reshard(&[parent], &[low.clone(), high]);
        } else if parent != other {
            self.kinesis.merge([&parent, &other], &low);
            lock(&self.oracle).reshard(&[parent, other], std::slice::from_ref(&low));
        } else {
            return;
        }
        if rng.one_in(2) {
            self.hide(&low, rng);
        }
    }

    /// Hides one of the open shards from listings for a while.
    pub(crate) fn hide_any(&mut self, rng: &mut Rng) {
        let open = lock(&self.oracle).open_shards();
        let shard = rng.pick(&open).clone();
        self.hide(&shard, rng);
    }

    fn hide(&mut self, shard: &str, rng: &mut Rng) {
        if !self.hidden.contains_key(shard) {
            self.hidden.insert(shard.to_owned(), self.clock.millis() + 1 + rng.below(3_000));
            self.kinesis.hide(shard);
        }
    }

    /// Shows the hidden shards whose time is over.
    pub(crate) fn show_due(&self) {
        let now = self.clock.millis();
        self.hidden.iter().filter(|(_, until)| **until <= now).for_each(|(shard, _)| self.kinesis.show(shard));
    }

    pub(crate) fn show_all(&self) {
        self.kinesis.show_all();
    }

    /// Shows the hidden shards that nobody has read. If the first listing lacks a shard that has no lease row either,
    /// no instance could ever know about it.
    pub(crate) fn show_unread(&self) {
        self.hidden
            .keys()
            .filter(|shard| !lock(&self.oracle).is_known(shard))
            .for_each(|shard| self.kinesis.show(shard));
    }

    /// Ends the retention of records and shards that were read.
    pub(crate) fn trim(&mut self, rng: &mut Rng) {
        let open = lock(&self.oracle).open_shards();
        let shard = rng.pick(&open).clone();
        let more = lock(&self.oracle).trim(&shard);
        self.kinesis.trim(&shard, more);
        let now = self.clock.millis();
        for shard in lock(&self.oracle).finished() {
            self.finished.entry(shard).or_insert(now);
        }
        let old = self.finished.iter().filter(|(_, since)| now >= **since + KEPT);
        if let Some(oldest) = old.map(|(shard, _)| shard.clone()).find(|shard| self.forgotten.insert(shard.clone())) {
            self.kinesis.forget(&oldest);
        }
    }
}
