//! The one task that talks to the lease store for leases that are held: it renews them, stores checkpoints, and
//! releases them, whether or not anyone polls the subscription.
//!
//! There is at most one call under way for each shard, so the writes of a shard keep their order, and the newest
//! watermark wins.

use std::{collections::BTreeSet, sync::Arc};

use futures::{
    FutureExt, StreamExt,
    future::{BoxFuture, pending},
    stream::FuturesUnordered,
};
use tokio::{
    select,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use crate::{
    coordination::due_queue::Looks,
    error::{KinesisError, chain::Chain, service::StoreError},
    lease::{Lease, Write},
    state::{
        context::Hub,
        lifecycle::CloseReport,
        shard::{Duty, Errand, GRAIN, Ledger, Ledgers},
    },
    types::id::ShardId,
};

/// An errand that came back: what the store said, to whom, and when it was sent.
type Back = (Arc<Ledger>, Errand, Instant, Result<Write, StoreError>);

/// See the module.
pub(crate) struct Keeper {
    hub: Arc<Hub>,
    ledgers: Arc<Ledgers>,
    errands: FuturesUnordered<BoxFuture<'static, Back>>,
    /// When to look at single shards, apart from the rounds.
    looks: Looks,
    report: CloseReport,
}

/// Starts the keeper. It ends the subscription's life once `coordinator` has ended and every lease is released.
pub(crate) fn start(hub: Arc<Hub>, ledgers: Arc<Ledgers>, coordinator: JoinHandle<()>) {
    let keeper = Keeper {
        hub,
        ledgers,
        errands: FuturesUnordered::new(),
        looks: Looks::default(),
        report: CloseReport::default(),
    };
    tokio::spawn(keeper.run(coordinator));
}

impl Keeper {
    async fn run(mut self, coordinator: JoinHandle<()>) {
        let hub = Arc::clone(&self.hub);
        let _ends = EndsTheLife { hub: Arc::clone(&hub), ledgers: Arc::clone(&self.ledgers) };
        let until = select! {
            biased;
            until = hub.life.closing() => until,
            () = self.keep(|_| false) => return,
        };
        self.leave(until);
        // It takes no more leases once it has ended, however it did.
        select! {
            biased;
            _ = coordinator => {}
            () = self.keep(|_| false) => return,
        }
        self.leave(until);
        let last_try = until.max(Instant::now()) + hub.settings.lease_ttl;
        let all_are_released = |ledgers: &Ledgers| !ledgers.all().iter().any(|ledger| ledger.is_held());
        select! {
            biased;
            () = self.keep(all_are_released) => {}
            () = sleep_until(last_try) => {}
        }
        self.finish();
    }

    /// Stops reading every shard; what is in the user's hands may be settled until then.
    fn leave(&self, until: Instant) {
        for ledger in self.ledgers.all() {
            ledger.leave(until);
        }
    }

    /// Does what is due, until nothing is any more.
    async fn keep(&mut self, done: impl Fn(&Ledgers) -> bool) {
        let hub = Arc::clone(&self.hub);
        let mut rounds = interval(hub.settings.round());
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Whoever has an errand under way is not done. That spares looking at every shard after each of them.
        while !(self.errands.is_empty() && done(&self.ledgers)) {
            select! {
                biased;
                // Before the errands, which a busy user could keep coming for ever: renewals hang on the rounds.
                _ = rounds.tick() => self.round(),
                Some(back) = self.errands.next() => self.settle(back),
                shards = hub.bell.rung() => self.visit(&shards),
                () = at(self.looks.next()) => self.look(),
            }
        }
    }

    /// Looks at the shards that rang.
    fn visit(&mut self, shards: &BTreeSet<ShardId>) {
        for shard in shards {
            if let Some(ledger) = self.ledgers.get(shard) {
                self.send(&ledger);
            }
        }
    }

    /// Looks at the shards for which it is time, or nearly so.
    fn look(&mut self) {
        for shard in self.looks.take_due(Instant::now() + GRAIN) {
            if let Some(ledger) = self.ledgers.get(&shard) {
                self.send(&ledger);
            }
        }
    }

    /// Looks at every shard: at what was settled without a word, and at leases that are new.
    fn round(&mut self) {
        let now = Instant::now();
        for ledger in self.ledgers.all() {
            ledger.warn_if_full(now);
            self.send(&ledger);
        }
    }

    /// Sends the errand that is due for this shard, if there is one.
    fn send(&mut self, ledger: &Arc<Ledger>) {
        let now = Instant::now();
        let Some(errand) = ledger.errand(now) else {
            return self.looks.set(&ledger.shard, ledger.look_again_at());
        };
        self.looks.set(&ledger.shard, None);
        let (hub, ledger) = (Arc::clone(&self.hub), Arc::clone(ledger));
        self.errands.push(
            async move {
                let answer = run(&hub, &errand).await;
                (ledger, errand, now, answer)
            }
            .boxed(),
        );
    }

    /// Enters what came of an errand, and sends the next one.
    fn settle(&mut self, (ledger, errand, sent_at, answer): Back) {
        match answer {
            Ok(Write::Applied(())) => self.applied(&ledger, &errand, sent_at),
            Ok(Write::Refused(row)) => self.refused(&ledger, &errand, row),
            Err(error) => {
                if ledger.failed(&errand, &error, Instant::now()) {
                    tracing::warn!(
                        stream = %self.hub.stream, shard = %ledger.shard, epoch = errand.held.epoch, error = %Chain(&error),
                        "the lease store failed while {}", errand.duty.doing()
                    );
                    ledger.report_store(errand.duty.doing(), error);
                }
            }
        }
        self.send(&ledger);
    }

    fn applied(&mut self, ledger: &Ledger, errand: &Errand, sent_at: Instant) {
        if !ledger.applied(errand, sent_at) {
            return;
        }
        if errand.duty.ends_shard() {
            tracing::info!(stream = %self.hub.stream, shard = %ledger.shard, epoch = errand.held.epoch, "the shard is read to its end");
            self.hub.agenda.notify_one();
        }
        if errand.duty == Duty::Release {
            self.close(ledger);
        }
    }

    /// The lease is no longer ours.
    fn refused(&mut self, ledger: &Ledger, errand: &Errand, row: Option<Lease>) {
        if !ledger.holds(&errand.held) {
            return;
        }
        self.close(ledger);
        if errand.duty == Duty::Release {
            return;
        }
        let (stream, shard) = (Arc::clone(&self.hub.stream), ledger.shard.clone());
        let owner = row.as_ref().and_then(|row| row.owner.clone());
        match row {
            Some(Lease { owner: Some(owner), epoch, .. })
                if owner == errand.held.owner && epoch > errand.held.epoch =>
            {
                self.hub.fail(KinesisError::DuplicateOwner { stream, shard, owner, epoch });
            }
            _ => {
                let lost = KinesisError::LeaseLost { stream, shard, epoch: errand.held.epoch, owner };
                tracing::warn!(error = %lost, "a lease is lost");
                ledger.report(lost);
            }
        }
    }

    /// Closes the books of a shard, noting what is open while the subscription winds down.
    fn close(&mut self, ledger: &Ledger) {
        self.report.open.extend(ledger.open_deliveries().filter(|_| !self.hub.life.is_running()));
        ledger.retire();
    }

    fn finish(mut self) {
        for ledger in self.ledgers.all().into_iter().filter(|ledger| ledger.is_held()) {
            self.report.unsaved.push(ledger.shard.clone());
            self.close(&ledger);
        }
        self.hub.inbox.end();
        self.hub.life.finish(self.report);
    }
}

/// Ends the life of a subscription with its keeper, however that ends: a lease store that panics and a runtime that goes
/// leave nobody waiting.
struct EndsTheLife {
    hub: Arc<Hub>,
    ledgers: Arc<Ledgers>,
}

impl Drop for EndsTheLife {
    fn drop(&mut self) {
        if self.hub.life.is_over() {
            return;
        }
        self.hub.interrupted();
        let held = self.ledgers.all().into_iter().filter(|ledger| ledger.is_held());
        let mut report = CloseReport::default();
        for ledger in held {
            report.open.extend(ledger.open_deliveries());
            report.unsaved.push(ledger.shard.clone());
            ledger.retire();
        }
        self.hub.inbox.end();
        self.hub.life.finish(report);
    }
}

/// One call on the store.
async fn run(hub: &Hub, errand: &Errand) -> Result<Write, StoreError> {
    let call = match &errand.duty {
        Duty::Save(checkpoint, _) => hub.store.checkpoint(&errand.held, checkpoint),
        Duty::Release => hub.store.release(&errand.held),
        Duty::Renew => hub.store.renew(&errand.held),
    };
    hub.answer(call).await
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => pending().await,
    }
}
