//! Listing the shards, and checking whether the stream is still the same.
//!
//! **A listing runs in parallel with everything else.** The coordinator awaits it like any other event, so a listing
//! that hangs delays neither leases nor known shards; only the first pass waits for it. The coordinator applies the
//! result between two reads of the lease table. Only a listing that shows something new triggers another read of the
//! table, so a routine listing costs no read.
//!
//! **A shard that ends during a listing triggers another listing,** because the one under way was requested before the
//! end. Two kinds of children need no listing: those that the last page of the parent named, and those whose other
//! parents ended earlier.
//!
//! **Checking the stream's creation time is done on request, not as a routine.** A refused position, a shard that is
//! not found and an expired iterator each request it. The next listing then calls DescribeStreamSummary as well; one
//! such call answers any number of failures in a row.

use std::{collections::BTreeSet, future::pending, mem, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use tokio::time::Instant;

use super::{
    Coordinator, Phase,
    listing_pages::{ListedAt, Sightings, list_all},
    removed::is_same_stream,
};
use crate::{
    coordination::shard_list::ShardList,
    error::{ErrorClass, KinesisError, chain::Chain, service::FailureKind, work::Work},
    state::context::SubscriptionContext,
    types::id::ShardId,
    util::mutex::lock,
};

/// A listing under way.
pub(super) type ListingInFlight = BoxFuture<'static, ListingOutcome>;

/// The result of a listing.
pub(super) struct ListingOutcome {
    begun: Instant,
    /// When the stream was created. None if nothing requested the check, or if the service did not say.
    created: Option<i64>,
    listed: Result<Vec<ListedAt>, KinesisError>,
}

/// Waits for the listing, if one is under way.
///
/// # Cancel safety
///
/// Cancel safe: the next call continues with the same listing.
pub(super) async fn finished(listing: &mut Option<ListingInFlight>) -> ListingOutcome {
    match listing {
        Some(in_flight) => {
            let outcome = in_flight.await;
            *listing = None;
            outcome
        }
        None => pending().await,
    }
}

impl Coordinator {
    /// Begins to list the shards. The next listing is scheduled when this one is done, unless one is requested before.
    pub(super) fn begin_listing(&mut self) -> ListingInFlight {
        self.listings.begin();
        list_and_check(Arc::clone(&self.context), Arc::clone(&self.sightings), Instant::now()).boxed()
    }

    /// Enters what the pages of a listing under way have shown: a listing of many slow pages takes minutes.
    pub(super) fn enter_sightings(&mut self) {
        for (shard, at) in mem::take(&mut *lock(&self.sightings)) {
            self.shard_list.saw(&shard, at);
        }
    }

    /// Applies the result of a listing. Returns the time of the result if the next pass should start now: the listing
    /// showed something new, or something waited for it.
    pub(super) fn apply_listing(
        &mut self,
        ListingOutcome { begun, created, listed }: ListingOutcome,
    ) -> Option<Instant> {
        let (context, now) = (Arc::clone(&self.context), Instant::now());
        if !is_same_stream(created, self.beginning.created) {
            self.start_over(created);
        }
        self.beginning.created = self.beginning.created.or(created);
        let before = self.shard_list.changes();
        match listed {
            Ok(listed) => {
                context.succeeded(Work::ListShards);
                self.listings.completed(now);
                if matches!(self.phase, Phase::Unlisted) && !listed.is_empty() {
                    self.phase = Phase::Listed(listed.iter().map(|(shard, _)| shard.clone()).collect());
                }
                let shards = Arc::clone(&self.shards);
                let denied = |shard_id: &ShardId| shards.get(shard_id).is_some_and(|shard| shard.view().is_not_found());
                self.removed.extend(self.shard_list.list(listed, (begun, now), denied));
            }
            Err(error) if error.class() == ErrorClass::Fatal => {
                context.fail(error);
                return None;
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the shards could not be listed");
                context.report(None, error);
            }
        }
        let eagerly = self.shard_list.is_empty() || self.misses_children();
        self.listings.end(eagerly, now);
        let is_awaited =
            self.listings.is_awaited(now) || self.phase.opening().is_none() || context.settings.stop_at_tip;
        let returning = self.shards.all().iter().filter(|shard| shard.clear_gave_up()).count();
        self.has_new_shards |= self.shard_list.changes() != before;
        (is_awaited || self.has_new_shards || returning > 0).then_some(now)
    }

    /// The stream was deleted and created again: the coordinator starts over (H7).
    fn start_over(&mut self, created: Option<i64>) {
        self.beginning.created = created;
        self.plan.forced = None;
        self.shard_list = ShardList::default();
        self.removed.clear();
        lock(&self.sightings).clear();
        self.phase = Phase::Unlisted;
        for shard in self.shards.all() {
            shard.reset();
        }
    }

    /// Whether the listing lacks the children of a shard that ended here and is still listed. They appear a little
    /// later.
    pub(super) fn misses_children(&self) -> bool {
        if !self.listings.is_eager(Instant::now()) {
            return false;
        }
        let parents: BTreeSet<&ShardId> = self.shard_list.shards().flat_map(|shard| &shard.parents).collect();
        let ended_here = |shard_id: &ShardId| self.shards.get(shard_id).is_some_and(|shard| shard.view().ended_here());
        self.shard_list.shards().any(|shard| !parents.contains(&shard.id) && ended_here(&shard.id))
    }
}

/// Lists the shards, and checks the stream's creation time first if a failed call requested that.
async fn list_and_check(context: Arc<SubscriptionContext>, sightings: Sightings, begun: Instant) -> ListingOutcome {
    let created = if context.wakeups.take_stream_check() { created(&context).await } else { None };
    ListingOutcome { begun, created, listed: list(&context, &sightings).await }
}

/// When the stream was created. A failure of this call is not reported: the listing that follows reports it.
async fn created(context: &SubscriptionContext) -> Option<i64> {
    let described = context.service.describe(&context.stream).await;
    if described.is_err() {
        context.wakeups.check_stream();
    }
    described.ok()?.created
}

async fn list(context: &SubscriptionContext, sightings: &Sightings) -> Result<Vec<ListedAt>, KinesisError> {
    let failure = match list_all(context, sightings).await {
        Ok(listed) => return Ok(listed),
        Err(failure) => failure,
    };
    let stream = Arc::clone(&context.stream);
    // If the stream itself was deleted, the subscription ends (X1).
    if failure.kind() == FailureKind::NotFound
        && let Err(source) = context.service.describe(&stream).await
        && source.kind() == FailureKind::NotFound
    {
        return Err(KinesisError::StreamGone { stream, source });
    }
    Err(KinesisError::List { stream, source: failure })
}
