//! One pass: the coordinator reads the lease rows and acts on them.

use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
};

use futures::{StreamExt, stream};
use tokio::{
    select,
    time::{Instant, sleep},
};

use super::{
    CALLS_AT_ONCE, Coordinator, FIRST_PASS_LIMIT, Phase,
    listing::{ListingInFlight, finished},
    opening::SubscriptionOpening,
    pass::Pass,
};
use crate::{
    config::position::Position,
    coordination::{expiry::Unobserved, lineage::InitialShards},
    error::{KinesisError, chain::Chain, service::StoreError, work::Work},
    lease::{Lease, Leases},
    util::timer::sleep_until_some,
};

impl Coordinator {
    /// Reads the leases and acts on them, then sets the time of the next pass. `begun` is the time of the event that
    /// triggered the pass. During the first pass, `subscribe` has not returned yet.
    pub(super) async fn pass(&mut self, begun: Instant, is_first: bool, listing: &mut Option<ListingInFlight>) {
        if !self.context.lifecycle.is_running() {
            return;
        }
        self.has_new_shards = false;
        self.add_announced_children();
        let context = Arc::clone(&self.context);
        context.warnings.log_repeats(&context.stream);
        let asked_at = Instant::now();
        let Some(response) = self.read_leases(listing).await else { return };
        self.list_after_slow_read(asked_at, listing).await;
        let read_at = Instant::now();
        self.enter_sightings();
        self.expiry.asked(asked_at);
        match response {
            Ok(leases) => {
                context.succeeded(Work::ReadLeases);
                let pass = Pass::new(&leases, self.listings.take_ended(), read_at);
                let unobserved = self.table_reads.answered(asked_at, read_at);
                self.apply_leases(&pass, unobserved, begun, is_first).await;
            }
            Err(error) => context.report_store("reading the leases", error),
        }
        // The next pass is due after a renewal interval, or earlier if a lease expires. That time can be in the past,
        // because takes need time.
        let expires = self.expiry.next_expiry(&context.owner, context.settings.lease_ttl, read_at);
        self.next_pass = expires.into_iter().fold(Instant::now() + context.settings.renew_interval, Instant::min);
    }

    /// Reads the rows, and lists the shards meanwhile if that is due: a read of a large table may take minutes. None if
    /// the subscription closes.
    async fn read_leases(&mut self, listing: &mut Option<ListingInFlight>) -> Option<Result<Leases, StoreError>> {
        let context = Arc::clone(&self.context);
        let mut reading = pin!(context.leases());
        loop {
            select! {
                biased;
                _ = context.lifecycle.closing() => return None,
                response = &mut reading => return Some(response),
                // The rows that are about to come are younger than the event that a listing would trigger a pass for.
                outcome = finished(listing) => drop(self.apply_listing(outcome)),
                () = sleep_until_some(self.listings.due_at()) => *listing = Some(self.begin_listing()),
            }
        }
    }

    /// Lists the shards if the rows took so long that the last listing is out of date for a shard without a row.
    /// Without this, a table that is always slow could miss the young listings again and again.
    async fn list_after_slow_read(&mut self, asked_at: Instant, listing: &mut Option<ListingInFlight>) {
        let (context, now) = (Arc::clone(&self.context), Instant::now());
        let patience = context.settings.renew_interval;
        if now < asked_at + patience
            || self.shard_list.takeable().all(|shard| self.shard_list.was_seen_lately(&shard.id, now))
        {
            return;
        }
        if listing.is_none() {
            *listing = Some(self.begin_listing());
        }
        select! {
            biased;
            _ = context.lifecycle.closing() => {}
            outcome = finished(listing) => drop(self.apply_listing(outcome)),
            () = sleep(patience) => {}
        }
    }

    async fn apply_leases(&mut self, pass: &Pass<'_>, unobserved: Unobserved, begun: Instant, is_first: bool) {
        // The rows show what became of these takes, and this pass makes those again that are still needed.
        self.unconfirmed.clear();
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
        self.report_unreadable(pass);
        self.look_for_others(pass);
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
            self.forget_removed(pass);
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

    /// Notes whether another instance is alive. Without one, a reader has nobody to leave its shard to.
    fn look_for_others(&self, pass: &Pass<'_>) {
        let is_other = |row: &&Lease| row.owner.as_ref().is_some_and(|owner| *owner != self.context.owner);
        let ttl = self.context.settings.lease_ttl;
        let is_alive = |row: &Lease| !self.expiry.is_unchanged_for(&row.key.shard, ttl, pass.now);
        let in_sight = pass.rows.iter().filter(is_other).any(is_alive);
        self.context.gauges.others_in_sight.store(in_sight, Ordering::Relaxed);
    }

    /// Decides the opening when shards and rows are known for the first time.
    fn open_if_listed(&mut self, pass: &Pass<'_>, begun: Instant) {
        let Phase::Listed(first) = &self.phase else { return };
        let (rows, foreign): (Vec<&Lease>, Vec<&Lease>) = pass.rows.iter().partition(|row| self.is_of_this_stream(row));
        if !foreign.is_empty() {
            self.plan.initial = Some(Position::Horizon);
            let error = KinesisError::StreamRecreated { stream: Arc::clone(&self.context.stream) };
            tracing::error!(error = %Chain(&error), "ignoring the checkpoints of the old stream");
            self.context.report(None, error);
        }
        // Shards that have a row and are not listed count as missing from here on. A listing older than the pass says
        // nothing about a row that appeared since.
        let listed_at = Some(self.listings.completed_at()).filter(|at| *at >= begun).unwrap_or(pass.now);
        self.shard_list.add_from_rows(&rows, listed_at);
        self.shard_list.add_unreadable(pass.unreadable(), listed_at);
        // The rows may show shards as closed that were open when the subscription began, so the first listing decides.
        let initial = InitialShards::new(&self.plan, first.iter().chain(self.shard_list.inferred()));
        let own = rows.iter().filter(|row| row.owner.as_ref() == Some(&self.context.owner));
        let own = own.map(|row| row.key.shard.clone()).collect();
        let awaited_until = self.started_at + 2 * self.context.settings.lease_ttl;
        let mut opening = SubscriptionOpening::new(&self.plan, initial, &self.shard_list, (&rows, &own), awaited_until);
        // Another instance may hold them.
        opening.await_shards(pass.unreadable());
        self.phase = Phase::Open(opening);
    }
}
