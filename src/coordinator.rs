//! Which shards this instance reads: the task that lists the shards, asks the lineage which are ready, takes their
//! leases, and hands their readers to the subscription.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, atomic::Ordering},
};

use futures::{StreamExt, stream};
use tokio::{
    select,
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Duration, Instant, sleep_until},
};

use crate::{
    error::KinesisError,
    failure::{FailureKind, ServiceFailure},
    hub::Hub,
    id::ShardId,
    lease::{Held, Lease, Take, Write},
    ledger::{Ledger, Ledgers},
    lineage::{self, Progress, Verdict},
    pages::{Pages, pages},
    position::{Checkpoint, Origin, Role},
    reader::{Reader, since},
    service::{ListedShard, Listing, ServiceTime},
    witness::Witness,
};

/// Leases taken, and first iterators fetched, at the same time. Both have limits per shard or table, none per account
/// that this would reach.
const TAKES_AT_ONCE: usize = 64;

/// How soon a listing is repeated that failed before any shard was known, or that does not show the children of an ended
/// shard yet.
const EAGER_INTERVAL: Duration = Duration::from_secs(1);

/// The stream as it was when the subscription began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Beginning {
    /// By the service's clock.
    pub(crate) moment: ServiceTime,
    /// When the stream was created.
    pub(crate) created: Option<i64>,
}

/// See the module.
struct Coordinator {
    hub: Arc<Hub>,
    ledgers: Arc<Ledgers>,
    opened: mpsc::UnboundedSender<Pages>,
    beginning: Beginning,
    begun_at: Instant,
    /// What the last complete listing showed.
    listed: Vec<ListedShard>,
    /// The first complete listing; none before it.
    opening: Option<Opening>,
    /// The first pass is under way: `subscribe` has not returned yet.
    first_pass: bool,
    witness: Witness,
    next_listing: Instant,
    /// A listing that lacks the children of an ended shard is repeated sooner until then.
    eager_until: Instant,
}

/// The shards with which the subscription opens.
struct Opening {
    shards: lineage::Opening,
    /// Those that a forced start has yet to read to their end once more, whatever their rows say (R6).
    replays: BTreeSet<ShardId>,
    /// Those that others held at the first pass; they belong to the opening for two lives of a lease (E5).
    held_by_others: BTreeSet<ShardId>,
}

/// A shard whose lease is to be taken.
struct Candidate {
    ledger: Arc<Ledger>,
    take: Take,
    role: Role,
    /// Its end is stored and it is to be read again.
    replays: bool,
}

/// Starts the coordinator. `ready` is told when the first pass is done.
pub(crate) fn start(
    hub: Arc<Hub>,
    ledgers: Arc<Ledgers>,
    beginning: Beginning,
    opened: mpsc::UnboundedSender<Pages>,
    ready: oneshot::Sender<()>,
) -> JoinHandle<()> {
    let now = Instant::now();
    let coordinator = Coordinator {
        hub,
        ledgers,
        opened,
        beginning,
        begun_at: now,
        listed: Vec::new(),
        opening: None,
        first_pass: true,
        witness: Witness::default(),
        next_listing: now,
        eager_until: now,
    };
    tokio::spawn(coordinator.run(ready))
}

/// Ends the subscription when the coordinator ends, should it panic.
struct EndsTheSubscription(Arc<Hub>);

impl Drop for EndsTheSubscription {
    fn drop(&mut self) {
        self.0.wind_down(Duration::ZERO);
    }
}

impl Coordinator {
    async fn run(mut self, ready: oneshot::Sender<()>) {
        let hub = Arc::clone(&self.hub);
        let _ends = EndsTheSubscription(Arc::clone(&hub));
        self.pass().await;
        self.first_pass = false;
        // Nobody waits any more if `subscribe` was cancelled.
        let _ = ready.send(());
        loop {
            let next_round = Instant::now() + hub.settings.renew_interval;
            select! {
                biased;
                _ = hub.life.closing() => return,
                () = hub.agenda.notified() => self.list_eagerly(),
                () = sleep_until(next_round.min(self.next_listing)) => {}
            }
            self.pass().await;
        }
    }

    /// A shard ended, or is gone.
    fn list_eagerly(&mut self) {
        let now = Instant::now();
        self.next_listing = now;
        self.eager_until = now + self.hub.settings.list_interval;
    }

    /// Lists if it is time to, reads the leases, and takes what is ready and free.
    async fn pass(&mut self) {
        let now = Instant::now();
        let lists = now >= self.next_listing;
        if lists && !self.list().await {
            return;
        }
        let hub = Arc::clone(&self.hub);
        let leases = hub.store.leases(&hub.consumer, &hub.stream);
        let rows = match hub.answer(leases).await {
            Ok(rows) => rows,
            Err(error) => return hub.report_store(None, "reading the leases", error),
        };
        let now = Instant::now();
        self.witness.observe(&rows, now);
        let candidates = self.candidates(&rows, lists, now);
        let this = &*self;
        stream::iter(candidates).for_each_concurrent(TAKES_AT_ONCE, |candidate| this.take(candidate)).await;
    }

    /// Lists the shards. False if the subscription is over.
    async fn list(&mut self) -> bool {
        let hub = Arc::clone(&self.hub);
        let listed = select! {
            biased;
            _ = hub.life.closing() => return false,
            listed = list_all(&hub) => listed,
        };
        let now = Instant::now();
        self.next_listing = now + hub.settings.list_interval;
        let listed = match listed {
            Ok(shards) => {
                self.listed = shards;
                true
            }
            Err(failure) => self.not_listed(failure).await,
        };
        if self.listed.is_empty() || self.lacks_children() {
            self.next_listing = self.next_listing.min(now + EAGER_INTERVAL);
        }
        listed
    }

    /// Reports a failed listing, unless the stream itself is gone: that ends the subscription (X1).
    async fn not_listed(&self, source: ServiceFailure) -> bool {
        let stream = Arc::clone(&self.hub.stream);
        if source.kind() == FailureKind::NotFound
            && let Err(source) = self.hub.service.describe(&stream).await
            && source.kind() == FailureKind::NotFound
        {
            self.hub.fail(KinesisError::StreamGone { stream, source });
            return false;
        }
        tracing::warn!(%stream, error = %source, "the shards could not be listed");
        self.hub.inbox.error(None, KinesisError::List { stream, source });
        true
    }

    /// Whether a shard that ended here, and is still listed, has no children in the listing: they appear a little later.
    fn lacks_children(&self) -> bool {
        let parents: BTreeSet<&ShardId> = self.listed.iter().flat_map(|shard| &shard.parents).collect();
        let childless = |shard: &&ListedShard| !parents.contains(&shard.id);
        Instant::now() < self.eager_until
            && self
                .listed
                .iter()
                .filter(childless)
                .any(|shard| self.ledgers.get(&shard.id).is_some_and(|ledger| ledger.ended_here()))
    }

    /// The shards to take now.
    fn candidates(&mut self, rows: &[Lease], lists: bool, now: Instant) -> Vec<Candidate> {
        if self.listed.is_empty() {
            return Vec::new();
        }
        let rows: BTreeMap<&ShardId, &Lease> = rows.iter().map(|row| (&row.key.shard, row)).collect();
        self.open(&rows);
        let Some(opening) = &self.opening else { return Vec::new() };
        let verdicts = lineage::judge(&self.listed, &known(&rows, &opening.replays), &opening.shards);
        let mut awaited = 0;
        let mut candidates = Vec::new();
        for shard in &self.listed {
            let Some(Verdict::Ready { child }) = verdicts.get(&shard.id) else { continue };
            let row = rows.get(&shard.id).copied();
            let ledger = self.ledgers.get_or_open(&self.hub, &shard.id);
            let opens = self.opens(opening, &ledger, now);
            if ledger.is_held() || ledger.was_given_up() && !lists {
                continue;
            }
            if !self.is_free(row, now) {
                awaited += usize::from(opens && opening.held_by_others.contains(&shard.id));
                continue;
            }
            candidates.push(Candidate {
                take: self.take_of(shard, row),
                replays: opening.replays.contains(&shard.id),
                role: Role { opening: opens, child: *child },
                ledger,
            });
        }
        self.hub.awaited.store(awaited, Ordering::Relaxed);
        candidates
    }

    /// Fixes the opening, when shards and rows are known for the first time.
    fn open(&mut self, rows: &BTreeMap<&ShardId, &Lease>) {
        if let Some(opening) = &mut self.opening {
            opening.replays.retain(|shard| !self.ledgers.get(shard).is_some_and(|ledger| ledger.ended_here()));
            return;
        }
        let plan = &self.hub.settings.plan;
        let ended = |row: &&&Lease| row.checkpoint == Some(Checkpoint::ShardEnd) && plan.replays();
        let others = |row: &&&Lease| row.owner.as_ref().is_some_and(|owner| *owner != self.hub.owner);
        let shard = |row: &&Lease| row.key.shard.clone();
        self.opening = Some(Opening {
            shards: lineage::Opening::new(plan, &self.listed),
            replays: rows.values().filter(ended).map(shard).collect(),
            held_by_others: rows.values().filter(others).map(shard).collect(),
        });
    }

    /// Whether the shard belongs to the opening, so that a forced start applies to it (R6, E5).
    fn opens(&self, opening: &Opening, ledger: &Ledger, now: Instant) -> bool {
        let awaited_until = self.begun_at + 2 * self.hub.settings.lease_ttl;
        opening.shards.has(&ledger.shard)
            && !ledger.has_begun()
            && (now < awaited_until || !opening.held_by_others.contains(&ledger.shard))
    }

    /// Whether the lease can be taken: nobody has it, it was this instance's own, or it ran out (E4, E5).
    fn is_free(&self, row: Option<&Lease>, now: Instant) -> bool {
        row.and_then(|row| Some((row, row.owner.as_ref()?))).is_none_or(|(row, owner)| {
            *owner == self.hub.owner || self.witness.has_run_out(&row.key.shard, self.hub.settings.lease_ttl, now)
        })
    }

    fn take_of(&self, shard: &ListedShard, row: Option<&Lease>) -> Take {
        Take {
            key: self.hub.lease_key(&shard.id),
            owner: Arc::clone(&self.hub.owner),
            seen: row.map(Lease::seen),
            parents: shard.parents.clone(),
            stream_created: self.beginning.created,
        }
    }

    /// Takes a lease and starts to read under it.
    async fn take(&self, candidate: Candidate) {
        let Candidate { ledger, take, role, replays } = candidate;
        let sent_at = Instant::now();
        let lease = match self.hub.answer(self.hub.store.take(&take)).await {
            Ok(Write::Applied(lease)) => lease,
            Ok(Write::Refused(_)) => {
                tracing::debug!(stream = %self.hub.stream, shard = %ledger.shard, "another instance was faster");
                return;
            }
            Err(error) => return self.hub.report_store(Some(ledger.shard.clone()), "taking the lease", error),
        };
        let held = Held { key: take.key, owner: take.owner, epoch: lease.epoch };
        let opening = ledger.begin(&lease, held, sent_at);
        let ended_meanwhile = lease.checkpoint == Some(Checkpoint::ShardEnd) && !replays;
        if ended_meanwhile || !self.hub.life.is_running() {
            return ledger.leave(Instant::now());
        }
        let origin = self.origin(&ledger, &lease, role);
        tracing::info!(
            stream = %self.hub.stream, shard = %ledger.shard, epoch = opening.epoch, ?origin, "the shard is opened"
        );
        let mut reader = Reader::new(ledger, opening, origin.clone());
        if self.first_pass {
            select! {
                biased;
                _ = self.hub.life.closing() => return,
                () = reader.open(self.beginning.moment) => {}
            }
        } else {
            // Its place is known, and it gets there by itself: a call that is slow holds up no other shard.
            reader.ledger().begins_at(origin);
        }
        // Without a receiver the subscription is gone, and the pages go with it.
        let _ = self.opened.send(pages(reader));
    }

    fn origin(&self, ledger: &Ledger, lease: &Lease, role: Role) -> Origin {
        if let Some(began) = ledger.begins_again_at(lease.checkpoint.as_ref()) {
            return began;
        }
        match self.hub.settings.plan.origin(&ledger.shard, lease.checkpoint.as_ref(), role) {
            Origin::Latest if !self.first_pass => since(self.beginning.moment),
            origin => origin,
        }
    }
}

/// What the rows say about each shard, seen through a forced start.
fn known(rows: &BTreeMap<&ShardId, &Lease>, replays: &BTreeSet<ShardId>) -> BTreeMap<ShardId, Progress> {
    let progress = |row: &Lease| match Progress::from(row.checkpoint.as_ref()) {
        Progress::Ended if replays.contains(&row.key.shard) => Progress::Open,
        progress => progress,
    };
    rows.iter().map(|(shard, row)| ((*shard).clone(), progress(row))).collect()
}

/// All shards of the stream, page by page.
async fn list_all(hub: &Hub) -> Result<Vec<ListedShard>, ServiceFailure> {
    let mut page = hub.service.list(Listing::Stream(&hub.stream)).await?;
    let mut listed = page.shards;
    while let Some(token) = page.next {
        page = hub.service.list(Listing::Token(&token)).await?;
        listed.append(&mut page.shards);
    }
    Ok(listed)
}
