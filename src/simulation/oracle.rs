//! An observer that sees everything, keeps the true state of a stream and its consumers, and notes every violation of
//! the invariants:
//!
//! - Every record is delivered. The first deliveries of a key's records follow the order in which they were put.
//! - A shard is read once its parents are read and settled, and from its checkpoint on without a gap.
//! - A record is delivered again only if it was given back, or under a new lease whose checkpoint does not cover it.
//! - A checkpoint never moves back and never passes a record that is not settled. A released lease covers every record
//!   that was settled. A record whose commit returned `Stored` is covered, under one epoch.
//! - Epochs grow by one, and an old epoch writes nothing. An instance takes a lease from another one only after the
//!   lease stood still for its time to live. From then on the old owner delivers nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    mem,
};

use kinesis_stream_support::Rng;

use super::clock::Clock;

use crate::types::{commit::Commit, id::ShardId};

mod counts;
mod lease_writes;
mod recorded_table;

pub(crate) use self::{counts::Counts, recorded_table::RecordedTable};

/// A record: its shard, and its index in the shard.
pub(crate) type RecordRef = (String, usize);

/// How far the clocks of instances may differ, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ClockSkew {
    /// A lease may seem to expire this much too early.
    pub(crate) early: u64,
    /// A holder may believe in its lease for this long after another instance has taken it.
    pub(crate) late: u64,
}

/// The true state of a stream and its consumers.
#[derive(Debug)]
pub(crate) struct Oracle {
    pub(crate) clock: Clock,
    pub(crate) skew: ClockSkew,
    /// How long a lease lives, in milliseconds.
    pub(crate) ttl: u64,
    /// Owner ids under which two instances run.
    pub(crate) duplicate_owners: BTreeSet<String>,
    models: BTreeMap<String, ShardModel>,
    keys: Vec<KeyModel>,
    /// The changes of leases, in words.
    log: Vec<String>,
    violations: Vec<String>,
    /// A hash of everything that happened.
    fingerprint: DefaultHasher,
    pub(crate) counts: Counts,
    /// No worker gives records back any more.
    pub(crate) faults_are_over: bool,
}

/// The true state of one shard.
#[derive(Debug, Default)]
struct ShardModel {
    parents: Vec<String>,
    closed: bool,
    /// The key of each record, and its index among the records of that key.
    records: Vec<(usize, usize)>,
    settled: BTreeSet<usize>,
    /// How many records from the front are settled.
    run: usize,
    delivered: usize,
    /// How many records the checkpoint in the row covers, and whether it is the end.
    covered: usize,
    /// How many records from the front are no longer kept.
    trimmed: usize,
    ended: bool,
    swept: bool,
    owner: Option<String>,
    wanted_by: Option<String>,
    /// When its owner last wrote, in milliseconds.
    alive_at: u64,
    epochs: BTreeMap<u64, Term>,
    /// The epoch under which each record's commit returned `Stored`.
    commits: BTreeMap<usize, u64>,
}

impl ShardModel {
    fn newest(&self) -> u64 {
        self.epochs.last_key_value().map_or(0, |(newest, _)| *newest)
    }
}

/// One holding of a lease.
#[derive(Debug)]
struct Term {
    owner: String,
    taken_at: u64,
    /// The owner asked for the lease, and the former owner released it.
    handed_over: bool,
    /// The next record to be delivered.
    next: usize,
    /// The deliveries that are not settled: how often each record was delivered, and whether it was given back.
    open: BTreeMap<usize, (u32, bool)>,
    /// The end was stored before this epoch.
    ended: bool,
}

#[derive(Debug)]
struct KeyModel {
    shard: String,
    written: usize,
    delivered: usize,
}

impl Term {
    /// The first record that is not settled under this epoch.
    fn settled_upto(&self) -> usize {
        self.open.keys().next().copied().unwrap_or(self.next)
    }
}

impl Oracle {
    /// A stream with this many keys, spread over these shards.
    pub(crate) fn new(clock: Clock, shards: &[&str], keys: usize) -> Self {
        let key = |n: usize| KeyModel { shard: shards[n % shards.len()].to_owned(), written: 0, delivered: 0 };
        Self {
            models: shards.iter().map(|shard| ((*shard).to_owned(), ShardModel::default())).collect(),
            keys: (0..keys).map(key).collect(),
            counts: Counts { shards: shards.len(), ..Counts::default() },
            clock,
            skew: ClockSkew::default(),
            ttl: 10_000,
            duplicate_owners: BTreeSet::new(),
            log: Vec::new(),
            violations: Vec::new(),
            fingerprint: DefaultHasher::new(),
            faults_are_over: false,
        }
    }

    /// Puts a record with a random key. Returns its shard.
    pub(crate) fn put(&mut self, rng: &mut Rng) -> String {
        let key = rng.index(self.keys.len());
        let KeyModel { shard, written, .. } = &mut self.keys[key];
        self.models.get_mut(shard).unwrap().records.push((key, *written));
        *written += 1;
        self.counts.records += 1;
        shard.clone()
    }

    /// Whether an instance ever read this shard.
    pub(crate) fn is_known(&self, shard: &str) -> bool {
        !self.models[shard].epochs.is_empty()
    }

    pub(crate) fn open_shards(&self) -> Vec<String> {
        self.models.iter().filter(|(_, model)| !model.closed).map(|(shard, _)| shard.clone()).collect()
    }

    /// A name for a new shard.
    pub(crate) fn new_shard(&self, offset: usize) -> String {
        format!("s{}.", self.models.len() + offset)
    }

    /// Closes the parents and moves their keys to the children.
    pub(crate) fn reshard(&mut self, parents: &[String], children: &[String]) {
        for parent in parents {
            self.models.get_mut(parent).unwrap().closed = true;
        }
        for child in children {
            self.models.insert(child.clone(), ShardModel { parents: parents.to_vec(), ..ShardModel::default() });
        }
        for (n, key) in self.keys.iter_mut().enumerate().filter(|(_, key)| parents.contains(&key.shard)) {
            key.shard = children[n / 2 % children.len()].clone();
        }
        self.counts.shards += children.len();
    }

    /// The shards whose end is stored.
    pub(crate) fn finished(&self) -> Vec<String> {
        self.models.iter().filter(|(_, model)| model.ended).map(|(shard, _)| shard.clone()).collect()
    }

    /// Ends the retention of the records that the row of a shard covers. Returns how many more these are.
    pub(crate) fn trim(&mut self, shard: &str) -> usize {
        let model = self.models.get_mut(shard).unwrap();
        let before = mem::replace(&mut model.trimmed, model.covered);
        model.covered - before
    }

    /// Notes the delivery of a record.
    pub(crate) fn delivered(&mut self, (shard, index): &RecordRef, epoch: u64, attempt: u32) {
        let at = self.clock.millis();
        (at, shard, index, epoch, attempt).hash(&mut self.fingerprint);
        let what = format!("{shard}{index}, epoch {epoch}, attempt {attempt}, at {at} ms");
        self.counts.deliveries += 1;
        for parent in &self.models[shard].parents {
            let parent_model = &self.models[parent];
            if parent_model.settled.len() < parent_model.records.len() {
                self.violations.push(format!("{what}: parent {parent} is not settled"));
            }
        }
        let model = self.models.get_mut(shard).unwrap();
        let first_time = *index == model.delivered;
        if *index > model.delivered {
            self.violations.push(format!("{what}: after {} records of the shard", model.delivered));
        }
        if first_time {
            model.delivered += 1;
            let (key, place) = model.records[*index];
            if self.keys[key].delivered != place {
                let delivered = self.keys[key].delivered;
                self.violations.push(format!("{what}: it is number {place} of key {key}, after {delivered}"));
            }
            self.keys[key].delivered += 1;
        }
        let mut later = model.epochs.range(epoch..).map(|(_, later)| later);
        let owner = later.next().map(|current| &current.owner);
        if let Some(other) = later.next()
            && (Some(&other.owner) != owner && at > other.taken_at.saturating_add(self.skew.late))
        {
            self.violations.push(format!("{what}: {} has it since {} ms", other.owner, other.taken_at));
        }
        let Some(current) = model.epochs.get_mut(&epoch) else {
            return self.violations.push(format!("{what}: no such lease"));
        };
        if attempt == 1 {
            self.counts.repeats += usize::from(!first_time);
            self.counts.handed_over_twice += usize::from(!first_time && current.handed_over);
            if current.next != *index || current.ended {
                self.violations.push(format!("{what}: {} is next, ended: {}", current.next, current.ended));
            }
            current.next = index + 1;
        } else {
            self.counts.redeliveries += 1;
            if current.open.get(index) != Some(&(attempt - 1, true)) {
                self.violations.push(format!("{what}: it was not given back: {:?}", current.open.get(index)));
            }
        }
        current.open.insert(*index, (attempt, false));
    }

    /// Notes that a record is about to be given back.
    pub(crate) fn given_back(&mut self, (shard, index): &RecordRef, epoch: u64) {
        let epoch = self.models.get_mut(shard).unwrap().epochs.get_mut(&epoch).unwrap();
        epoch.open.get_mut(index).unwrap().1 = true;
    }

    /// Notes that a record is about to be settled.
    pub(crate) fn settled(&mut self, (shard, index): &RecordRef, epoch: u64) {
        let model = self.models.get_mut(shard).unwrap();
        model.settled.insert(*index);
        while model.settled.contains(&model.run) {
            model.run += 1;
        }
        model.epochs.get_mut(&epoch).unwrap().open.remove(index);
    }

    /// Notes the result of a commit.
    pub(crate) fn committed(&mut self, (shard, index): &RecordRef, epoch: u64, commit: Commit) {
        (shard, index, epoch, commit).hash(&mut self.fingerprint);
        if commit != Commit::Stored {
            return;
        }
        let model = self.models.get_mut(shard).unwrap();
        if model.covered <= *index {
            self.violations.push(format!("{shard}{index}, epoch {epoch}: stored, but {} are covered", model.covered));
        }
        if let Some(other) = model.commits.insert(*index, epoch).filter(|other| *other != epoch) {
            self.violations.push(format!("{shard}{index}: stored under epochs {other} and {epoch}"));
        }
    }

    pub(crate) fn is_duplicate(&self, owner: &str) -> bool {
        self.duplicate_owners.contains(owner)
    }

    /// How many shards that are not at their end each instance holds.
    pub(crate) fn shares(&self) -> BTreeMap<&str, usize> {
        let mut shares = BTreeMap::new();
        for owner in self.models.values().filter(|model| !model.ended).filter_map(|model| model.owner.as_deref()) {
            *shares.entry(owner).or_default() += 1;
        }
        shares
    }

    /// The shards that an instance asks for, with that instance.
    pub(crate) fn requests(&self) -> Vec<(&str, &str)> {
        self.models.iter().filter_map(|(shard, model)| Some((shard.as_str(), model.wanted_by.as_deref()?))).collect()
    }

    /// The shards that have an owner, without those at their end, which nobody needs.
    pub(crate) fn owned(&self) -> Vec<(&str, &str)> {
        self.models
            .iter()
            .filter(|(_, model)| !model.ended)
            .filter_map(|(shard, model)| Some((shard.as_str(), model.owner.as_deref()?)))
            .collect()
    }

    /// Adds an entry to the log.
    pub(crate) fn note(&mut self, what: &str) {
        self.log.push(format!("{what} at {} ms", self.clock.millis()));
    }

    /// The last entries of the log.
    pub(crate) fn last_log_entries(&self, count: usize) -> &[String] {
        &self.log[self.log.len().saturating_sub(count)..]
    }

    /// Notes a violation that another part found.
    pub(crate) fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    pub(crate) fn violations(&self) -> &[String] {
        &self.violations
    }

    /// The work that is left: records to settle, and rows to update.
    pub(crate) fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for (shard, model) in &self.models {
            let (settled, records) = (model.settled.len(), model.records.len());
            if settled < records || model.covered < records || model.closed && !model.ended {
                let (covered, ended) = (model.covered, model.ended);
                missing
                    .push(format!("{shard}: {records} records, {settled} settled, {covered} covered, ended: {ended}"));
            }
        }
        missing
    }

    /// A hash of the whole run.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mut fingerprint = self.fingerprint.clone();
        self.log.hash(&mut fingerprint);
        fingerprint.finish()
    }
}

/// The record with this sequence number.
pub(crate) fn record_ref(shard: &ShardId, number: &str) -> RecordRef {
    (shard.to_string(), number[shard.as_str().len()..].parse().unwrap())
}
