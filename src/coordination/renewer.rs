//! The one task that talks to the lease store for leases that are held: it renews them, stores checkpoints, and
//! releases them, whether or not anyone polls the subscription.
//!
//! There is at most one call under way for each shard, so the writes of a shard keep their order, and the newest
//! watermark wins.

use std::{collections::BTreeSet, sync::Arc};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    select,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};

use crate::{
    coordination::due_queue::DueQueue,
    error::{KinesisError, service::StoreError},
    lease::{Lease, Write},
    state::{
        context::SubscriptionContext,
        shard::{GRAIN, InFlightOp, Shard, Shards, StoreOp},
    },
    types::{close_report::CloseReport, id::ShardId},
    util::timer::sleep_until_some,
};

/// An errand that came back: what the store said, to whom, and when it was sent.
type Back = (Arc<Shard>, InFlightOp, Instant, Result<Write, StoreError>);

/// See the module.
pub(crate) struct LeaseRenewer {
    context: Arc<SubscriptionContext>,
    shards: Arc<Shards>,
    ops: FuturesUnordered<BoxFuture<'static, Back>>,
    /// When to look at single shards, apart from the rounds.
    looks: DueQueue,
    report: CloseReport,
}

/// Starts the keeper. It ends the subscription's life once `coordinator` has ended and every lease is released.
pub(crate) fn start(context: Arc<SubscriptionContext>, shards: Arc<Shards>, coordinator: JoinHandle<()>) {
    let renewer = LeaseRenewer {
        context,
        shards,
        ops: FuturesUnordered::new(),
        looks: DueQueue::default(),
        report: CloseReport::default(),
    };
    tokio::spawn(renewer.run(coordinator));
}

impl LeaseRenewer {
    async fn run(mut self, coordinator: JoinHandle<()>) {
        let context = Arc::clone(&self.context);
        let _ends = EndsTheLife { context: Arc::clone(&context), shards: Arc::clone(&self.shards) };
        let until = select! {
            biased;
            until = context.lifecycle.closing() => until,
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
        let last_try = until.max(Instant::now()) + context.settings.lease_ttl;
        let all_are_released = |shards: &Shards| !shards.all().iter().any(|shard| shard.view().is_held());
        select! {
            biased;
            () = self.keep(all_are_released) => {}
            () = sleep_until(last_try) => {}
        }
        self.finish();
    }

    /// Stops reading every shard; what is in the user's hands may be settled until then.
    fn leave(&self, until: Instant) {
        for shard in self.shards.all() {
            shard.leave(until);
        }
    }

    /// Does what is due, until nothing is any more.
    async fn keep(&mut self, done: impl Fn(&Shards) -> bool) {
        let context = Arc::clone(&self.context);
        let mut rounds = interval(context.settings.round());
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // Whoever has an errand under way is not done. That spares looking at every shard after each of them.
        while !(self.ops.is_empty() && done(&self.shards)) {
            select! {
                biased;
                // Before the errands, which a busy user could keep coming for ever: renewals hang on the rounds.
                _ = rounds.tick() => self.round(),
                Some(back) = self.ops.next() => self.settle(back),
                shards = context.wakeups.due_shards() => self.visit(&shards),
                () = sleep_until_some(self.looks.next()) => self.look(),
            }
        }
    }

    /// DueQueue at the shards that rang.
    fn visit(&mut self, shards: &BTreeSet<ShardId>) {
        for shard_id in shards {
            if let Some(shard) = self.shards.get(shard_id) {
                self.send(&shard);
            }
        }
    }

    /// DueQueue at the shards for which it is time, or nearly so.
    fn look(&mut self) {
        for shard_id in self.looks.take_due(Instant::now() + GRAIN) {
            if let Some(shard) = self.shards.get(&shard_id) {
                self.send(&shard);
            }
        }
    }

    /// DueQueue at every shard: at what was settled without a word, and at leases that are new.
    fn round(&mut self) {
        let now = Instant::now();
        for shard in self.shards.all() {
            shard.warn_if_full(now);
            self.send(&shard);
        }
    }

    /// Sends the errand that is due for this shard, if there is one.
    fn send(&mut self, shard: &Arc<Shard>) {
        let now = Instant::now();
        let Some(op) = shard.next_op(now) else {
            return self.looks.set(&shard.id, shard.next_op_at());
        };
        self.looks.set(&shard.id, None);
        let (context, shard) = (Arc::clone(&self.context), Arc::clone(shard));
        self.ops.push(
            async move {
                let answer = run(&context, &op).await;
                (shard, op, now, answer)
            }
            .boxed(),
        );
    }

    /// Enters what came of an errand, and sends the next one.
    fn settle(&mut self, (shard, op, sent_at, answer): Back) {
        match answer {
            Ok(Write::Applied(())) => self.applied(&shard, &op, sent_at),
            Ok(Write::Refused(row)) => self.refused(&shard, &op, row),
            Err(error) => {
                if shard.failed(&op, &error, Instant::now()) {
                    tracing::warn!(
                        stream = %self.context.stream, shard = %shard.id, epoch = op.held.epoch, %error,
                        "the lease store failed while {}", op.store_op.doing()
                    );
                    shard.report_store(op.store_op.doing(), error);
                }
            }
        }
        self.send(&shard);
    }

    fn applied(&mut self, shard: &Shard, op: &InFlightOp, sent_at: Instant) {
        if !shard.applied(op, sent_at) {
            return;
        }
        if op.store_op.ends_shard() {
            tracing::info!(stream = %self.context.stream, shard = %shard.id, epoch = op.held.epoch, "the shard is read to its end");
            self.context.wakeups.list_now();
        }
        if op.store_op == StoreOp::Release {
            self.close(shard);
        }
    }

    /// The lease is no longer ours.
    fn refused(&mut self, shard: &Shard, op: &InFlightOp, row: Option<Lease>) {
        if !shard.holds(&op.held) {
            return;
        }
        self.close(shard);
        if op.store_op == StoreOp::Release {
            return;
        }
        let (stream, shard_id) = (Arc::clone(&self.context.stream), shard.id.clone());
        let owner = row.as_ref().and_then(|row| row.owner.clone());
        match row {
            Some(Lease { owner: Some(owner), epoch, .. }) if owner == op.held.owner && epoch > op.held.epoch => {
                self.context.fail(KinesisError::DuplicateOwner { stream, shard: shard_id, owner, epoch });
            }
            _ => {
                let lost = KinesisError::LeaseLost { stream, shard: shard_id, epoch: op.held.epoch, owner };
                tracing::warn!(error = %lost, "a lease is lost");
                shard.report(lost);
            }
        }
    }

    /// Closes the books of a shard, noting what is open while the subscription winds down.
    fn close(&mut self, shard: &Shard) {
        self.report.open.extend(shard.open_deliveries().filter(|_| !self.context.lifecycle.is_running()));
        shard.retire();
    }

    fn finish(mut self) {
        for shard in self.shards.all().into_iter().filter(|shard| shard.view().is_held()) {
            self.report.unsaved.push(shard.id.clone());
            self.close(&shard);
        }
        self.context.events.end();
        self.context.lifecycle.finish(self.report);
    }
}

/// Ends the life of a subscription with its keeper, however that ends: a lease store that panics and a runtime that goes
/// leave nobody waiting.
struct EndsTheLife {
    context: Arc<SubscriptionContext>,
    shards: Arc<Shards>,
}

impl Drop for EndsTheLife {
    fn drop(&mut self) {
        if self.context.lifecycle.is_over() {
            return;
        }
        self.context.interrupted();
        let held = self.shards.all().into_iter().filter(|shard| shard.view().is_held());
        let mut report = CloseReport::default();
        for shard in held {
            report.open.extend(shard.open_deliveries());
            report.unsaved.push(shard.id.clone());
            shard.retire();
        }
        self.context.events.end();
        self.context.lifecycle.finish(report);
    }
}

/// One call on the store.
async fn run(context: &SubscriptionContext, op: &InFlightOp) -> Result<Write, StoreError> {
    let call = match &op.store_op {
        StoreOp::Save(checkpoint, _) => context.store.checkpoint(&op.held, checkpoint),
        StoreOp::Release => context.store.release(&op.held),
        StoreOp::Renew => context.store.renew(&op.held),
    };
    context.answer(call).await
}
