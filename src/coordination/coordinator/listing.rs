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

use std::{collections::BTreeSet, future::pending, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use tokio::time::{Duration, Instant};

use super::task::Coordinator;
use crate::{
    coordination::shard_list::ShardList,
    error::{
        ErrorClass, KinesisError,
        chain::Chain,
        service::{FailureKind, ServiceFailure},
    },
    kinesis::{ListedShard, Listing},
    state::context::SubscriptionContext,
    types::id::ShardId,
};

/// How soon to repeat a listing that failed before any shard was known, or that does not show the children of an ended
/// shard yet.
const EAGER_INTERVAL: Duration = Duration::from_secs(1);

/// A listing under way.
pub(super) type ListingInFlight = BoxFuture<'static, ListingOutcome>;

/// The result of a listing.
pub(super) struct ListingOutcome {
    begun: Instant,
    /// When the stream was created. None if nothing requested the check, or if the service did not say.
    created: Option<i64>,
    listed: Result<Vec<ListedShard>, KinesisError>,
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
        self.next_listing = None;
        self.is_listing = true;
        list_and_check(Arc::clone(&self.context), Instant::now()).boxed()
    }

    /// Applies the result of a listing. Returns the time of the result if the next pass should start now: the listing
    /// showed something new, or something waited for it.
    pub(super) fn apply_listing(
        &mut self,
        ListingOutcome { begun, created, listed }: ListingOutcome,
    ) -> Option<Instant> {
        let (context, now) = (Arc::clone(&self.context), Instant::now());
        (self.is_listing, self.lists) = (false, true);
        if created.is_some() && created != self.beginning.created {
            self.start_over(created);
        }
        let before = self.shard_list.changes();
        match listed {
            Ok(listed) => {
                self.listed_at = now;
                if self.opening.is_none() && self.first_listing.is_none() && !listed.is_empty() {
                    self.first_listing = Some(listed.clone());
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
                context.events.error(None, error);
            }
        }
        let next = self.next_listing.unwrap_or(now + context.settings.list_interval);
        let eagerly = self.shard_list.is_empty() || self.misses_children();
        self.next_listing = Some(if eagerly { next.min(now + EAGER_INTERVAL) } else { next });
        let is_needed = now < self.eager_until
            || self.stale_sightings > 0
            || self.opening.is_none()
            || context.settings.stop_at_tip;
        let returning = self.shards.all().iter().filter(|shard| shard.clear_gave_up()).count();
        (is_needed || self.shard_list.changes() != before || returning > 0).then_some(now)
    }

    /// The stream was deleted and created again: the coordinator starts over (H7).
    fn start_over(&mut self, created: Option<i64>) {
        self.beginning.created = created;
        self.plan.forced = None;
        self.shard_list = ShardList::default();
        self.removed.clear();
        (self.opening, self.first_listing) = (None, None);
        for shard in self.shards.all() {
            shard.reset();
        }
    }

    /// Whether the listing lacks the children of a shard that ended here and is still listed. They appear a little
    /// later.
    pub(super) fn misses_children(&self) -> bool {
        if Instant::now() >= self.eager_until {
            return false;
        }
        let parents: BTreeSet<&ShardId> = self.shard_list.shards().flat_map(|shard| &shard.parents).collect();
        let ended_here = |shard_id: &ShardId| self.shards.get(shard_id).is_some_and(|shard| shard.view().ended_here());
        self.shard_list.shards().any(|shard| !parents.contains(&shard.id) && ended_here(&shard.id))
    }
}

/// Lists the shards, and checks the stream's creation time first if a failed call requested that.
async fn list_and_check(context: Arc<SubscriptionContext>, begun: Instant) -> ListingOutcome {
    let created = if context.wakeups.take_stream_check() { created(&context).await } else { None };
    ListingOutcome { begun, created, listed: list(&context).await }
}

/// When the stream was created. A failure of this call is not reported: the listing that follows reports it.
async fn created(context: &SubscriptionContext) -> Option<i64> {
    let described = context.service.describe(&context.stream).await;
    if described.is_err() {
        context.wakeups.check_stream();
    }
    described.ok()?.created
}

async fn list(context: &SubscriptionContext) -> Result<Vec<ListedShard>, KinesisError> {
    let failure = match list_all(context).await {
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

/// All shards of the stream, page by page.
async fn list_all(context: &SubscriptionContext) -> Result<Vec<ListedShard>, ServiceFailure> {
    let mut page = context.service.list(Listing::Stream(&context.stream)).await?;
    let mut listed = page.shards;
    while let Some(token) = page.next {
        page = context.service.list(Listing::Token(&token)).await?;
        listed.append(&mut page.shards);
    }
    Ok(listed)
}
