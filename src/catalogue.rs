//! The shards of a stream as several listings together show them: pure, with the time passed in.
//!
//! A listing is eventually consistent: one that lacks a shard says nothing yet. A shard is gone when two complete
//! listings some time apart lack it, or when one does and the service says so for that very shard (H6). Until then it
//! stays here as it was, and holds its children back. A shard can also be known before any listing shows it: from the
//! last page of its parent, or from its lease row.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::{Duration, Instant};

use crate::{id::ShardId, lease::Lease, service::ListedShard};

/// How far apart two listings that lack a shard have to be.
const MISSING_FOR: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Catalogue {
    shards: BTreeMap<ShardId, Entry>,
    gone: BTreeSet<ShardId>,
}

#[derive(Debug)]
struct Entry {
    shard: ListedShard,
    /// The first of the listings in a row that lack it.
    missing_since: Option<Instant>,
    /// Nothing but a lease row says that it exists.
    is_memory: bool,
}

/// A shard that is gone.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) shard: ShardId,
    /// It was never seen: its row alone said that it was there.
    pub(crate) was_memory: bool,
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

    /// Whether the shard was there and is gone. One that was never seen may just be newer than the last listing.
    pub(crate) fn is_gone(&self, shard: &ShardId) -> bool {
        self.gone.contains(shard) && !self.has(shard)
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
    ) -> Vec<Gone> {
        let mut missing = std::mem::take(&mut self.shards);
        for shard in listing {
            missing.remove(&shard.id);
            self.shards.insert(shard.id.clone(), Entry { shard, missing_since: None, is_memory: false });
        }
        let mut gone = Vec::new();
        for (id, mut entry) in missing {
            let since = *entry.missing_since.get_or_insert(now);
            if now >= since + MISSING_FOR || denied(&id) {
                self.gone.insert(id.clone());
                gone.push(Gone { shard: id, was_memory: entry.is_memory });
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

    /// Takes in the shards of rows which the first listing, made at that time, lacks: they may have been missed by it.
    /// A shard that was not read to its end, and a child of which was read nevertheless, was gone before.
    pub(crate) fn remember(&mut self, rows: &[&Lease], listed_at: Instant) {
        let read = rows.iter().filter(|row| row.checkpoint.is_some());
        let passed: BTreeSet<&ShardId> = read.flat_map(|row| &row.parents).collect();
        for row in rows.iter().filter(|row| row.is_ended() || !passed.contains(&row.key.shard)) {
            let shard = || ListedShard { id: row.key.shard.clone(), parents: row.parents.clone(), closed: true };
            let entry = || Entry { shard: shard(), missing_since: Some(listed_at), is_memory: true };
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

    fn list(catalogue: &mut Catalogue, shards: &[&str], now: Instant) -> Vec<ShardId> {
        let gone = catalogue.list(shards.iter().map(|id| shard(id)).collect(), now, |_| false);
        gone.into_iter().map(|gone| gone.shard).collect()
    }

    // H6
    #[test]
    fn a_shard_is_gone_when_two_listings_ten_seconds_apart_lack_it() {
        let (mut catalogue, start) = (Catalogue::default(), Instant::now());
        list(&mut catalogue, &["a", "b"], start);
        assert!(list(&mut catalogue, &["b"], start + seconds(1)).is_empty());
        assert!(list(&mut catalogue, &["b"], start + seconds(10)).is_empty());
        assert_eq!(ids(catalogue.shards()), ["a", "b"]);
        assert_eq!(list(&mut catalogue, &["b"], start + seconds(11)), ["a".into()]);
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
        assert_eq!(list(&mut catalogue, &[], start + seconds(23)), ["a".into()]);
    }

    // H6
    #[test]
    fn a_shard_that_the_service_denies_is_gone_with_the_first_listing_that_lacks_it() {
        let (mut catalogue, start) = (Catalogue::default(), Instant::now());
        list(&mut catalogue, &["a", "b"], start);
        let gone = catalogue.list(vec![shard("b")], start, |id| id.as_str() == "a");
        assert!(matches!(&gone[..], [Gone { shard, was_memory: false }] if shard.as_str() == "a"));
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
