//! The coordinator's task: its loop, and its pass over the lease rows.

use std::{
    collections::BTreeSet,
    mem,
    sync::{Arc, Mutex},
};

use futures::{StreamExt, stream};
use tokio::{
    select,
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Duration, Instant, sleep_until},
};
use tracing::Instrument;

use super::{
    listing::finished, opening::SubscriptionOpening, ownership::Ownership, seek::Seek, unconfirmed::Unconfirmed,
};
use crate::{
    config::position::{Plan, Position},
    coordination::{
        balance::OpenRequests,
        expiry::ExpiryWatch,
        shard_list::{RemovedShard, ShardList},
    },
    error::{KinesisError, chain::Chain},
    kinesis::{ListedShard, ServiceTime},
    lease::Lease,
    reading::{read_ahead::Pages, reader::since},
    state::{
        context::{EndsTheSubscription, SubscriptionContext},
        shard::Shards,
    },
    types::id::ShardId,
    util::mutex::lock,
};

/// How many calls on the lease store, or for first iterators, are in flight at once. The service limits both per shard
/// or table, and this number reaches no limit per account.
pub(super) const CALLS_AT_ONCE: usize = 64;

/// The stream as it was when the subscription began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning {
    /// By the service's clock.
    pub(crate) moment: ServiceTime,
    /// When the stream was created.
    pub(crate) created: Option<i64>,
    /// How long the stream keeps records.
    pub(crate) retention: Option<Duration>,
}

/// The state of the task.
pub(super) struct Coordinator {
    pub(super) context: Arc<SubscriptionContext>,
    pub(super) shards: Arc<Shards>,
    pub(super) opened: mpsc::UnboundedSender<Pages>,
    pub(super) seeks: mpsc::UnboundedReceiver<Seek>,
    pub(super) beginning: Beginning,
    pub(super) started_at: Instant,
    /// Where shards open: as the descriptor says, unless the stream turns out to be another one.
    pub(super) plan: Plan,
    pub(super) shard_list: ShardList,
    /// What the first complete listing showed; none before it.
    pub(super) first_listing: Option<Vec<ListedShard>>,
    /// None before shards and rows are known.
    pub(super) opening: Option<SubscriptionOpening>,
    /// The first pass is under way: `subscribe` has not returned yet.
    pub(super) first_pass: bool,
    pub(super) expiry: ExpiryWatch,
    pub(super) ownership: Mutex<Ownership>,
    pub(super) requests: OpenRequests,
    /// Shards that this instance would take if others did not hold them: no other ones are asked for.
    pub(super) would_take: BTreeSet<ShardId>,
    /// Since when shards are owned by nobody because there is no room, and whether that was said.
    pub(super) unowned_since: Option<(Instant, bool)>,
    /// When to read the leases next.
    pub(super) next_pass: Instant,
    /// None while a listing is under way, unless another one is to follow it at once.
    pub(super) next_listing: Option<Instant>,
    pub(super) is_listing: bool,
    /// A listing was made since the leases were read last.
    pub(super) lists: bool,
    /// So many shards were not taken because they were seen too long ago.
    pub(super) stale_sightings: usize,
    /// When the last complete listing was made.
    pub(super) listed_at: Instant,
    /// When the leases were last looked at, or tried to.
    pub(super) leases_read_at: Instant,
    /// Takes without an answer since then.
    pub(super) unconfirmed: Mutex<Vec<Unconfirmed>>,
    /// Shards that are gone, until their rows have told whether that is news.
    pub(super) removed: Vec<RemovedShard>,
    /// A listing that lacks the children of an ended shard is repeated sooner until then.
    pub(super) eager_until: Instant,
}

/// Starts the coordinator. It sends `ready` when the first pass is done.
pub(crate) fn start(
    context: Arc<SubscriptionContext>,
    shards: Arc<Shards>,
    beginning: Beginning,
    (opened, seeks): (mpsc::UnboundedSender<Pages>, mpsc::UnboundedReceiver<Seek>),
    ready: oneshot::Sender<()>,
) -> JoinHandle<()> {
    let now = Instant::now();
    let coordinator = Coordinator {
        plan: context.settings.plan.clone(),
        context,
        shards,
        opened,
        seeks,
        beginning,
        started_at: now,
        shard_list: ShardList::default(),
        first_listing: None,
        opening: None,
        first_pass: true,
        expiry: ExpiryWatch::default(),
        ownership: Mutex::default(),
        requests: OpenRequests::default(),
        would_take: BTreeSet::new(),
        unowned_since: None,
        next_pass: now,
        next_listing: Some(now),
        is_listing: false,
        lists: false,
        stale_sightings: 0,
        listed_at: now,
        leases_read_at: now,
        unconfirmed: Mutex::default(),
        removed: Vec::new(),
        eager_until: now,
    };
    let (stream, consumer) = (&coordinator.context.stream, &coordinator.context.consumer);
    let span = tracing::info_span!("coordinator", %stream, %consumer);
    tokio::spawn(coordinator.run(ready).instrument(span))
}

impl Coordinator {
    async fn run(mut self, ready: oneshot::Sender<()>) {
        let context = Arc::clone(&self.context);
        let _ends = EndsTheSubscription(Arc::clone(&context));
        let mut listing = Some(self.begin_listing());
        select! {
            biased;
            _ = context.lifecycle.closing() => {}
            outcome = finished(&mut listing) => drop(self.apply_listing(outcome)),
        }
        self.pass(self.listed_at).await;
        self.first_pass = false;
        if self.first_listing.is_none() && self.opening.is_none() {
            // Without a listing it is unknown which shards were closed when the subscription began. So none is passed
            // over, and LATEST becomes the time of the start, for children too.
            self.plan.begin_at(&since(self.beginning.moment));
        }
        // It fails only if `subscribe` was cancelled.
        let _ = ready.send(());
        loop {
            let next_listing = self.next_listing.filter(|_| listing.is_none());
            let due = select! {
                biased;
                _ = context.lifecycle.closing() => return self.release_unconfirmed().await,
                Some(seek) = self.seeks.recv() => {
                    self.seek(seek).await;
                    Some(Instant::now())
                }
                () = context.wakeups.list_wanted() => self.list_now(),
                outcome = finished(&mut listing) => self.apply_listing(outcome),
                () = context.wakeups.pass_wanted() => Some(Instant::now()),
                () = sleep_until(next_listing.into_iter().fold(self.next_pass, Instant::min)) => None,
            };
            let now = Instant::now();
            if listing.is_none() && self.next_listing.is_some_and(|at| now >= at) {
                listing = Some(self.begin_listing());
            }
            if let Some(begun) = due.or_else(|| (now >= self.next_pass).then_some(now)) {
                self.pass(begun).await;
            }
        }
    }

    /// A shard ended or was denied, so the shards are listed at once. Returns the time if the next pass should start
    /// now, without waiting for that listing.
    fn list_now(&mut self) -> Option<Instant> {
        let now = Instant::now();
        self.next_listing = Some(now);
        self.eager_until = now + self.context.settings.list_interval;
        self.add_announced_children();
        (!self.misses_children()).then_some(now)
    }

    /// Adds the shards that the last pages of their parents named.
    fn add_announced_children(&mut self) {
        for shard in self.shards.all() {
            self.shard_list.add_children(&shard.take_children(), Instant::now());
        }
    }

    /// Reads the leases and applies them, then sets the time of the next pass.
    async fn pass(&mut self, begun: Instant) {
        if self.context.lifecycle.is_running() {
            self.process_leases(begun).await;
        }
        let settings = &self.context.settings;
        // The next pass is due after a renewal interval, or earlier if a lease expires. That time can be in the past,
        // because takes need time.
        let expires = self.expiry.next_expiry(&self.context.owner, settings.lease_ttl, self.leases_read_at);
        self.next_pass = expires.into_iter().fold(Instant::now() + settings.renew_interval, Instant::min);
    }

    async fn process_leases(&mut self, begun: Instant) {
        self.add_announced_children();
        let context = Arc::clone(&self.context);
        let answer = context.answer(context.store.leases(&context.consumer, &context.stream)).await;
        let now = Instant::now();
        self.leases_read_at = now;
        let rows = match answer {
            Ok(rows) => rows,
            Err(error) => return context.report_store("reading the leases", error),
        };
        let lists = mem::take(&mut self.lists);
        self.forget_unconfirmed();
        self.expiry.observe(&rows, now);
        self.requests.observe(&rows, &context.owner, now);
        if let Some(twins) = self.find_twin(&rows, now) {
            let (stream, shard) = (Arc::clone(&context.stream), twins.key.shard.clone());
            return context.fail(KinesisError::DuplicateOwner {
                stream,
                shard,
                owner: Arc::clone(&context.owner),
                epoch: twins.epoch,
            });
        }
        if self.opening.is_none()
            && let Some(first) = self.first_listing.take()
        {
            // A listing older than the pass says nothing about a row that appeared since.
            let listed_at = if self.listed_at >= begun { self.listed_at } else { now };
            self.open(&first, &rows, listed_at);
        }
        self.leave_removed(&rows);
        self.hand_over(&rows, now);
        let candidates = self.candidates(&rows, lists, now);
        let this = &*self;
        stream::iter(candidates).for_each_concurrent(CALLS_AT_ONCE, |candidate| this.take(candidate)).await;
        let asks = self.ask(&rows, now).await;
        if context.settings.stop_at_tip {
            context.events.finish(!asks && self.is_all_read(&rows, now));
        }
        if lists {
            self.delete_stale_rows(&rows, now).await;
        }
    }

    /// A row that shows that another process runs under this owner id and that this one must yield (E4).
    fn find_twin<'a>(&self, rows: &'a [Lease], now: Instant) -> Option<&'a Lease> {
        let (me, ttl) = (&self.context.owner, self.context.settings.lease_ttl);
        let mut ownership = lock(&self.ownership);
        ownership.adopt(rows, me);
        let in_my_name = || rows.iter().filter(|row| row.owner.as_ref() == Some(me));
        let is_held = |shard_id| self.shards.get(shard_id).is_some_and(|shard| shard.view().is_held());
        if let Some(row) = in_my_name().find(|row| ownership.is_overtaken(row) && is_held(&row.key.shard)) {
            return Some(row);
        }
        ownership.yields_to(
            in_my_name().filter(|row| !self.expiry.is_unchanged_for(&row.key.shard, ttl, now)),
            ttl,
            now,
        )
    }

    /// Decides the opening when shards and rows are known for the first time. Shards that have a row and are not listed
    /// count as missing since `listed_at`.
    fn open(&mut self, first: &[ListedShard], rows: &[Lease], listed_at: Instant) {
        let (own, foreign): (Vec<&Lease>, Vec<&Lease>) = rows.iter().partition(|row| self.is_of_this_stream(row));
        if !foreign.is_empty() {
            self.plan.initial = Some(Position::Horizon);
            let error = KinesisError::StreamRecreated { stream: Arc::clone(&self.context.stream) };
            tracing::warn!(error = %Chain(&error), "ignoring the checkpoints of the old stream");
            self.context.events.error(None, error);
        }
        self.shard_list.add_from_rows(&own, listed_at);
        let opening = SubscriptionOpening::new(&self.plan, first, &self.shard_list, &own);
        let awaited_until = self.started_at + 2 * self.context.settings.lease_ttl;
        self.opening = Some(opening.awaiting(&own, &self.context.owner, awaited_until));
    }

    /// Whether a row belongs to this stream, and not to an older one of its name (H7).
    pub(super) fn is_of_this_stream(&self, row: &Lease) -> bool {
        row.stream_created.zip(self.beginning.created).is_none_or(|(row, stream)| row == stream)
    }
}
