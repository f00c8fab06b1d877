//! The books of one shard, for as long as the subscription lives: who holds it, what was read, handed out, settled and
//! stored. Everybody who works on the shard writes here, each through a view of its own:
//!
//! - [`reading`]: the reader and its pages,
//! - [`hands`]: the subscription and the deliveries it gave out,
//! - [`desk`]: the coordinator, which opens the books, and the keeper, which pays what they owe to the lease store.
//!
//! Each step is short and under one lock; nothing waits while it holds it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, atomic::AtomicUsize},
};

use tokio::{
    sync::Notify,
    time::{Duration, Instant},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::position::{Checkpoint, Origin},
    error::KinesisError,
    kinesis::ListedShard,
    state::{context::SubscriptionContext, page::Page, shard::lease_term::LeaseTerm, tracker::Tracker},
    types::id::ShardId,
    util::mutex::lock,
};

mod consumer_side;
mod lease_term;
mod reader_side;
mod store_side;

pub(crate) use crate::state::shard::{
    consumer_side::{Back, Committing, HandOut},
    lease_term::{GRAIN, StoreOp, TermProgress},
    store_side::InFlightOp,
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) context: Arc<SubscriptionContext>,
    pub(crate) id: ShardId,
    /// The weight of its pages.
    pub(crate) bytes_held: Arc<AtomicUsize>,
    state: Mutex<ShardRecord>,
    /// Told whenever a record may become free to be handed out, and when the lease was renewed or is over.
    room: Notify,
}

#[derive(Debug)]
struct ShardRecord {
    term: Option<LeaseTerm>,
    /// Another instance that holds the shard, and its epoch.
    elsewhere: Option<(Arc<str>, u64)>,
    said: Said,
    tracker: Tracker,
    /// The rest of a page whose shard came to its bound while it was handed out.
    aside: Option<Page>,
    /// Since when nothing can be handed out because of the bound, and whether that was said.
    full: Option<(Instant, bool)>,
    began: Option<Began>,
    /// Its end was stored by this subscription.
    ended_here: bool,
    /// What the end told about its children.
    children: Vec<ListedShard>,
    /// Its last reader gave up, so that it is taken again only after a listing.
    gave_up: bool,
    counts: ShardCounts,
}

/// What the service said last about the shard.
#[derive(Clone, Copy, Debug, Default)]
struct Said {
    /// It takes no more records, so that it has an end.
    closed: bool,
    /// There is no such shard.
    denied: bool,
}

/// How the shard was opened first, for a reader that has nothing else to go by (R10).
#[derive(Debug)]
struct Began {
    origin: Origin,
    /// What its row held then. A forced start goes before it, so it says nothing about this opening.
    over: Option<Checkpoint>,
    /// Something was settled and stored since.
    moved: bool,
}

/// What [`ShardStats`](crate::ShardStats) counts.
#[derive(Debug, Default)]
pub(crate) struct ShardCounts {
    pub(crate) reads: u64,
    pub(crate) throttles: u64,
    pub(crate) redeliveries: u64,
    pub(crate) spent: u64,
    pub(crate) dead_letters: u64,
    pub(crate) behind: Option<Duration>,
    /// The place that the lease row holds and since when, as far as this process knows.
    pub(crate) checkpoint: Option<(Checkpoint, Instant)>,
    pub(crate) last_error: Option<KinesisError>,
}

/// An opening of the shard, from the take of its lease on.
#[derive(Clone, Debug)]
pub(crate) struct Opening {
    pub(crate) generation: u64,
    pub(crate) epoch: u64,
    /// Cancelled when it is over.
    pub(crate) stop: CancellationToken,
}

/// The opening of the shard is over: whatever was being done for it has no purpose any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Over;

impl Shard {
    pub(crate) fn new(context: Arc<SubscriptionContext>, id: ShardId) -> Self {
        let state = ShardRecord {
            term: None,
            elsewhere: None,
            said: Said::default(),
            tracker: Tracker::new(),
            aside: None,
            full: None,
            began: None,
            ended_here: false,
            children: Vec::new(),
            gave_up: false,
            counts: ShardCounts::default(),
        };
        Self { context, id, bytes_held: Arc::default(), state: Mutex::new(state), room: Notify::new() }
    }

    fn write<T>(&self, step: impl FnOnce(&mut ShardRecord) -> T) -> T {
        step(&mut lock(&self.state))
    }

    /// As [`write`](Self::write), for steps that may give the keeper something to do at once.
    fn write_and_ring<T>(&self, step: impl FnOnce(&mut ShardRecord) -> T) -> T {
        let mut state = lock(&self.state);
        let result = step(&mut state);
        let urgent = state.term.as_ref().is_some_and(|term| term.is_urgent(&state.tracker));
        drop(state);
        if urgent {
            self.context.wakeups.ring(&self.id);
        }
        result
    }
}

impl ShardRecord {
    /// The tenure, if this opening of the shard is still the current one.
    fn current(&mut self, generation: u64) -> Option<&mut LeaseTerm> {
        if generation == self.tracker.generation() { self.term.as_mut() } else { None }
    }

    /// Whether records of this opening of the shard may still be handed out, now or later.
    fn goes_on(&self, generation: u64) -> bool {
        generation == self.tracker.generation() && self.term.as_ref().is_some_and(|term| !term.is_leaving())
    }

    /// Whether the next record may be handed out, apart from whose turn it is.
    fn has_room(&self, now: Instant, max_in_flight: usize) -> bool {
        self.tracker.has_room(max_in_flight) && self.term.as_ref().is_some_and(|term| term.is_valid(now))
    }
}

/// The shards of a subscription, by shard.
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

    pub(crate) fn all(&self) -> Vec<Arc<Shard>> {
        lock(&self.0).values().map(Arc::clone).collect()
    }
}
