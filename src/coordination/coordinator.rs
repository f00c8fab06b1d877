//! The coordinator: the task that lists the shards, asks [`lineage`](super::lineage) which are ready, takes their
//! leases and hands their readers to the subscription.
//!
//! **No leader and no messages.** Instances see each other only in the lease rows, which each instance reads once per
//! renewal interval.
//!
//! **Each part decides from the store, not from memory.** Whether a shard is ready, waits for its parents, is done or
//! is passed over follows from the listing and the lease rows as they are.
//!
//! **When the subscription's tasks end, the subscription ends.** If a lease store panics or the runtime shuts down, the
//! stream yields a fatal error and nobody is left waiting.
//!
//! This file is the state and the loop of the task; read it first, then [`apply`], one [`pass`] over the lease rows.
//! They call the others in this order:
//!
//! - [`listing`]: which shards the stream has, its [`listing_pages`], and [`schedule`]: when to list them.
//! - [`requested_passes`]: how soon a pass that an event asks for may follow.
//! - [`ownership`]: which rows under this owner id are this instance's own.
//! - [`opening`]: the shards with which the subscription opens.
//! - [`removed`]: shards and rows that no longer belong to the stream.
//! - [`rebalance`]: handing over requested shards, and requesting shards from others.
//! - [`candidates`]: which leases to take now.
//! - [`take`]: taking one lease and starting its reader.
//! - [`store_at_start`]: whether the first pass ends, waits or fails if the lease store cannot be used.
//! - [`trial`]: what an instance does that could not read.
//! - [`unconfirmed`]: takes without a response.
//! - [`unreadable`]: rows that make no sense.
//! - [`seek`]: moving running shards to another position.
//! - [`at_tip`]: whether everything was read.

use std::sync::Arc;

use tokio::{
    select,
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Duration, Instant, sleep_until},
};
use tracing::Instrument;

pub(crate) use self::seek::Seek;
use self::{
    candidates::Unowned,
    listing::{ListingInFlight, finished},
    listing_pages::Sightings,
    opening::SubscriptionOpening,
    ownership::Ownership,
    removed::is_same_stream,
    requested_passes::RequestedPasses,
    schedule::ListingSchedule,
    trial::{begin_trial, tried},
    unconfirmed::Unconfirmed,
    unreadable::UnreadableRows,
};
use crate::{
    config::{position::Plan, present::Present},
    coordination::{
        balance::OpenRequests,
        expiry::{ExpiryWatch, TableReads},
        shard_list::{RemovedShard, ShardList},
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
};

mod apply;
mod at_tip;
mod candidates;
mod listing;
mod listing_pages;
mod opening;
mod ownership;
mod pass;
mod rebalance;
mod removed;
mod requested_passes;
mod schedule;
mod seek;
mod store_at_start;
mod take;
mod trial;
mod unconfirmed;
mod unreadable;

/// How many calls on the lease store, or for first iterators, are in flight at once. The service limits both per shard
/// or table, and this number reaches no limit per account.
const CALLS_AT_ONCE: usize = 64;

/// How long `subscribe` waits for Kinesis: for the first listing and the first iterators (L5). What comes later opens
/// at the same moment, too.
const FIRST_PASS_LIMIT: Duration = Duration::from_secs(5);

/// The stream as it was when the subscription began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning {
    /// By the service's clock.
    moment: ServiceTime,
    /// When the stream was created.
    created: Option<i64>,
    present: Present,
    /// When that was the present.
    noted_at: Instant,
}

impl Beginning {
    /// A stream that was created at this time, in Unix milliseconds.
    pub(crate) fn new(present: Present, created: Option<i64>) -> Self {
        Self { moment: ServiceTime(present.at_least), created, present, noted_at: Instant::now() }
    }

    /// The present by the service's clock, as far as it is known without a call.
    pub(crate) fn present(&self) -> Present {
        self.present.after(self.noted_at.elapsed())
    }
}

/// How far the coordinator is with the opening of the subscription.
enum Phase {
    /// No complete listing has shown a shard yet.
    Unlisted,
    /// The first complete listing is done. The lease rows were not read since.
    Listed(Vec<ListedShard>),
    /// Shards and rows are known, so the opening is decided.
    Open(SubscriptionOpening),
}

impl Phase {
    fn opening(&self) -> Option<&SubscriptionOpening> {
        match self {
            Self::Open(opening) => Some(opening),
            Self::Unlisted | Self::Listed(_) => None,
        }
    }
}

/// The state of the task.
struct Coordinator {
    context: Arc<SubscriptionContext>,
    shards: Arc<Shards>,
    opened: mpsc::UnboundedSender<Pages>,
    seeks: mpsc::UnboundedReceiver<Seek>,
    beginning: Beginning,
    started_at: Instant,
    /// Where shards open: as the descriptor says, unless the stream turns out to be another one.
    plan: Plan,
    phase: Phase,
    shard_list: ShardList,
    /// Shards that listings proved removed since the last pass. The rows tell whether the stream must report them.
    removed: Vec<RemovedShard>,
    listings: ListingSchedule,
    /// What the pages of a listing have shown since the last pass.
    sightings: Sightings,
    next_pass: Instant,
    requested_passes: RequestedPasses,
    /// A shard ended, or a listing showed something new, since the last pass.
    has_new_shards: bool,
    table_reads: TableReads,
    expiry: ExpiryWatch,
    ownership: Ownership,
    requests: OpenRequests,
    /// This instance asked for shards since the leases were read last.
    asked: bool,
    unowned: Unowned,
    unreadable: UnreadableRows,
    /// A shard to read once, which shows whether this instance can read again.
    trial_shard: Option<ShardId>,
    /// Takes without a response since the leases were read last.
    unconfirmed: Vec<Unconfirmed>,
}

/// Tells `subscribe` that the first pass is done, or why the subscription cannot start.
pub(crate) type Ready = oneshot::Sender<Result<(), KinesisError>>;

/// Starts the coordinator. It sends `ready` when the first pass is done.
pub(crate) fn start(
    context: Arc<SubscriptionContext>,
    shards: Arc<Shards>,
    (beginning, plan): (Beginning, Plan),
    (opened, seeks): (mpsc::UnboundedSender<Pages>, mpsc::UnboundedReceiver<Seek>),
    ready: Ready,
) -> JoinHandle<()> {
    let now = Instant::now();
    let requested_passes = RequestedPasses::new(context.settings.renew_interval / 2, now);
    let coordinator = Coordinator {
        listings: ListingSchedule::new(context.settings.list_interval, now),
        sightings: Sightings::default(),
        table_reads: TableReads::new(context.settings.renew_interval, context.settings.lease_ttl),
        plan,
        context,
        shards,
        opened,
        seeks,
        beginning,
        started_at: now,
        phase: Phase::Unlisted,
        shard_list: ShardList::default(),
        removed: Vec::new(),
        next_pass: now,
        requested_passes,
        has_new_shards: false,
        expiry: ExpiryWatch::default(),
        ownership: Ownership::default(),
        requests: OpenRequests::default(),
        asked: false,
        unowned: Unowned::default(),
        unreadable: UnreadableRows::default(),
        trial_shard: None,
        unconfirmed: Vec::new(),
    };
    let (stream, consumer) = (&coordinator.context.stream, &coordinator.context.consumer);
    let span = tracing::info_span!("coordinator", %stream, %consumer);
    tokio::spawn(coordinator.run(ready).instrument(span))
}

impl Coordinator {
    async fn run(mut self, ready: Ready) {
        let context = Arc::clone(&self.context);
        let _ends = EndsTheSubscription(Arc::clone(&context));
        let mut listing = Some(self.begin_listing());
        if let Err(error) = self.first_pass(&mut listing).await {
            // It fails only if `subscribe` was cancelled.
            let _ = ready.send(Err(error));
            context.lifecycle.closing().await;
            return self.release_unconfirmed().await;
        }
        // It fails only if `subscribe` was cancelled.
        let _ = ready.send(Ok(()));
        let mut trial = None;
        loop {
            let wake_at = self.listings.due_at().into_iter().fold(self.next_pass, Instant::min);
            let due = select! {
                biased;
                _ = context.lifecycle.closing() => {
                    self.release_unconfirmed().await;
                    return self.withdraw_asks().await;
                }
                Some(seek) = self.seeks.recv() => {
                    self.seek_unless_closing(seek).await;
                    Some(Instant::now())
                }
                () = context.wakeups.list_wanted() => self.list_now(),
                outcome = finished(&mut listing) => self.apply_listing(outcome),
                () = tried(&mut trial) => None,
                () = context.wakeups.pass_wanted() => Some(Instant::now()),
                () = sleep_until(wake_at) => None,
            };
            let now = Instant::now();
            if self.listings.due_at().is_some_and(|at| now >= at) {
                listing = Some(self.begin_listing());
            }
            let due = due.filter(|_| self.may_pass(now));
            if let Some(begun) = due.or_else(|| (now >= self.next_pass).then_some(now)) {
                self.pass(begun, false, &mut listing).await;
            }
            if let Some(shard) = self.trial_shard.take().filter(|_| trial.is_none()) {
                trial = Some(begin_trial(&context, shard));
            }
        }
    }

    /// Opens the subscription, with the shards of the first listing if that comes soon. An error if the lease store
    /// cannot be used.
    async fn first_pass(&mut self, listing: &mut Option<ListingInFlight>) -> Result<(), KinesisError> {
        let context = Arc::clone(&self.context);
        select! {
            biased;
            _ = context.lifecycle.closing() => {}
            outcome = finished(listing) => drop(self.apply_listing(outcome)),
            () = sleep_until(self.started_at + FIRST_PASS_LIMIT) => {
                tracing::warn!("the first listing of the shards takes long, so they open later");
            }
        }
        self.pass_once_leases_are_read(listing).await?;
        if matches!(self.phase, Phase::Unlisted) {
            // Without a listing it is unknown which shards were closed when the subscription began. So none is passed
            // over, and LATEST becomes the time of the start, for children too.
            self.plan.begin_at(&since(self.beginning.moment));
        }
        Ok(())
    }

    /// Seeks, unless the subscription closes meanwhile. The caller then learns it from its dropped channel.
    async fn seek_unless_closing(&mut self, seek: Seek) {
        let context = Arc::clone(&self.context);
        select! {
            biased;
            _ = context.lifecycle.closing() => {}
            () = self.seek(seek) => {}
        }
    }

    /// A shard ended or was denied, so the shards are listed at once. Returns the time if the next pass should start
    /// now, without waiting for that listing.
    fn list_now(&mut self) -> Option<Instant> {
        let now = Instant::now();
        self.listings.request(now);
        self.add_announced_children();
        self.has_new_shards |= self.context.wakeups.take_shard_ended();
        (!self.misses_children()).then_some(now)
    }

    /// Whether a pass that was asked for may start now. If not, the next pass follows as soon as it may. Shards that
    /// can be read now never wait.
    fn may_pass(&mut self, now: Instant) -> bool {
        if self.has_new_shards {
            return true;
        }
        let admitted = self.requested_passes.admit(now);
        if let Err(at) = admitted {
            self.next_pass = self.next_pass.min(at);
        }
        admitted.is_ok()
    }

    /// Adds the shards that the last pages of their parents named.
    fn add_announced_children(&mut self) {
        for shard in self.shards.all() {
            self.shard_list.add_children(&shard.take_children(), Instant::now());
        }
    }

    /// Whether a row belongs to this stream, and not to an older one of its name (H7).
    fn is_of_this_stream(&self, row: &Lease) -> bool {
        is_same_stream(row.stream_created, self.beginning.created)
    }
}
