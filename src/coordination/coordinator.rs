//! Which shards this instance reads: the task that lists the shards, asks the lineage which are ready, takes their
//! leases, and hands their readers to the subscription.
//!
//! - [`listing`]: which shards there are,
//! - [`gone`]: shards and rows that are no longer part of the stream,
//! - [`opening`]: the shards with which the subscription opens,
//! - [`candidates`]: which leases to take now, and as what,
//! - [`take`]: taking one and starting to read under it,
//! - [`claims`]: which rows in this instance's own name are its own,
//! - [`strays`]: takes without an answer,
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
        coordinator::{ownership::Claims, unconfirmed::Stray},
        expiry::Witness,
        shard_list::{Catalogue, Gone},
    },
    error::{KinesisError, chain::Chain},
    kinesis::{ListedShard, ServiceTime},
    lease::Lease,
    reading::{read_ahead::Pages, reader::since},
    state::{
        context::{EndsTheSubscription, Hub},
        shard::Ledgers,
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
    hub: Arc<Hub>,
    ledgers: Arc<Ledgers>,
    opened: mpsc::UnboundedSender<Pages>,
    seeks: mpsc::UnboundedReceiver<Seek>,
    beginning: Beginning,
    begun_at: Instant,
    /// Where shards open: as the descriptor says, until the stream turns out to be another one.
    plan: Plan,
    catalogue: Catalogue,
    /// What the first complete listing showed; none before it.
    first_listing: Option<Vec<ListedShard>>,
    /// None before shards and rows are known.
    opening: Option<Opening>,
    /// The first pass is under way: `subscribe` has not returned yet.
    first_pass: bool,
    witness: Witness,
    claims: Mutex<Claims>,
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
    strays: Mutex<Vec<Stray>>,
    /// Shards that are gone, until their rows have told whether that is news.
    gone: Vec<Gone>,
    /// A listing that lacks the children of an ended shard is repeated sooner until then.
    eager_until: Instant,
}

/// Starts the coordinator. `ready` is told when the first pass is done.
pub(crate) fn start(
    hub: Arc<Hub>,
    ledgers: Arc<Ledgers>,
    beginning: Beginning,
    (opened, seeks): (mpsc::UnboundedSender<Pages>, mpsc::UnboundedReceiver<Seek>),
    ready: oneshot::Sender<()>,
) -> JoinHandle<()> {
    let now = Instant::now();
    let coordinator = Coordinator {
        plan: hub.settings.plan.clone(),
        hub,
        ledgers,
        opened,
        seeks,
        beginning,
        begun_at: now,
        catalogue: Catalogue::default(),
        first_listing: None,
        opening: None,
        first_pass: true,
        witness: Witness::default(),
        claims: Mutex::default(),
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
        strays: Mutex::default(),
        gone: Vec::new(),
        eager_until: now,
    };
    tokio::spawn(coordinator.run(ready))
}

impl Coordinator {
    async fn run(mut self, ready: oneshot::Sender<()>) {
        let hub = Arc::clone(&self.hub);
        let _ends = EndsTheSubscription(Arc::clone(&hub));
        let mut listing = Some(self.begin_listing());
        select! {
            biased;
            _ = hub.life.closing() => {}
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
                _ = hub.life.closing() => return self.let_go_of_strays().await,
                Some(seek) = self.seeks.recv() => {
                    self.seek(seek).await;
                    Some(Instant::now())
                }
                () = hub.agenda.notified() => self.list_eagerly(),
                looked = answer(&mut listing) => self.take_in(looked),
                () = hub.rounds.notified() => Some(Instant::now()),
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
        self.eager_until = now + self.hub.settings.list_interval;
        self.announce();
        (!self.lacks_children()).then_some(now)
    }

    /// Takes note of the shards that the last pages of their parents named.
    fn announce(&mut self) {
        for ledger in self.ledgers.all() {
            self.catalogue.announce(&ledger.children(), Instant::now());
        }
    }

    /// Reads the leases, and takes what is ready and free.
    async fn pass(&mut self, begun: Instant) {
        if self.hub.life.is_running() {
            self.look_at_leases(begun).await;
        }
        let settings = &self.hub.settings;
        // After a renewal interval, or as soon as a lease will have run out. One may have since, while others were being taken.
        let runs_out = self.witness.next_to_run_out(&self.hub.owner, settings.lease_ttl, self.looked_at);
        self.next_round = runs_out.into_iter().fold(Instant::now() + settings.renew_interval, Instant::min);
    }

    async fn look_at_leases(&mut self, begun: Instant) {
        self.announce();
        let hub = Arc::clone(&self.hub);
        let answer = hub.answer(hub.store.leases(&hub.consumer, &hub.stream)).await;
        let now = Instant::now();
        self.looked_at = now;
        let rows = match answer {
            Ok(rows) => rows,
            Err(error) => return hub.report_store("reading the leases", error),
        };
        let lists = mem::take(&mut self.lists);
        self.forget_strays();
        self.witness.observe(&rows, now);
        self.requests.observe(&rows, &hub.owner, now);
        if let Some(twins) = self.find_twin(&rows, now) {
            let (stream, shard) = (Arc::clone(&hub.stream), twins.key.shard.clone());
            return hub.fail(KinesisError::DuplicateOwner {
                stream,
                shard,
                owner: Arc::clone(&hub.owner),
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
        if hub.settings.stop_at_tip {
            hub.inbox.finish(!asks && self.is_done(&rows, now));
        }
        if lists {
            self.sweep(&rows, now).await;
        }
    }

    /// A row from which it shows that another process runs under this owner id, and that this one is to yield (E4).
    fn find_twin<'a>(&self, rows: &'a [Lease], now: Instant) -> Option<&'a Lease> {
        let (me, ttl) = (&self.hub.owner, self.hub.settings.lease_ttl);
        let mut claims = lock(&self.claims);
        claims.look(rows, me);
        let in_my_name = || rows.iter().filter(|row| row.owner.as_ref() == Some(me));
        let is_held = |shard| self.ledgers.get(shard).is_some_and(|ledger| ledger.is_held());
        if let Some(row) = in_my_name().find(|row| claims.is_overtaken(row) && is_held(&row.key.shard)) {
            return Some(row);
        }
        claims.yields_to(in_my_name().filter(|row| !self.witness.has_stood(&row.key.shard, ttl, now)), ttl, now)
    }

    /// Fixes the opening, when shards and rows are known for the first time. Rows of shards that are not listed are missing
    /// since then.
    fn open(&mut self, first: &[ListedShard], rows: &[Lease], listed_at: Instant) {
        let (own, foreign): (Vec<&Lease>, Vec<&Lease>) = rows.iter().partition(|row| self.is_of_this_stream(row));
        if !foreign.is_empty() {
            self.plan.initial = Some(Position::Horizon);
            let error = KinesisError::StreamRecreated { stream: Arc::clone(&self.hub.stream) };
            tracing::warn!(error = %Chain(&error), "the checkpoints of the old stream are not used");
            self.hub.inbox.error(None, error);
        }
        self.catalogue.remember(&own, listed_at);
        let opening = Opening::new(&self.plan, first, &self.catalogue, &own);
        let awaited_until = self.begun_at + 2 * self.hub.settings.lease_ttl;
        self.opening = Some(opening.awaiting(&own, &self.hub.owner, awaited_until));
    }

    /// Whether a row belongs to this stream, and not to an older one of its name (H7).
    fn is_of_this_stream(&self, row: &Lease) -> bool {
        row.stream_created.zip(self.beginning.created).is_none_or(|(row, stream)| row == stream)
    }
}
