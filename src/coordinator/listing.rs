//! Listing the shards, and looking whether the stream is still the same.

use std::{collections::BTreeSet, sync::Arc};

use tokio::{
    select,
    time::{Duration, Instant},
};

use super::Coordinator;
use crate::{
    catalogue::Catalogue,
    error::{ErrorClass, KinesisError},
    failure::{FailureKind, ServiceFailure},
    hub::Hub,
    id::ShardId,
    service::{ListedShard, Listing},
};

/// How soon a listing is repeated that failed before any shard was known, or that does not show the children of an ended
/// shard yet.
const EAGER_INTERVAL: Duration = Duration::from_secs(1);

impl Coordinator {
    /// Lists the shards. False if the subscription is over.
    pub(super) async fn list(&mut self) -> bool {
        let (hub, begun) = (Arc::clone(&self.hub), Instant::now());
        let listed = select! {
            biased;
            _ = hub.life.closing() => return false,
            listed = self.look() => listed,
        };
        let now = Instant::now();
        self.next_listing = now + hub.settings.list_interval;
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
                return false;
            }
            Err(error) => {
                tracing::warn!(%error, "the shards could not be listed");
                hub.inbox.error(None, error);
            }
        }
        if self.catalogue.is_empty() || self.lacks_children() {
            self.next_listing = self.next_listing.min(now + EAGER_INTERVAL);
        }
        true
    }

    /// Looks at the stream, if there is doubt about it, and at its shards.
    async fn look(&mut self) -> Result<Vec<ListedShard>, KinesisError> {
        if self.hub.was_in_doubt() {
            self.look_again().await;
        }
        let failure = match list_all(&self.hub).await {
            Ok(listed) => return Ok(listed),
            Err(failure) => failure,
        };
        let stream = Arc::clone(&self.hub.stream);
        // That the stream itself is gone ends the subscription (X1).
        if failure.kind() == FailureKind::NotFound
            && let Err(source) = self.hub.service.describe(&stream).await
            && source.kind() == FailureKind::NotFound
        {
            return Err(KinesisError::StreamGone { stream, source });
        }
        Err(KinesisError::List { stream, source: failure })
    }

    /// Looks whether the stream was deleted and created again meanwhile: then everything begins anew (H7).
    async fn look_again(&mut self) {
        let created = match self.hub.service.describe(&self.hub.stream).await {
            Ok(described) => described.created,
            // What is wrong with the stream, the listing says.
            Err(_) => return self.hub.doubt_a_little(),
        };
        if created.is_none() || created == self.beginning.created {
            return;
        }
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
