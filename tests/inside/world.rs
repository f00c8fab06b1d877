//! What is true of a stream and its consumers, kept by an all-seeing observer who notes every violation.
//!
//! - Every record arrives, and those of one key arrive first in the order in which they were put.
//! - A shard is read when its parents are read and settled, and from its checkpoint on without a gap.
//! - A record comes again when it was given back, or under a new lease whose checkpoint did not cover it. Nothing else
//!   comes twice.
//! - A checkpoint never moves back and never passes a record that is not settled.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex},
};

use futures::FutureExt;

use crate::{
    id::ShardId,
    lease::{Held, Lease, LeaseKey, LeaseStore, MemoryLeaseStore, Seen, StoreFuture, Take, Write},
    lock::lock,
    position::Checkpoint,
};

/// A record by its shard and its place in it.
pub(crate) type Which = (String, usize);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct World {
    books: BTreeMap<String, Book>,
    keys: Vec<Key>,
    violations: Vec<String>,
    /// Everything that happened, as one number.
    story: DefaultHasher,
    pub(crate) counts: Counts,
    /// Nobody gives anything back any more.
    pub(crate) is_calm: bool,
}

/// How much happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) records: usize,
    pub(crate) deliveries: usize,
    /// Under a new lease.
    pub(crate) repeats: usize,
    /// After having been given back.
    pub(crate) redeliveries: usize,
    pub(crate) takes: usize,
    pub(crate) writes: usize,
    pub(crate) shards: usize,
    pub(crate) swept: usize,
}

impl std::ops::Add for Counts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            records: self.records + other.records,
            deliveries: self.deliveries + other.deliveries,
            repeats: self.repeats + other.repeats,
            redeliveries: self.redeliveries + other.redeliveries,
            takes: self.takes + other.takes,
            writes: self.writes + other.writes,
            shards: self.shards + other.shards,
            swept: self.swept + other.swept,
        }
    }
}

/// One shard.
#[derive(Debug, Default)]
struct Book {
    parents: Vec<String>,
    closed: bool,
    /// The key of each record and its place among those of its key.
    records: Vec<(usize, usize)>,
    settled: BTreeSet<usize>,
    delivered: usize,
    /// What the row covers, and whether it holds the end.
    covered: usize,
    ended: bool,
    swept: bool,
    epochs: BTreeMap<u64, Epoch>,
}

/// One holding of a lease.
#[derive(Debug)]
struct Epoch {
    /// The first record that was not covered when the lease was taken.
    start: usize,
    /// The next record to be delivered.
    next: usize,
    /// How often each record that is not settled was delivered, and whether it was given back.
    open: BTreeMap<usize, (u32, bool)>,
    /// The end was stored before.
    ended: bool,
}

#[derive(Debug)]
struct Key {
    shard: String,
    written: usize,
    delivered: usize,
}

impl World {
    /// A stream of so many keys, which fall into these shards one after the other.
    pub(crate) fn new(shards: &[&str], keys: usize) -> Self {
        let key = |n: usize| Key { shard: shards[n % shards.len()].to_owned(), written: 0, delivered: 0 };
        Self {
            books: shards.iter().map(|shard| ((*shard).to_owned(), Book::default())).collect(),
            keys: (0..keys).map(key).collect(),
            counts: Counts { shards: shards.len(), ..Counts::default() },
            ..Self::default()
        }
    }

    /// A record of this key is put. The shard into which it goes.
    pub(crate) fn put(&mut self, key: usize) -> String {
        let Key { shard, written, .. } = &mut self.keys[key];
        self.books.get_mut(shard).unwrap().records.push((key, *written));
        *written += 1;
        self.counts.records += 1;
        shard.clone()
    }

    /// Whether somebody ever read this shard.
    pub(crate) fn is_known(&self, shard: &str) -> bool {
        !self.books[shard].epochs.is_empty()
    }

    pub(crate) fn open_shards(&self) -> Vec<String> {
        self.books.iter().filter(|(_, book)| !book.closed).map(|(shard, _)| shard.clone()).collect()
    }

    /// A name for a shard that is to be.
    pub(crate) fn new_shard(&self, offset: usize) -> String {
        format!("s{}.", self.books.len() + offset)
    }

    /// These shards are closed, and their keys fall into those.
    pub(crate) fn reshard(&mut self, parents: &[String], children: &[String]) {
        for parent in parents {
            self.books.get_mut(parent).unwrap().closed = true;
        }
        for child in children {
            self.books.insert(child.clone(), Book { parents: parents.to_vec(), ..Book::default() });
        }
        for (n, key) in self.keys.iter_mut().enumerate().filter(|(_, key)| parents.contains(&key.shard)) {
            key.shard = children[n / 2 % children.len()].clone();
        }
        self.counts.shards += children.len();
    }

    /// Closed shards whose end is stored, and whose parents are gone already if they can be.
    pub(crate) fn finished(&self) -> Vec<String> {
        self.books.iter().filter(|(_, book)| book.ended).map(|(shard, _)| shard.clone()).collect()
    }

    /// What the row of a shard covers: so many records may be trimmed.
    pub(crate) fn covered(&self, shard: &str) -> usize {
        self.books[shard].covered
    }

    /// A record is delivered.
    pub(crate) fn delivered(&mut self, (shard, index): &Which, epoch: u64, attempt: u32, at: u128) {
        (at, shard, index, epoch, attempt).hash(&mut self.story);
        let what = format!("{shard}{index}, epoch {epoch}, attempt {attempt}, at {at} ms");
        self.counts.deliveries += 1;
        for parent in &self.books[shard].parents {
            let parent_book = &self.books[parent];
            if parent_book.settled.len() < parent_book.records.len() {
                self.violations.push(format!("{what}: parent {parent} is not settled"));
            }
        }
        let book = self.books.get_mut(shard).unwrap();
        let first_time = *index == book.delivered;
        if *index > book.delivered {
            self.violations.push(format!("{what}: after {} records of the shard", book.delivered));
        }
        if first_time {
            book.delivered += 1;
            let (key, place) = book.records[*index];
            if self.keys[key].delivered != place {
                let delivered = self.keys[key].delivered;
                self.violations.push(format!("{what}: it is number {place} of key {key}, after {delivered}"));
            }
            self.keys[key].delivered += 1;
        }
        if book.epochs.last_key_value().is_some_and(|(newest, current)| *newest > epoch && current.next > current.start)
        {
            self.violations.push(format!("{what}: a newer epoch has begun to deliver"));
        }
        let Some(current) = book.epochs.get_mut(&epoch) else {
            return self.violations.push(format!("{what}: no such lease"));
        };
        if attempt == 1 {
            self.counts.repeats += usize::from(!first_time);
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

    /// A record is about to be given back.
    pub(crate) fn given_back(&mut self, (shard, index): &Which, epoch: u64) {
        let epoch = self.books.get_mut(shard).unwrap().epochs.get_mut(&epoch).unwrap();
        epoch.open.get_mut(index).unwrap().1 = true;
    }

    /// A record is about to be settled.
    pub(crate) fn settled(&mut self, (shard, index): &Which, epoch: u64) {
        let book = self.books.get_mut(shard).unwrap();
        book.settled.insert(*index);
        book.epochs.get_mut(&epoch).unwrap().open.remove(index);
    }

    fn taken(&mut self, lease: &Lease) {
        let shard = lease.key.shard.as_str();
        (shard, lease.epoch).hash(&mut self.story);
        self.counts.takes += 1;
        let book = self.books.get_mut(shard).unwrap();
        if book.swept {
            self.violations.push(format!("{shard} is taken, epoch {}, although its row was removed", lease.epoch));
        }
        let start = book.covered;
        book.epochs.insert(lease.epoch, Epoch { start, next: start, open: BTreeMap::new(), ended: lease.is_ended() });
    }

    fn stored(&mut self, held: &Held, checkpoint: &Checkpoint) {
        let shard = held.key.shard.as_str();
        let what = format!("{shard}, epoch {}: {checkpoint}", held.epoch);
        what.hash(&mut self.story);
        self.counts.writes += 1;
        let book = self.books.get_mut(shard).unwrap();
        let place = |number: &str| number[shard.len()..].parse::<usize>().unwrap();
        let upto = match checkpoint {
            Checkpoint::Since(_) => 0,
            Checkpoint::At(number) => place(number.as_str()),
            Checkpoint::After(number) => place(number.as_str()) + 1,
            Checkpoint::ShardEnd => book.records.len(),
        };
        let epoch = &book.epochs[&held.epoch];
        let settled_upto = epoch.open.keys().next().copied().unwrap_or(epoch.next);
        if upto > settled_upto {
            self.violations.push(format!("{what} passes {settled_upto}, which is not settled"));
        }
        if upto < book.covered || book.ended && *checkpoint != Checkpoint::ShardEnd {
            self.violations.push(format!("{what} moves back from {}, ended: {}", book.covered, book.ended));
        }
        if *checkpoint == Checkpoint::ShardEnd && !book.closed {
            self.violations.push(format!("{what}: the shard is open"));
        }
        book.covered = upto;
        book.ended |= *checkpoint == Checkpoint::ShardEnd;
    }

    fn removed(&mut self, key: &LeaseKey) {
        let shard = key.shard.as_str();
        shard.hash(&mut self.story);
        self.counts.swept += 1;
        let children = self.books.values().filter(|book| book.parents.iter().any(|parent| parent == shard));
        let unread = children.filter(|child| child.epochs.is_empty()).count();
        let book = self.books.get_mut(shard).unwrap();
        if !book.ended || unread > 0 {
            self.violations.push(format!("the row of {shard} is removed, ended: {}, unread: {unread}", book.ended));
        }
        book.swept = true;
    }

    /// Notes what else is wrong.
    pub(crate) fn violation(&mut self, what: String) {
        self.violations.push(what);
    }

    pub(crate) fn violations(&self) -> &[String] {
        &self.violations
    }

    /// What is left to be done: records to be settled, and rows to show it.
    pub(crate) fn missing(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for (shard, book) in &self.books {
            let (settled, records) = (book.settled.len(), book.records.len());
            if settled < records || book.covered < records || book.closed && !book.ended {
                let (covered, ended) = (book.covered, book.ended);
                missing
                    .push(format!("{shard}: {records} records, {settled} settled, {covered} covered, ended: {ended}"));
            }
        }
        missing
    }

    /// The whole run as one number.
    pub(crate) fn story(&self) -> u64 {
        self.story.finish()
    }
}

/// A lease table that shows the world every write that it applies.
#[derive(Debug)]
pub(crate) struct Watched {
    rows: MemoryLeaseStore,
    world: Arc<Mutex<World>>,
}

impl Watched {
    pub(crate) fn new(world: &Arc<Mutex<World>>) -> Self {
        Self { rows: MemoryLeaseStore::new(), world: Arc::clone(world) }
    }

    fn show<'a, T: Send + 'a>(
        &'a self,
        write: StoreFuture<'a, Write<T>>,
        show: impl FnOnce(&mut World, &T) + Send + 'a,
    ) -> StoreFuture<'a, Write<T>> {
        async move {
            let answer = write.await;
            if let Ok(Write::Applied(applied)) = &answer {
                show(&mut lock(&self.world), applied);
            }
            answer
        }
        .boxed()
    }
}

impl LeaseStore for Watched {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Vec<Lease>> {
        self.rows.leases(consumer, stream)
    }

    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
        self.show(self.rows.take(take), World::taken)
    }

    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.rows.renew(held)
    }

    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
        self.show(self.rows.checkpoint(held, checkpoint), move |world, ()| world.stored(held, checkpoint))
    }

    fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.rows.release(held)
    }

    fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write> {
        self.rows.ask(key, seen, by)
    }

    fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        self.show(self.rows.delete(key, seen), move |world, ()| world.removed(key))
    }
}

/// The record with this number.
pub(crate) fn which(shard: &ShardId, number: &str) -> Which {
    (shard.to_string(), number[shard.as_str().len()..].parse().unwrap())
}
