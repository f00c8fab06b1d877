//! The pages of one listing.
//!
//! A listing ends with the page that has no token. A server that always returns a token would keep it from ending, so a
//! listing that makes no progress fails: it repeats a token, or shows no new shard for many pages.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
};

use tokio::time::Instant;

use crate::{
    error::service::{Action, FailureKind, ServiceFailure},
    kinesis::{ListedPage, ListedShard, Listing},
    state::context::SubscriptionContext,
    types::id::ShardId,
    util::mutex::lock,
};

/// How many pages in a row may show no new shard. A page has up to 1,000 shards.
const MOST_IDLE_PAGES: u32 = 100;

/// A shard, and when the page that shows it came.
pub(super) type ListedAt = (ListedShard, Instant);

/// The shards that the pages of a listing under way have shown, each with the time when its page came.
pub(super) type Sightings = Arc<Mutex<Vec<(ShardId, Instant)>>>;

/// All shards of the stream, page by page.
pub(super) async fn list_all(
    context: &SubscriptionContext,
    sightings: &Sightings,
) -> Result<Vec<ListedAt>, ServiceFailure> {
    let mut pages = ListingPages::default();
    loop {
        let page = context.service.list(pages.next(&context.stream)).await?;
        let now = Instant::now();
        lock(sightings).extend(page.shards.iter().map(|shard| (shard.id.clone(), now)));
        if pages.add(page, now)? {
            return Ok(pages.listed);
        }
    }
}

/// The pages so far.
#[derive(Debug, Default)]
struct ListingPages {
    listed: Vec<ListedAt>,
    seen: BTreeSet<ShardId>,
    token: Option<String>,
    /// Pages in a row that showed no new shard.
    idle: u32,
}

impl ListingPages {
    /// Which page to ask for.
    fn next<'a>(&'a self, stream: &'a str) -> Listing<'a> {
        self.token.as_deref().map_or(Listing::Stream(stream), Listing::Token)
    }

    /// Adds a page that came at this time. Returns whether it is the last one. A shard counts once.
    fn add(&mut self, page: ListedPage, now: Instant) -> Result<bool, ServiceFailure> {
        let before = self.listed.len();
        let new = page.shards.into_iter().filter(|shard| self.seen.insert(shard.id.clone()));
        self.listed.extend(new.map(|shard| (shard, now)));
        self.idle = if self.listed.len() > before { 0 } else { self.idle + 1 };
        if page.next.is_some() && page.next == self.token {
            return Err(endless("it returned the same token twice in a row"));
        }
        if page.next.is_some() && self.idle >= MOST_IDLE_PAGES {
            return Err(endless("it returned 100 pages without a new shard"));
        }
        self.token = page.next;
        Ok(self.token.is_none())
    }
}

fn endless(what: &str) -> ServiceFailure {
    ServiceFailure::new(Action::ListShards, FailureKind::Other, format!("the listing has no end: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds pages `shards>token` in turn. The text says how the listing went: the shards, `..` if it continues, or the
    /// error.
    fn outcome<'a>(pages: impl IntoIterator<Item = &'a str>) -> String {
        let mut listing = ListingPages::default();
        for page in pages {
            let (shards, token) = page.split_once('>').unwrap();
            let shard = |id: &str| ListedShard { id: id.into(), parents: Vec::new(), closed: false };
            let shards = shards.split_terminator(',').map(shard).collect();
            let next = (!token.is_empty()).then(|| token.to_owned());
            match listing.add(ListedPage { shards, next }, Instant::now()) {
                Ok(false) => {}
                Ok(true) => return listing.listed.iter().map(|(shard, _)| shard.id.as_str()).collect(),
                Err(failure) => return failure.to_string(),
            }
        }
        "..".to_owned()
    }

    // L5
    #[test]
    fn a_listing_that_makes_no_progress_is_an_error() {
        let same = "kinesis:ListShards failed: the listing has no end: it returned the same token twice in a row";
        let idle = "kinesis:ListShards failed: the listing has no end: it returned 100 pages without a new shard";
        assert_eq!(outcome(["a,b>1", "c>2", ">3", "d>"]), "abcd");
        assert_eq!(outcome(["a>1", "b>1", "c>"]), same);
        assert_eq!(outcome([">1", ">1"]), same);
        // A shard that is listed twice counts once.
        assert_eq!(outcome(["a>1", "a>2", "b>"]), "ab");
        assert_eq!(outcome(["a>1", ">2"].into_iter().cycle().take(1_000)), idle);
        assert_eq!(outcome([">1", ">2"].into_iter().cycle().take(99)), "..");
        assert_eq!(outcome([">1", ">2"].into_iter().cycle().take(99).chain([">"])), "");
        let pages: Vec<_> = (0..100_000).map(|page| format!("{page}>{page}")).collect();
        assert_eq!(outcome(pages.iter().map(String::as_str)), "..");
    }
}
