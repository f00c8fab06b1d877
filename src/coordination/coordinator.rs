//! Which shards this instance reads: the task that lists the shards, asks the lineage which are ready, takes their
//! leases, and hands their readers to the subscription.
//!
//! - [`listing`]: which shards there are,
//! - [`gone`]: shards and rows that are no longer part of the stream,
//! - [`opening`]: the shards with which the subscription opens,
//! - [`candidates`]: which leases to take now, and as what,
//! - [`take`]: taking one and starting to read under it,
//! - [`ownership`]: which rows in this instance's own name are its own,
//! - [`unconfirmed`]: takes without an answer,
//! - [`seek`]: moving what is being read to another place,
//! - [`share`]: asking others for theirs, and handing over what others asked for,
//! - [`tip`]: whether everything was read.

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

pub(crate) use self::seek::Seek;
use self::{listing::answer, opening::Opening};
use crate::{
    config::position::{Plan, Position},
    coordination::{
        balance::Requests,
        coordinator::{ownership::Ownership, unconfirmed::Unconfirmed},
        expiry::ExpiryWatch,
        shard_list::{Gone, ShardList},
    },
    error::KinesisError,
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

mod at_tip;
mod candidates;
mod listing;
mod opening;
mod ownership;
mod rebalance;
mod removed;
mod seek;
mod take;
mod unconfirmed;

/// Calls on the lease store, and first iterators fetched, at the same time. Both have limits per shard or table, none per
/// account that this would reach.
const CALLS_AT_ONCE: usize = 64;

/// The stream as it was when the subscription began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning {
    /// By the service's clock.
    pub(crate) moment: ServiceTime,
    /// When the stream was created.
    pub(crate) created: Option<i64>,
    /// How long it keeps records.
    pub(crate) retention: Option<Duration>,
}

/// See the module.
struct Coordinator {
    context: Arc<SubscriptionContext>,
    shards: Arc<Shards>,
    opened: mpsc::UnboundedSender<Pages>,
    seeks: mpsc::UnboundedReceiver<Seek>,
    beginning: Beginning,
    begun_at: Instant,
    /// Where shards open: as the descriptor says, until the stream turns out to be another one.
    plan: Plan,
    shard_list: ShardList,
    /// What the first complete listing showed; none before it.
    first_listing: Option<Vec<ListedShard>>,
    /// None before shards and rows are known.
    opening: Option<Opening>,
    /// The first pass is under way: `subscribe` has not returned yet.
    first_pass: bool,
    expiry: ExpiryWatch,
    ownership: Mutex<Ownership>,
    requests: Requests,
    /// Shards that this instance would take if others did not hold them: no other ones are asked for.
    reach: BTreeSet<ShardId>,
    /// Since when shards are owned by nobody because there is no room, and whether that was said.
    unowned_since: Option<(Instant, bool)>,
    /// When to read the leases next.
    next_round: Instant,
    /// None while a listing is under way, unless another one is to follow it at once.
    next_listing: Option<Instant>,
    is_listing: bool,
    /// A listing was made since the leases were read last.
    lists: bool,
    /// So many shards were not taken because they were seen too long ago.
    doubtful: usize,
    /// When the last complete listing was made.
    listed_at: Instant,
    /// When the leases were last looked at, or tried to.
    looked_at: Instant,
    /// Takes without an answer since then.
    unconfirmed: Mutex<Vec<Unconfirmed>>,
    /// Shards that are gone, until their rows have told whether that is news.
    gone: Vec<Gone>,
    /// A listing that lacks the children of an ended shard is repeated sooner until then.
    eager_until: Instant,
}

/// Starts the coordinator. `ready` is told when the first pass is done.
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
        begun_at: now,
        shard_list: ShardList::default(),
        first_listing: None,
        opening: None,
        first_pass: true,
        expiry: ExpiryWatch::default(),
        ownership: Mutex::default(),
        requests: Requests::default(),
        reach: BTreeSet::new(),
        unowned_since: None,
        next_round: now,
        next_listing: Some(now),
        is_listing: false,
        lists: false,
        doubtful: 0,
        listed_at: now,
        looked_at: now,
        unconfirmed: Mutex::default(),
        gone: Vec::new(),
        eager_until: now,
    };
    tokio::spawn(coordinator.run(ready))
}

impl Coordinator {
    async fn run(mut self, ready: oneshot::Sender<()>) {
        let context = Arc::clone(&self.context);
        let _ends = EndsTheSubscription(Arc::clone(&context));
        let mut listing = Some(self.begin_listing());
        select! {
            biased;
            _ = context.lifecycle.closing() => {}
            looked = answer(&mut listing) => drop(self.take_in(looked)),
        }
        self.pass(self.listed_at).await;
        self.first_pass = false;
        if self.first_listing.is_none() && self.opening.is_none() {
            // What was closed when the subscription began is not known any more, so nothing is passed over: LATEST is that
            // moment, for children too.
            self.plan.begin_at(&since(self.beginning.moment));
        }
        // Nobody waits any more if `subscribe` was cancelled.
        let _ = ready.send(());
        loop {
            let next_listing = self.next_listing.filter(|_| listing.is_none());
            let due = select! {
                biased;
                _ = context.lifecycle.closing() => return self.let_go_of_strays().await,
                Some(seek) = self.seeks.recv() => {
                    self.seek(seek).await;
                    Some(Instant::now())
                }
                () = context.wakeups.list_wanted() => self.list_eagerly(),
                looked = answer(&mut listing) => self.take_in(looked),
                () = context.wakeups.pass_wanted() => Some(Instant::now()),
                () = sleep_until(next_listing.into_iter().fold(self.next_round, Instant::min)) => None,
            };
            let now = Instant::now();
            if listing.is_none() && self.next_listing.is_some_and(|at| now >= at) {
                listing = Some(self.begin_listing());
            }
            if let Some(begun) = due.or_else(|| (now >= self.next_round).then_some(now)) {
                self.pass(begun).await;
            }
        }
    }

    /// A shard ended, or is gone. Gives when that was if the leases should be looked at now, and not only after the listing
    /// that it asks for.
    fn list_eagerly(&mut self) -> Option<Instant> {
        let now = Instant::now();
        self.next_listing = Some(now);
        self.eager_until = now + self.context.settings.list_interval;
        self.announce();
        (!self.lacks_children()).then_some(now)
    }

    /// Takes note of the shards that the last pages of their parents named.
    fn announce(&mut self) {
        for shard in self.shards.all() {
            self.shard_list.announce(&shard.take_children(), Instant::now());
        }
    }

    /// Reads the leases, and takes what is ready and free.
    async fn pass(&mut self, begun: Instant) {
        if self.context.lifecycle.is_running() {
            self.look_at_leases(begun).await;
        }
        let settings = &self.context.settings;
        // After a renewal interval, or as soon as a lease will have run out. One may have since, while others were being taken.
        let runs_out = self.expiry.next_to_run_out(&self.context.owner, settings.lease_ttl, self.looked_at);
        self.next_round = runs_out.into_iter().fold(Instant::now() + settings.renew_interval, Instant::min);
    }

    async fn look_at_leases(&mut self, begun: Instant) {
        self.announce();
        let context = Arc::clone(&self.context);
        let answer = context.answer(context.store.leases(&context.consumer, &context.stream)).await;
        let now = Instant::now();
        self.looked_at = now;
        let rows = match answer {
            Ok(rows) => rows,
            Err(error) => return context.report_store("reading the leases", error),
        };
        let lists = mem::take(&mut self.lists);
        self.forget_strays();
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
            // An older listing says nothing about a row that came since.
            let listed_at = if self.listed_at >= begun { self.listed_at } else { now };
            self.open(&first, &rows, listed_at);
        }
        self.leave_gone(&rows);
        self.hand_over(&rows, now);
        let candidates = self.candidates(&rows, lists, now);
        let this = &*self;
        stream::iter(candidates).for_each_concurrent(CALLS_AT_ONCE, |candidate| this.take(candidate)).await;
        let asks = self.ask(&rows, now).await;
        if context.settings.stop_at_tip {
            context.events.finish(!asks && self.is_done(&rows, now));
        }
        if lists {
            self.sweep(&rows, now).await;
        }
    }

    /// A row from which it shows that another process runs under this owner id, and that this one is to yield (E4).
    fn find_twin<'a>(&self, rows: &'a [Lease], now: Instant) -> Option<&'a Lease> {
        let (me, ttl) = (&self.context.owner, self.context.settings.lease_ttl);
        let mut ownership = lock(&self.ownership);
        ownership.look(rows, me);
        let in_my_name = || rows.iter().filter(|row| row.owner.as_ref() == Some(me));
        let is_held = |shard_id| self.shards.get(shard_id).is_some_and(|shard| shard.view().is_held());
        if let Some(row) = in_my_name().find(|row| ownership.is_overtaken(row) && is_held(&row.key.shard)) {
            return Some(row);
        }
        ownership.yields_to(in_my_name().filter(|row| !self.expiry.has_stood(&row.key.shard, ttl, now)), ttl, now)
    }

    /// Fixes the opening, when shards and rows are known for the first time. Rows of shards that are not listed are missing
    /// since then.
    fn open(&mut self, first: &[ListedShard], rows: &[Lease], listed_at: Instant) {
        let (own, foreign): (Vec<&Lease>, Vec<&Lease>) = rows.iter().partition(|row| self.is_of_this_stream(row));
        if !foreign.is_empty() {
            self.plan.initial = Some(Position::Horizon);
            let error = KinesisError::StreamRecreated { stream: Arc::clone(&self.context.stream) };
            tracing::warn!(%error, "the checkpoints of the old stream are not used");
            self.context.events.error(None, error);
        }
        self.shard_list.remember(&own, listed_at);
        let opening = Opening::new(&self.plan, first, &self.shard_list, &own);
        let awaited_until = self.begun_at + 2 * self.context.settings.lease_ttl;
        self.opening = Some(opening.awaiting(&own, &self.context.owner, awaited_until));
    }

    /// Whether a row belongs to this stream, and not to an older one of its name (H7).
    fn is_of_this_stream(&self, row: &Lease) -> bool {
        row.stream_created.zip(self.beginning.created).is_none_or(|(row, stream)| row == stream)
    }
}
