//! The state of one shard, and its lock.

use std::sync::{Arc, Mutex, atomic::AtomicUsize};

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
    util::{clock::BothClocks, mutex::lock},
};

/// See [the module](crate::state::shard).
#[derive(Debug)]
pub(crate) struct Shard {
    pub(crate) context: Arc<SubscriptionContext>,
    pub(crate) id: ShardId,
    /// The bytes of its pages.
    pub(crate) bytes_held: Arc<AtomicUsize>,
    inner: Mutex<ShardInner>,
    /// Notified whenever a record may become deliverable, and when the lease was renewed or is over.
    pub(super) room: Notify,
}

/// The state under the lock.
#[derive(Debug)]
pub(super) struct ShardInner {
    pub(super) term: Option<LeaseTerm>,
    /// Another instance that holds the shard, and its epoch.
    pub(super) elsewhere: Option<(Arc<str>, u64)>,
    pub(super) service: ServiceStatus,
    pub(super) tracker: Tracker,
    /// The rest of a page: the shard reached its bound while the page was being delivered.
    pub(super) aside: Option<Page>,
    /// Since when the bound has blocked deliveries, and whether that was logged.
    pub(super) full: Option<(Instant, bool)>,
    pub(super) first_opening: Option<FirstOpening>,
    /// This subscription has stored the end of the shard.
    pub(super) ended_here: bool,
    /// The children that the last page named.
    pub(super) children: Vec<ListedShard>,
    /// The last reader gave up, so the shard is taken again only after a listing.
    pub(super) gave_up: bool,
    pub(super) counts: ShardCounts,
}

/// What the service said last about the shard.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ServiceStatus {
    /// The shard accepts no more records, so it has an end.
    pub(super) is_closed: bool,
    /// The shard does not exist.
    pub(super) is_not_found: bool,
}

/// Where the shard was opened first. A later reader starts there if the lease row shows no progress since (R10).
#[derive(Debug)]
pub(super) struct FirstOpening {
    pub(super) origin: Origin,
    /// The checkpoint in the row at that time. A forced start overrides it, so it says nothing about this opening.
    pub(super) checkpoint_before: Option<Checkpoint>,
    /// A checkpoint was stored since.
    pub(super) has_progress: bool,
}

/// The counters behind [`ShardStats`](crate::ShardStats).
#[derive(Debug, Default)]
pub(crate) struct ShardCounts {
    pub(crate) reads: u64,
    pub(crate) throttles: u64,
    pub(crate) expired_iterators: u64,
    pub(crate) redeliveries: u64,
    pub(crate) spent: u64,
    pub(crate) rejected: u64,
    pub(crate) dead_letters: u64,
    pub(crate) behind: Option<Duration>,
    /// The checkpoint in the lease row and since when, as far as this process knows.
    pub(crate) checkpoint: Option<(Checkpoint, Instant)>,
    pub(crate) last_error: Option<KinesisError>,
}

/// One opening of the shard, from the take of its lease or a seek on.
#[derive(Clone, Debug)]
pub(crate) struct ShardOpening {
    pub(crate) generation: u64,
    pub(crate) epoch: u64,
    /// Cancelled when the opening is over.
    pub(crate) stop: CancellationToken,
}

/// The generation is over: work for it has no effect any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GenerationOver;

impl Shard {
    pub(crate) fn new(context: Arc<SubscriptionContext>, id: ShardId) -> Self {
        let inner = ShardInner {
            term: None,
            elsewhere: None,
            service: ServiceStatus::default(),
            tracker: Tracker::new(),
            aside: None,
            full: None,
            first_opening: None,
            ended_here: false,
            children: Vec::new(),
            gave_up: false,
            counts: ShardCounts::default(),
        };
        Self { context, id, bytes_held: Arc::default(), inner: Mutex::new(inner), room: Notify::new() }
    }

    pub(super) fn write<T>(&self, step: impl FnOnce(&mut ShardInner) -> T) -> T {
        step(&mut lock(&self.inner))
    }

    /// Checks whether the host was suspended. If so, the lease has less time left than it seems, and is renewed at
    /// once. `now` was read just before.
    pub(super) fn notice_suspension(&self, inner: &mut ShardInner, now: Instant) {
        let Some(term) = &mut inner.term else { return };
        if term.notice_suspension(BothClocks::at(now)) {
            self.context.wakeups.wake_renewer(&self.id);
        }
    }

    /// Like [`write`](Self::write), for steps after which the renewer may have to do something at once.
    pub(super) fn write_and_wake<T>(&self, step: impl FnOnce(&mut ShardInner) -> T) -> T {
        let mut inner = lock(&self.inner);
        let result = step(&mut inner);
        let is_urgent = inner.term.as_ref().is_some_and(|term| term.is_urgent(&inner.tracker));
        drop(inner);
        if is_urgent {
            self.context.wakeups.wake_renewer(&self.id);
        }
        result
    }
}

impl ShardInner {
    /// The lease term, if this generation is the current one.
    pub(super) fn current(&mut self, generation: u64) -> Option<&mut LeaseTerm> {
        if generation == self.tracker.generation() { self.term.as_mut() } else { None }
    }

    /// Whether records of this generation may still be delivered, now or later.
    pub(super) fn delivers(&self, generation: u64) -> bool {
        generation == self.tracker.generation() && self.term.as_ref().is_some_and(|term| !term.is_leaving())
    }

    /// Whether the bounds and the lease allow one more delivery.
    pub(super) fn has_room(&self, now: Instant, max_in_flight: usize) -> bool {
        self.tracker.has_room(max_in_flight) && self.term.as_ref().is_some_and(|term| term.is_valid(now))
    }
}
