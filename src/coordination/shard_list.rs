//! The shards of a stream, combined from several listings. Pure, with the time passed in.
//!
//! **Why several listings are combined.** A listing is eventually consistent. A shard that one listing lacks still
//! exists. A shard that a parent's last page names exists before any listing shows it, and so does the parent of a new
//! shard.
//!
//! **When a shard is removed.** Two complete listings at least 10 s apart lack it, or one listing lacks it and the
//! service denied that this shard exists (H6). Until then the shard stays here unchanged and its children wait for it.
//!
//! **Inferred shards.** A shard can be known before any listing shows it: from the last page of its parent, from its
//! lease row, or as the parent of a shard that is newer than the first listing. In the first listing, a parent that is
//! not listed was removed long ago.

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::{Duration, Instant};

use crate::{kinesis::ListedShard, lease::Lease, types::id::ShardId};

/// How far apart two listings that lack a shard must be for the shard to count as removed.
const MISSING_FOR: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ShardList {
    shards: BTreeMap<ShardId, KnownShard>,
    removed: BTreeSet<ShardId>,
    has_listed: bool,
    changes: u64,
}

#[derive(Debug)]
struct KnownShard {
    shard: ListedShard,
    /// When the page of a listing that shows it came, or when the last page of its parent named it. None for an
    /// inferred shard.
    seen_at: Option<Instant>,
    /// When the first of the consecutive listings that lack it was done.
    missing_since: Option<Instant>,
}

impl KnownShard {
    fn new(shard: ListedShard, seen_at: Instant) -> Self {
        Self { shard, seen_at: Some(seen_at), missing_since: None }
    }

    /// A shard that only its lease row or its children show.
    fn inferred(id: &ShardId, parents: &[ShardId], missing_since: Instant) -> Self {
        let shard = ListedShard { id: id.clone(), parents: parents.to_vec(), closed: true };
        Self { shard, seen_at: None, missing_since: Some(missing_since) }
    }

    fn is_inferred(&self) -> bool {
        self.seen_at.is_none()
    }
}

/// A shard that was removed from the stream.
#[derive(Debug)]
pub(crate) struct RemovedShard {
    pub(crate) shard: ShardId,
    /// It was never listed: only its row or its children showed it.
    pub(crate) was_inferred: bool,
}

impl ShardList {
    /// Every shard that was not removed, by id.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &ListedShard> {
        self.shards.values().map(|known| &known.shard)
    }

    /// The shards that can be read. An inferred shard is not among them: its children wait for it, but nothing reads
    /// it.
    pub(crate) fn takeable(&self) -> impl Iterator<Item = &ListedShard> {
        self.shards.values().filter(|known| !known.is_inferred()).map(|known| &known.shard)
    }

    /// The shards that only a lease row or a child shows.
    pub(crate) fn inferred(&self) -> impl Iterator<Item = &ListedShard> {
        self.shards.values().filter(|known| known.is_inferred()).map(|known| &known.shard)
    }

    pub(crate) fn has(&self, shard: &ShardId) -> bool {
        self.shards.contains_key(shard)
    }

    /// Whether the shard existed and was removed. A shard that was never seen may just be newer than the last listing.
    pub(crate) fn is_removed(&self, shard: &ShardId) -> bool {
        self.removed.contains(shard) && !self.has(shard)
    }

    /// Whether the shard was seen so recently that no instance can consider it removed yet. A removed shard may have
    /// had a row that was deleted.
    pub(crate) fn was_seen_lately(&self, shard: &ShardId, now: Instant) -> bool {
        self.shards.get(shard).and_then(|known| known.seen_at).is_some_and(|seen_at| now < seen_at + MISSING_FOR)
    }

    /// Counts the shards that appeared, were closed or were removed. While the number stays the same, nothing is new.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.shards.is_empty()
    }

    /// A page of a listing under way showed the shard at this time.
    pub(crate) fn saw(&mut self, shard: &ShardId, at: Instant) {
        if let Some(known) = self.shards.get_mut(shard) {
            known.seen_at = known.seen_at.map(|seen_at| seen_at.max(at));
        }
    }

    /// Applies a complete listing that was made between these two times, and returns the shards that it proves removed.
    /// Each shard comes with the time when its page came.
    /// `denied` tells whether the service denied that this shard exists.
    pub(crate) fn list(
        &mut self,
        listing: Vec<(ListedShard, Instant)>,
        (begun, done): (Instant, Instant),
        denied: impl Fn(&ShardId) -> bool,
    ) -> Vec<RemovedShard> {
        let mut missing = std::mem::take(&mut self.shards);
        let mut parents = Vec::new();
        for (shard, at) in listing {
            let mut known = KnownShard::new(shard, at);
            if let Some(before) = missing.remove(&known.shard.id).filter(|before| !before.is_inferred()) {
                self.changes += u64::from(before.shard.closed != known.shard.closed);
                // Its parent may have named it while the listing was under way.
                known.seen_at = known.seen_at.max(before.seen_at);
            } else {
                self.changes += 1;
                parents.extend(known.shard.parents.iter().filter(|_| self.has_listed).cloned());
            }
            self.shards.insert(known.shard.id.clone(), known);
        }
        let mut removed = Vec::new();
        for (id, mut known) in missing {
            let since = *known.missing_since.get_or_insert(done);
            if begun >= since + MISSING_FOR || denied(&id) {
                self.changes += 1;
                self.removed.insert(id.clone());
                removed.push(RemovedShard { shard: id, was_inferred: known.is_inferred() });
            } else {
                self.shards.insert(id, known);
            }
        }
        self.add_parents(parents, done);
        self.has_listed = true;
        removed
    }

    /// Adds the parents of new shards: the listings missed those that they did not show.
    fn add_parents(&mut self, parents: impl IntoIterator<Item = ShardId>, now: Instant) {
        for id in parents {
            if !self.removed.contains(&id) {
                self.shards.entry(id.clone()).or_insert_with(|| KnownShard::inferred(&id, &[], now));
            }
        }
    }

    /// Adds shards that the last page of their parent named, before any listing shows them.
    pub(crate) fn add_children(&mut self, children: &[ListedShard], now: Instant) {
        for shard in children {
            if self.shards.get(&shard.id).is_none_or(KnownShard::is_inferred) {
                self.shards.insert(shard.id.clone(), KnownShard::new(shard.clone(), now));
                self.add_parents(shard.parents.iter().cloned(), now);
            }
        }
    }

    /// Adds the shards of rows that the first listing, made at that time, lacks: it may have missed them. A shard that
    /// was not read to its end although a child of it was read had been removed before, so it is not added.
    pub(crate) fn add_from_rows(&mut self, rows: &[&Lease], listed_at: Instant) {
        let read = rows.iter().filter(|row| row.checkpoint.is_some());
        let passed: BTreeSet<&ShardId> = read.flat_map(|row| &row.parents).collect();
        for row in rows.iter().filter(|row| row.is_ended() || !passed.contains(&row.key.shard)) {
            let inferred = || KnownShard::inferred(&row.key.shard, &row.parents, listed_at);
            self.shards.entry(row.key.shard.clone()).or_insert_with(inferred);
        }
    }

    /// Adds the shards of rows that exist and make no sense, if the first listing, made at that time, lacks them.
    pub(crate) fn add_unreadable<'a>(&mut self, shards: impl Iterator<Item = &'a ShardId>, listed_at: Instant) {
        for id in shards {
            self.shards.entry(id.clone()).or_insert_with(|| KnownShard::inferred(id, &[], listed_at));
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

    fn at(time: Instant, shards: Vec<ListedShard>) -> Vec<(ListedShard, Instant)> {
        shards.into_iter().map(|shard| (shard, time)).collect()
    }

    fn list(shard_list: &mut ShardList, shards: &[&str], now: Instant) -> Vec<ShardId> {
        let removed = shard_list.list(at(now, shards.iter().map(|id| shard(id)).collect()), (now, now), |_| false);
        removed.into_iter().map(|removed| removed.shard).collect()
    }

    // H6
    #[test]
    fn a_shard_is_removed_when_two_listings_ten_seconds_apart_lack_it() {
        let (mut shard_list, start) = (ShardList::default(), Instant::now());
        list(&mut shard_list, &["a", "b"], start);
        assert!(list(&mut shard_list, &["b"], start + seconds(1)).is_empty());
        assert!(list(&mut shard_list, &["b"], start + seconds(10)).is_empty());
        assert_eq!(ids(shard_list.shards()), ["a", "b"]);
        assert_eq!(list(&mut shard_list, &["b"], start + seconds(11)), ["a".into()]);
        assert_eq!(ids(shard_list.shards()), ["b"]);
    }

    // H6
    #[test]
    fn a_slow_listing_counts_from_when_it_began() {
        let (mut shard_list, start) = (ShardList::default(), Instant::now());
        list(&mut shard_list, &["a"], start);
        list(&mut shard_list, &[], start + seconds(1));
        let slow = (start + seconds(5), start + seconds(12));
        assert!(shard_list.list(Vec::new(), slow, |_| false).is_empty());
        assert_eq!(list(&mut shard_list, &[], start + seconds(11)), ["a".into()]);
    }

    // H6
    #[test]
    fn a_shard_that_is_listed_again_was_never_removed() {
        let (mut shard_list, start) = (ShardList::default(), Instant::now());
        list(&mut shard_list, &["a"], start);
        list(&mut shard_list, &[], start + seconds(1));
        list(&mut shard_list, &["a"], start + seconds(2));
        assert!(list(&mut shard_list, &[], start + seconds(13)).is_empty());
        assert_eq!(list(&mut shard_list, &[], start + seconds(23)), ["a".into()]);
    }

    // H6
    #[test]
    fn a_shard_that_the_service_denies_is_removed_with_the_first_listing_that_lacks_it() {
        let (mut shard_list, start) = (ShardList::default(), Instant::now());
        list(&mut shard_list, &["a", "b"], start);
        let removed = shard_list.list(at(start, vec![shard("b")]), (start, start), |id| id.as_str() == "a");
        assert!(matches!(&removed[..], [RemovedShard { shard, was_inferred: false }] if shard.as_str() == "a"));
        assert!(shard_list.list(at(start, vec![shard("b")]), (start, start), |_| true).is_empty());
    }

    // H6
    #[test]
    fn children_wait_for_a_parent_that_a_listing_lacks_unless_it_is_the_first_listing() {
        let (mut shard_list, start) = (ShardList::default(), Instant::now());
        let child = |id: &str, parent: &str| ListedShard { parents: vec![parent.into()], ..shard(id) };
        shard_list.list(at(start, vec![child("b", "a")]), (start, start), |_| false);
        assert_eq!(ids(shard_list.shards()), ["b"]);
        let later = start + seconds(1);
        shard_list.list(at(later, vec![child("b", "a"), child("d", "c")]), (later, later), |_| false);
        assert_eq!((ids(shard_list.shards()), ids(shard_list.takeable())), (vec!["b", "c", "d"], vec!["b", "d"]));
        // A listing shows the parent now, but not the parent's own parent.
        shard_list.list(at(later, vec![child("d", "c"), child("c", "b2")]), (later, later), |_| false);
        assert_eq!(
            (ids(shard_list.shards()), ids(shard_list.takeable())),
            (vec!["b", "b2", "c", "d"], vec!["b", "c", "d"])
        );
        let shard_list = &mut ShardList::default();
        shard_list.list(at(start, Vec::new()), (start, start), |_| false);
        shard_list.list(at(later, vec![child("d", "c")]), (later, later), |_| false);
        let removed = shard_list.list(
            at(start + seconds(11), vec![child("d", "c")]),
            (start + seconds(11), start + seconds(11)),
            |_| false,
        );
        assert!(matches!(&removed[..], [RemovedShard { shard, was_inferred: true }] if shard.as_str() == "c"));
    }

    // H4
    #[test]
    fn a_child_is_known_before_a_listing_shows_it() {
        let (mut shard_list, start) = (ShardList::default(), Instant::now());
        list(&mut shard_list, &["a"], start);
        shard_list.add_children(&[shard("a1"), shard("a2")], start);
        list(&mut shard_list, &["a"], start + seconds(1));
        assert_eq!(ids(shard_list.shards()), ["a", "a1", "a2"]);
    }

    // H6
    #[test]
    fn a_sighting_is_as_young_as_its_page() {
        let (mut shard_list, start) = (ShardList::default(), Instant::now());
        let listing = vec![(shard("a"), start + seconds(1)), (shard("b"), start + seconds(30))];
        shard_list.list(listing, (start, start + seconds(30)), |_| false);
        let seen = |shard_list: &ShardList, time| {
            ["a", "b"].map(|id| shard_list.was_seen_lately(&id.into(), start + seconds(time)))
        };
        assert_eq!((seen(&shard_list, 30), seen(&shard_list, 40)), ([false, true], [false, false]));
        // The first page of the next listing came.
        shard_list.saw(&"a".into(), start + seconds(41));
        shard_list.saw(&"x".into(), start + seconds(41));
        assert_eq!((seen(&shard_list, 50), seen(&shard_list, 51)), ([true, false], [false, false]));
        // A shard that only its row or its child shows has not been seen.
        shard_list.add_unreadable([ShardId::from("c")].iter(), start);
        shard_list.saw(&"c".into(), start + seconds(60));
        assert!(!shard_list.was_seen_lately(&"c".into(), start + seconds(60)));
    }
}
