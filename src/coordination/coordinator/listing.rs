//! Listing the shards, and looking whether the stream is still the same. It is done beside everything else: a call that
//! hangs holds up neither the leases nor the shards that are known.

use std::{collections::BTreeSet, future::pending, sync::Arc};

use futures::{FutureExt, future::BoxFuture};
use tokio::time::{Duration, Instant};

use super::Coordinator;
use crate::{
    coordination::shard_list::Catalogue,
    error::{
        ErrorClass, KinesisError,
        chain::Chain,
        service::{FailureKind, ServiceFailure},
    },
    kinesis::{ListedShard, Listing},
    state::context::Hub,
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
        look(Arc::clone(&self.hub), Instant::now()).boxed()
    }

    /// Takes in what a listing came to. Gives when it came if the leases should be looked at now, and not with the next round:
    /// it brought something, or something waits for it.
    pub(super) fn take_in(&mut self, Looked { begun, created, listed }: Looked) -> Option<Instant> {
        let (hub, now) = (Arc::clone(&self.hub), Instant::now());
        (self.is_listing, self.lists) = (false, true);
        if created.is_some() && created != self.beginning.created {
            self.begin_anew(created);
        }
        let before = self.catalogue.changes();
        match listed {
            Ok(listed) => {
                self.listed_at = now;
                if self.opening.is_none() && self.first_listing.is_none() && !listed.is_empty() {
                    self.first_listing = Some(listed.clone());
                }
                let ledgers = Arc::clone(&self.ledgers);
                let denied = |shard: &ShardId| ledgers.get(shard).is_some_and(|ledger| ledger.is_denied());
                self.gone.extend(self.catalogue.list(listed, (begun, now), denied));
            }
            Err(error) if error.class() == ErrorClass::Fatal => {
                hub.fail(error);
                return None;
            }
            Err(error) => {
                tracing::warn!(error = %Chain(&error), "the shards could not be listed");
                hub.inbox.error(None, error);
            }
        }
        let next = self.next_listing.unwrap_or(now + hub.settings.list_interval);
        let eagerly = self.catalogue.is_empty() || self.lacks_children();
        self.next_listing = Some(if eagerly { next.min(now + EAGER_INTERVAL) } else { next });
        let is_awaited =
            now < self.eager_until || self.doubtful > 0 || self.opening.is_none() || hub.settings.stop_at_tip;
        let returning = self.ledgers.all().iter().filter(|ledger| ledger.was_listed()).count();
        (is_awaited || self.catalogue.changes() != before || returning > 0).then_some(now)
    }

    /// The stream was deleted and created again meanwhile: everything begins anew (H7).
    fn begin_anew(&mut self, created: Option<i64>) {
        self.beginning.created = created;
        self.plan.forced = None;
        self.catalogue = Catalogue::default();
        self.gone.clear();
        (self.opening, self.first_listing) = (None, None);
        for ledger in self.ledgers.all() {
            ledger.reset();
        }
    }

    /// Whether a shard that ended here, and is still listed, has no children in the listing: they appear a little later.
    pub(super) fn lacks_children(&self) -> bool {
        if Instant::now() >= self.eager_until {
            return false;
        }
        let parents: BTreeSet<&ShardId> = self.catalogue.shards().flat_map(|shard| &shard.parents).collect();
        let ended_here = |shard: &ShardId| self.ledgers.get(shard).is_some_and(|ledger| ledger.ended_here());
        self.catalogue.shards().any(|shard| !parents.contains(&shard.id) && ended_here(&shard.id))
    }
}

/// Looks at the stream, if there is doubt about it, and at its shards.
async fn look(hub: Arc<Hub>, begun: Instant) -> Looked {
    let created = if hub.was_in_doubt() { created(&hub).await } else { None };
    Looked { begun, created, listed: list(&hub).await }
}

/// When the stream was created. What is wrong with it, the listing says.
async fn created(hub: &Hub) -> Option<i64> {
    let described = hub.service.describe(&hub.stream).await;
    if described.is_err() {
        hub.doubt_a_little();
    }
    described.ok()?.created
}

async fn list(hub: &Hub) -> Result<Vec<ListedShard>, KinesisError> {
    let failure = match list_all(hub).await {
        Ok(listed) => return Ok(listed),
        Err(failure) => failure,
    };
    let stream = Arc::clone(&hub.stream);
    // That the stream itself is gone ends the subscription (X1).
    if failure.kind() == FailureKind::NotFound
        && let Err(source) = hub.service.describe(&stream).await
        && source.kind() == FailureKind::NotFound
    {
        return Err(KinesisError::StreamGone { stream, source });
    }
    Err(KinesisError::List { stream, source: failure })
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
