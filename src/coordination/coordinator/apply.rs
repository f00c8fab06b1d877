//! One pass: the coordinator reads the lease rows and acts on them.

use std::sync::Arc;

use futures::{StreamExt, stream};
use tokio::time::Instant;

use super::{CALLS_AT_ONCE, Coordinator, FIRST_PASS_LIMIT, Phase, opening::SubscriptionOpening, pass::Pass};
use crate::{
    config::position::Position,
    coordination::{expiry::Unobserved, lineage::InitialShards},
    error::{KinesisError, chain::Chain},
    lease::Lease,
};

impl Coordinator {
    /// Reads the leases and acts on them, then sets the time of the next pass. `begun` is the time of the event that
    /// triggered the pass. During the first pass, `subscribe` has not returned yet.
    pub(super) async fn pass(&mut self, begun: Instant, is_first: bool) {
        if !self.context.lifecycle.is_running() {
            return;
        }
        self.has_new_shards = false;
        self.add_announced_children();
        let context = Arc::clone(&self.context);
        let response = context.answer(context.store.leases(&context.consumer, &context.stream)).await;
        let read_at = Instant::now();
        match response {
            Ok(rows) => {
                let pass = Pass::new(&rows, self.listings.take_ended(), read_at);
                self.apply_leases(&pass, begun, is_first).await;
            }
            Err(error) => context.report_store("reading the leases", error),
        }
        // The next pass is due after a renewal interval, or earlier if a lease expires. That time can be in the past,
        // because takes need time.
        let expires = self.expiry.next_expiry(&context.owner, context.settings.lease_ttl, read_at);
        self.next_pass = expires.into_iter().fold(Instant::now() + context.settings.renew_interval, Instant::min);
    }

    async fn apply_leases(&mut self, pass: &Pass<'_>, begun: Instant, is_first: bool) {
        // The rows show what became of these takes, and this pass makes those again that are still needed.
        self.unconfirmed.clear();
        let unobserved = self.looks.look(pass.now);
        self.expiry.observe(pass.rows, unobserved, pass.now);
        self.requests.observe(pass.rows, &self.context.owner, unobserved, pass.now);
        if let Some(twins) = self.find_twin(pass, unobserved) {
            return self.context.fail(KinesisError::DuplicateOwner {
                stream: Arc::clone(&self.context.stream),
                shard: twins.key.shard.clone(),
                owner: Arc::clone(&self.context.owner),
                epoch: twins.epoch,
            });
        }
        self.open_if_listed(pass, begun);
        self.leave_removed(pass);
        self.hand_over(pass);
        let candidates = self.candidates(pass);
        let this = &*self;
        let opens_until = is_first.then(|| this.started_at + FIRST_PASS_LIMIT);
        let takes = stream::iter(candidates.take).map(|candidate| this.take(candidate, opens_until));
        let outcomes: Vec<_> = takes.buffer_unordered(CALLS_AT_ONCE).collect().await;
        for outcome in outcomes.into_iter().flatten() {
            self.enter(outcome);
        }
        self.trial_shard = self.trial_shard(&candidates.would_take, pass);
        let asks = self.ask(pass, &candidates.would_take).await;
        self.asked = asks;
        if self.context.settings.stop_at_tip {
            self.context.events.finish(!asks && self.is_all_read(pass));
        }
        if pass.after_listing {
            self.delete_stale_rows(pass).await;
        }
    }

    /// A row that shows that another process runs under this owner id and that this one must yield (E4).
    fn find_twin<'a>(&mut self, pass: &Pass<'a>, unobserved: Unobserved) -> Option<&'a Lease> {
        let Self { context, shards, expiry, ownership, .. } = self;
        let (me, ttl) = (&context.owner, context.settings.lease_ttl);
        ownership.adopt(pass.rows, me);
        let in_my_name = || pass.rows.iter().filter(|row| row.owner.as_ref() == Some(me));
        let is_held = |shard_id| shards.get(shard_id).is_some_and(|shard| shard.view().is_held());
        if let Some(row) = in_my_name().find(|row| ownership.is_overtaken(row) && is_held(&row.key.shard)) {
            return Some(row);
        }
        let alive = in_my_name().filter(|row| !expiry.is_expired(&row.key.shard, ttl, pass.now));
        ownership.yields_to(alive, ttl, (unobserved, pass.now))
    }

    /// Decides the opening when shards and rows are known for the first time.
    fn open_if_listed(&mut self, pass: &Pass<'_>, begun: Instant) {
        let Phase::Listed(first) = &self.phase else { return };
        let (rows, foreign): (Vec<&Lease>, Vec<&Lease>) = pass.rows.iter().partition(|row| self.is_of_this_stream(row));
        if !foreign.is_empty() {
            self.plan.initial = Some(Position::Horizon);
            let error = KinesisError::StreamRecreated { stream: Arc::clone(&self.context.stream) };
            tracing::warn!(error = %Chain(&error), "ignoring the checkpoints of the old stream");
            self.context.events.error(None, error);
        }
        // Shards that have a row and are not listed count as missing from here on. A listing older than the pass says
        // nothing about a row that appeared since.
        let listed_at = Some(self.listings.completed_at()).filter(|at| *at >= begun).unwrap_or(pass.now);
        self.shard_list.add_from_rows(&rows, listed_at);
        // The rows may show shards as closed that were open when the subscription began, so the first listing decides.
        let initial = InitialShards::new(&self.plan, first.iter().chain(self.shard_list.inferred()));
        let own = rows.iter().filter(|row| row.owner.as_ref() == Some(&self.context.owner));
        let own = own.map(|row| row.key.shard.clone()).collect();
        let awaited_until = self.started_at + 2 * self.context.settings.lease_ttl;
        let opening = SubscriptionOpening::new(&self.plan, initial, &self.shard_list, (&rows, &own), awaited_until);
        self.phase = Phase::Open(opening);
    }
}
