//! The shards of a stream as several listings together show them: pure, with the time passed in.
//!
//! A listing is eventually consistent: one that lacks a shard says nothing yet. A shard is gone when two complete
//! listings some time apart lack it, or when one does and the service says so for that very shard (H6). Until then it
//! stays here as it was, and holds its children back. A shard can also be known before any listing shows it: from the
//! last page of its parent, or from its lease row.

use std::collections::BTreeMap;

use tokio::time::{Duration, Instant};

use crate::{id::ShardId, lease::Lease, service::ListedShard};

/// How far apart two listings that lack a shard have to be.
const MISSING_FOR: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    shards: BTreeMap<ShardId, Entry>,
}

#[derive(Debug)]
struct Entry {
    shard: ListedShard,
    /// The first of the listings in a row that lack it.
    missing_since: Option<Instant>,
    /// Nothing but a lease row says that it exists.
    is_memory: bool,
}

impl Catalogue {
    /// Every shard that is not gone, by id.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &ListedShard> {
        self.shards.values().map(|entry| &entry.shard)
    }

    /// Those that can be read, as far as is known: a shard that is known from its row alone is waited for, not read.
    pub(crate) fn takeable(&self) -> impl Iterator<Item = &ListedShard> {
        self.shards.values().filter(|entry| !entry.is_memory).map(|entry| &entry.shard)
    }

    pub(crate) fn has(&self, shard: &ShardId) -> bool {
        self.shards.contains_key(shard)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// Takes in a complete listing, and gives the shards that are gone by it. `denied` says whether the service denied
    /// that this shard exists.
    pub(crate) fn list(
        &mut self,
        listing: Vec<ListedShard>,
        now: Instant,
        denied: impl Fn(&ShardId) -> bool,
    ) -> Vec<ListedShard> {
        let mut missing = std::mem::take(&mut self.shards);
        for shard in listing {
            missing.remove(&shard.id);
            self.shards.insert(shard.id.clone(), Entry { shard, missing_since: None, is_memory: false });
        }
        let mut gone = Vec::new();
        for (id, mut entry) in missing {
            let since = *entry.missing_since.get_or_insert(now);
            if now >= since + MISSING_FOR || denied(&id) {
                gone.push(entry.shard);
            } else {
                self.shards.insert(id, entry);
            }
        }
        gone
    }

    /// Takes in shards that the last page of their parent named, before any listing shows them.
    pub(crate) fn announce(&mut self, children: &[ListedShard]) {
        for shard in children {
            let entry = || Entry { shard: shard.clone(), missing_since: None, is_memory: false };
            self.shards.entry(shard.id.clone()).or_insert_with(entry);
        }
    }

    /// Takes in the shards of rows whose end is not stored and which the first listing lacks: they may have been missed
    /// by it.
    pub(crate) fn remember(&mut self, rows: &[&Lease], now: Instant) {
        for row in rows.iter().filter(|row| !row.is_ended()) {
            let shard = || ListedShard { id: row.key.shard.clone(), parents: row.parents.clone(), closed: true };
            let entry = || Entry { shard: shard(), missing_since: Some(now), is_memory: true };
            self.shards.entry(row.key.shard.clone()).or_insert_with(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(id: &str) -> ListedShard {
        ListedShard { id: id.into(), parents: Vec::new(), closed: false }
    }

    fn ids<'a>(shards: impl IntoIterator<Item = &'a ListedShard>) -> Vec<&'a str> {
        shards.into_iter().map(|shard| shard.id.as_str()).collect()
    }

    fn seconds(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn list(catalogue: &mut Catalogue, shards: &[&str], now: Instant) -> Vec<ListedShard> {
        catalogue.list(shards.iter().map(|id| shard(id)).collect(), now, |_| false)
    }

    // H6
    #[test]
    fn a_shard_is_gone_when_two_listings_ten_seconds_apart_lack_it() {
        let (mut catalogue, start) = (Catalogue::default(), Instant::now());
        list(&mut catalogue, &["a", "b"], start);
        assert!(list(&mut catalogue, &["b"], start + seconds(1)).is_empty());
        assert!(list(&mut catalogue, &["b"], start + seconds(10)).is_empty());
        assert_eq!(ids(catalogue.shards()), ["a", "b"]);
        assert_eq!(ids(&list(&mut catalogue, &["b"], start + seconds(11))), ["a"]);
        assert_eq!(ids(catalogue.shards()), ["b"]);
    }

    // H6
    #[test]
    fn a_shard_that_is_listed_again_was_never_gone() {
        let (mut catalogue, start) = (Catalogue::default(), Instant::now());
        list(&mut catalogue, &["a"], start);
        list(&mut catalogue, &[], start + seconds(1));
        list(&mut catalogue, &["a"], start + seconds(2));
        assert!(list(&mut catalogue, &[], start + seconds(13)).is_empty());
        assert_eq!(ids(&list(&mut catalogue, &[], start + seconds(23))), ["a"]);
    }

    // H6
    #[test]
    fn a_shard_that_the_service_denies_is_gone_with_the_first_listing_that_lacks_it() {
        let (mut catalogue, start) = (Catalogue::default(), Instant::now());
        list(&mut catalogue, &["a", "b"], start);
        let gone = catalogue.list(vec![shard("b")], start, |id| id.as_str() == "a");
        assert_eq!(ids(&gone), ["a"]);
        assert!(catalogue.list(vec![shard("b")], start, |_| true).is_empty());
    }

    // H4
    #[test]
    fn a_child_is_known_before_a_listing_shows_it() {
        let (mut catalogue, start) = (Catalogue::default(), Instant::now());
        list(&mut catalogue, &["a"], start);
        catalogue.announce(&[shard("a1"), shard("a2")]);
        list(&mut catalogue, &["a"], start + seconds(1));
        assert_eq!(ids(catalogue.shards()), ["a", "a1", "a2"]);
    }
}
