//! The task that renews this instance's leases, stores checkpoints and releases leases, whether or not the user polls
//! the subscription. `LeaseTerm::store_op` decides which call is due; this task makes it.
//!
//! **The renewer keeps a queue of due times, one per shard.** A busy shard is due at a time that differs from the
//! others', and checking all shards each time would cost shards times shards. Once per round the renewer still checks
//! all of them, because an `ack` notifies nobody.
//!
//! **One write at a time for each shard; the newest watermark wins.** So the writes of a shard keep their order. A
//! commit makes the write due at once; an ack waits for the checkpoint interval. A checkpoint write counts as a
//! renewal.
//!
//! **Renewals are spread over the interval, and few are under way at once,** so that many leases do not hit the store
//! in one moment. The same bound holds for the last checkpoints and the releases when a subscription closes. Only a
//! call for a lease whose renewal is late by half an interval goes out at once: a slow store must not cost a lease.
//!
//! **Failed calls on the store are retried after 100 ms, doubling to 1 s;** each attempt is abandoned after one renewal
//! interval. A waiting commit gets the error after five failures in a row. The record stays settled and the renewer
//! keeps retrying.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    select,
    task::JoinHandle,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use tracing::Instrument;

use crate::{
    coordination::due_queue::DueQueue,
    error::{
        KinesisError,
        chain::Chain,
        service::{StoreError, StoreErrorKind},
        work::Work,
    },
    lease::{Lease, Write},
    state::{
        context::SubscriptionContext,
        shard::{GRAIN, InFlightOp, NextOp, Shard, Shards, StoreOp},
        warnings::{Cause, warn_once_of},
    },
    types::{close_report::CloseReport, id::ShardId},
    util::{cut::cut, timer::sleep_until_some},
};

/// How many renewals, and writes for leases that are being given up, are under way at once, unless they are late.
const BOUNDED_CALLS_AT_ONCE: usize = 96;

/// A call that is done: its shard, the call, when it was sent, and the response of the store.
type StoreResponse = (Arc<Shard>, InFlightOp, Instant, Result<Write, StoreError>);

/// See the module.
pub(crate) struct LeaseRenewer {
    context: Arc<SubscriptionContext>,
    shards: Arc<Shards>,
    in_flight: FuturesUnordered<BoxFuture<'static, StoreResponse>>,
    /// When to check single shards between the rounds.
    due: DueQueue,
    /// How many of the calls in flight are bounded ones.
    bounded: usize,
    /// Shards whose call waits until fewer are in flight.
    waiting: BTreeSet<ShardId>,
    report: CloseReport,
}

/// Starts the renewer. It ends the subscription once `coordinator` has ended and every lease is released.
pub(crate) fn start(context: Arc<SubscriptionContext>, shards: Arc<Shards>, coordinator: JoinHandle<()>) {
    let (stream, consumer) = (&context.stream, &context.consumer);
    let span = tracing::info_span!("renewer", %stream, %consumer);
    let renewer = LeaseRenewer {
        context,
        shards,
        in_flight: FuturesUnordered::new(),
        due: DueQueue::default(),
        bounded: 0,
        waiting: BTreeSet::new(),
        report: CloseReport::default(),
    };
    tokio::spawn(renewer.run(coordinator).instrument(span));
}

impl LeaseRenewer {
    async fn run(mut self, coordinator: JoinHandle<()>) {
        let context = Arc::clone(&self.context);
        let _ends = EndOnDrop { context: Arc::clone(&context), shards: Arc::clone(&self.shards) };
        let until = select! {
            biased;
            until = context.lifecycle.closing() => until,
            () = self.work_until(|_| false) => return,
        };
        self.leave(until);
        // Once the coordinator has ended, in whatever way, it takes no more leases.
        select! {
            biased;
            _ = coordinator => {}
            () = self.work_until(|_| false) => return,
        }
        self.leave(until);
        let last_try = until.max(Instant::now()) + context.settings.lease_ttl;
        let all_are_released = |shards: &Shards| !shards.all().iter().any(|shard| shard.view().is_held());
        select! {
            biased;
            () = self.work_until(all_are_released) => {}
            () = sleep_until(last_try) => {}
        }
        self.finish();
    }

    /// Stops reading every shard. Open deliveries may be settled until then.
    fn leave(&self, until: Instant) {
        for shard in self.shards.all() {
            shard.leave(until);
        }
    }

    /// Makes the calls that are due, until no call is in flight and the shards are done.
    async fn work_until(&mut self, done: impl Fn(&Shards) -> bool) {
        let context = Arc::clone(&self.context);
        let mut rounds = interval(context.settings.round());
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // With a call in flight it cannot be done. Testing that first spares checking every shard after each call.
        while !(self.in_flight.is_empty() && done(&self.shards)) {
            select! {
                biased;
                // Rounds go before responses: a busy user can produce responses without an end, and renewals depend on
                // the rounds.
                _ = rounds.tick() => self.round(),
                Some(response) = self.in_flight.next() => self.complete(response),
                shards = context.wakeups.due_shards() => self.send_woken(&shards),
                () = sleep_until_some(self.due.next()) => self.send_due(),
            }
        }
    }

    /// Checks the shards that asked for a write at once.
    fn send_woken(&mut self, shards: &BTreeSet<ShardId>) {
        for shard_id in shards {
            if let Some(shard) = self.shards.get(shard_id) {
                self.send(&shard);
            }
        }
    }

    /// Checks the shards that are due, or will be within a few milliseconds.
    fn send_due(&mut self) {
        for shard_id in self.due.take_due(Instant::now() + GRAIN) {
            if let Some(shard) = self.shards.get(&shard_id) {
                self.send(&shard);
            }
        }
    }

    /// Checks every shard: it finds acks, which notify nobody, and new leases.
    fn round(&mut self) {
        let now = Instant::now();
        for shard in self.shards.all() {
            shard.warn_if_full(now);
            shard.warn_if_unanswered(now);
            self.send(&shard);
        }
    }

    /// Starts the call that is due for this shard, if there is one.
    fn send(&mut self, shard: &Arc<Shard>) {
        let now = Instant::now();
        let op = match shard.next_op(now, self.bounded >= BOUNDED_CALLS_AT_ONCE) {
            NextOp::None => return self.due.set(&shard.id, shard.next_op_at()),
            NextOp::WaitsUntil(until) => {
                self.waiting.insert(shard.id.clone());
                return self.due.set(&shard.id, Some(until));
            }
            NextOp::Send(op) => op,
        };
        self.due.set(&shard.id, None);
        self.bounded += usize::from(op.is_bounded);
        let (context, shard) = (Arc::clone(&self.context), Arc::clone(shard));
        self.in_flight.push(
            async move {
                let answer = call_store(&context, &op).await;
                (shard, op, now, answer)
            }
            .boxed(),
        );
    }

    /// Applies the response to a call, and starts the next call for its shard.
    fn complete(&mut self, (shard, op, sent_at, answer): StoreResponse) {
        if answer.is_ok() {
            self.context.succeeded(Work::WriteLeases);
        }
        match answer {
            Ok(Write::Applied(())) => self.applied(&shard, &op, sent_at),
            Ok(Write::Refused(row)) => self.refused(&shard, &op, row),
            Err(error) => {
                // The coordinator reports an unreadable row, and does so less often.
                if shard.failed(&op, &error, Instant::now()) && error.kind() != StoreErrorKind::UnreadableRow {
                    let doing = op.store_op.doing();
                    let what = "the lease store failed while";
                    warn_once_of!(
                        self.context.warnings.is_first(Cause::of_store(what, doing)),
                        shard = %shard.id, epoch = op.held.epoch, error = %Chain(&error), "{what} {doing}"
                    );
                    shard.report_store(op.store_op.doing(), error);
                }
            }
        }
        self.send(&shard);
        if op.is_bounded {
            self.bounded -= 1;
            while self.bounded < BOUNDED_CALLS_AT_ONCE
                && let Some(shard_id) = self.waiting.pop_first()
            {
                if let Some(shard) = self.shards.get(&shard_id) {
                    self.send(&shard);
                }
            }
        }
    }

    fn applied(&mut self, shard: &Shard, op: &InFlightOp, sent_at: Instant) {
        if !shard.applied(op, sent_at) {
            return;
        }
        if op.store_op.ends_shard() {
            tracing::info!(shard = %shard.id, epoch = op.held.epoch, "the shard is read to its end");
            self.context.wakeups.shard_ended();
        }
        if op.store_op == StoreOp::Release {
            self.close(shard);
        }
    }

    /// The lease belongs to another instance now.
    fn refused(&mut self, shard: &Shard, op: &InFlightOp, row: Option<Lease>) {
        if !shard.holds(&op.held) {
            return;
        }
        self.close(shard);
        if op.store_op == StoreOp::Release {
            return;
        }
        let (stream, shard_id) = (Arc::clone(&self.context.stream), shard.id.clone());
        let owner = row.as_ref().and_then(|row| row.owner.as_ref()).map(|owner| Arc::from(cut(owner)));
        match row {
            Some(Lease { owner: Some(owner), epoch, .. }) if owner == op.held.owner && epoch > op.held.epoch => {
                self.context.fail(KinesisError::DuplicateOwner { stream, shard: shard_id, owner, epoch });
            }
            _ => {
                let lost = KinesisError::LeaseLost { stream, shard: shard_id, epoch: op.held.epoch, owner };
                self.context.gauges.lost.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(error = %Chain(&lost), "a lease is lost");
                shard.report(lost);
            }
        }
    }

    /// Retires a shard. While the subscription closes, its open deliveries go into the report.
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

/// Ends the subscription when its renewer ends in any way. So nobody is left waiting if a lease store panics or the
/// runtime shuts down.
struct EndOnDrop {
    context: Arc<SubscriptionContext>,
    shards: Arc<Shards>,
}

impl Drop for EndOnDrop {
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

/// Makes one call on the store.
async fn call_store(context: &SubscriptionContext, op: &InFlightOp) -> Result<Write, StoreError> {
    let (name, call) = match &op.store_op {
        StoreOp::Save(checkpoint, _) => ("checkpoint", context.store.checkpoint(&op.held, checkpoint)),
        StoreOp::Release => ("release", context.store.release(&op.held)),
        StoreOp::Renew => ("renew", context.store.renew(&op.held)),
    };
    context.answer(name, call).await
}
