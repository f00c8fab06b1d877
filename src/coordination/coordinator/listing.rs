//! Listing the shards, and looking whether the stream is still the same. It is done beside everything else: a call that
//! hangs holds up neither the leases nor the shards that are known.

use std::{collections::BTreeSet, future::pending, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use tokio::time::{Duration, Instant};

use super::Coordinator;
use crate::{
    coordination::shard_list::ShardList,
    error::{
        ErrorClass, KinesisError,
        service::{FailureKind, ServiceFailure},
    },
    kinesis::{ListedShard, Listing},
    state::context::SubscriptionContext,
    types::id::ShardId,
};

/// How soon a listing is repeated that failed before any shard was known, or that does not show the children of an ended
/// shard yet.
const EAGER_INTERVAL: Duration = Duration::from_secs(1);

/// A listing under way.
pub(super) type UnderWay = BoxFuture<'static, Looked>;

/// What a listing came to.
pub(super) struct Looked {
    begun: Instant,
    /// When the stream was created, if there was doubt about it, and the service said so.
    created: Option<i64>,
    listed: Result<Vec<ListedShard>, KinesisError>,
}

/// Waits for the listing, if one is under way.
///
/// # Cancel safety
///
/// Cancel safe: the listing goes on with the next call.
pub(super) async fn answer(listing: &mut Option<UnderWay>) -> Looked {
    match listing {
        Some(under_way) => {
            let looked = under_way.await;
            *listing = None;
            looked
        }
        None => pending().await,
    }
}

impl Coordinator {
    /// Begins to list the shards. The next listing is set when this one is back, unless it is asked for meanwhile.
    pub(super) fn begin_listing(&mut self) -> UnderWay {
        self.next_listing = None;
        self.is_listing = true;
        look(Arc::clone(&self.context), Instant::now()).boxed()
    }

    /// Takes in what a listing came to. Gives when it came if the leases should be looked at now, and not with the next round:
    /// it brought something, or something waits for it.
    pub(super) fn take_in(&mut self, Looked { begun, created, listed }: Looked) -> Option<Instant> {
        let (context, now) = (Arc::clone(&self.context), Instant::now());
        (self.is_listing, self.lists) = (false, true);
        if created.is_some() && created != self.beginning.created {
            self.begin_anew(created);
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
                self.gone.extend(self.shard_list.list(listed, (begun, now), denied));
            }
            Err(error) if error.class() == ErrorClass::Fatal => {
                context.fail(error);
                return None;
            }
            Err(error) => {
                tracing::warn!(%error, "the shards could not be listed");
                context.events.error(None, error);
            }
        }
        let next = self.next_listing.unwrap_or(now + context.settings.list_interval);
        let eagerly = self.shard_list.is_empty() || self.lacks_children();
        self.next_listing = Some(if eagerly { next.min(now + EAGER_INTERVAL) } else { next });
        let is_awaited =
            now < self.eager_until || self.doubtful > 0 || self.opening.is_none() || context.settings.stop_at_tip;
        let returning = self.shards.all().iter().filter(|shard| shard.clear_gave_up()).count();
        (is_awaited || self.shard_list.changes() != before || returning > 0).then_some(now)
    }

    /// The stream was deleted and created again meanwhile: everything begins anew (H7).
    fn begin_anew(&mut self, created: Option<i64>) {
        self.beginning.created = created;
        self.plan.forced = None;
        self.shard_list = ShardList::default();
        self.gone.clear();
        (self.opening, self.first_listing) = (None, None);
        for shard in self.shards.all() {
            shard.reset();
        }
    }

    /// Whether a shard that ended here, and is still listed, has no children in the listing: they appear a little later.
    pub(super) fn lacks_children(&self) -> bool {
        if Instant::now() >= self.eager_until {
            return false;
        }
        let parents: BTreeSet<&ShardId> = self.shard_list.shards().flat_map(|shard_id| &shard_id.parents).collect();
        let ended_here = |shard_id: &ShardId| self.shards.get(shard_id).is_some_and(|shard| shard.view().ended_here());
        self.shard_list.shards().any(|shard_id| !parents.contains(&shard_id.id) && ended_here(&shard_id.id))
    }
}

/// DueQueue at the stream, if there is doubt about it, and at its shards.
async fn look(context: Arc<SubscriptionContext>, begun: Instant) -> Looked {
    let created = if context.wakeups.take_stream_check() { created(&context).await } else { None };
    Looked { begun, created, listed: list(&context).await }
}

/// When the stream was created. What is wrong with it, the listing says.
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
    // That the stream itself is gone ends the subscription (X1).
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
