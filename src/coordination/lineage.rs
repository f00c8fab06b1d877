//! Which shards may be read: the order that splits and merges impose (H1, H5, H6). Pure: a listing and the lease rows
//! go in, a verdict on each shard comes out.
//!
//! A shard is read after every parent that the stream still lists. The parent's row tells whether it was read to its
//! end. Children do not wait for two kinds of parents without a row: those that this consumer passed over
//! ([`Verdict::PassedOver`]), and those whose row was deleted, which a checkpoint of a descendant shows.
//!
//! **A shard that is passed over stays passed over.** Under LATEST, a shard that was closed before the subscription
//! began, and of whose line nothing was ever read, has nothing to offer. The first listing decides this once. If that
//! listing arrives only after `subscribe` has returned, no shard is passed over and LATEST becomes a time.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    config::position::{Checkpoint, Plan},
    kinesis::ListedShard,
    types::id::ShardId,
};

/// How far the consumer has read a shard that has a lease row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// An instance took the shard; nothing was delivered yet.
    Open,
    /// There is a checkpoint before the end of the shard.
    Begun,
    /// The end of the shard is stored.
    Ended,
    /// The row makes no sense, so nobody can tell.
    Unreadable,
}

impl From<Option<&Checkpoint>> for Progress {
    fn from(checkpoint: Option<&Checkpoint>) -> Self {
        match checkpoint {
            None => Self::Open,
            Some(Checkpoint::Since(_) | Checkpoint::At(_) | Checkpoint::After(_)) => Self::Begun,
            Some(Checkpoint::ShardEnd) => Self::Ended,
        }
    }
}

/// What to do with a listed shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may be read. A child, in the sense of [`Role::child`](crate::config::position::Role::child), opens at its
    /// oldest record if it has no checkpoint.
    Ready { child: bool },
    /// These parents must be read to their end first.
    Waits(BTreeSet<ShardId>),
    /// It was read to its end.
    Done,
    /// Its row makes no sense. It is not read, and its children wait.
    Unreadable,
    /// It was closed before the subscription began, no instance ever read it or an ancestor of it, and the plan is to
    /// read new records only: it has nothing to offer (H5). Its children are no children in the sense of R6, even if
    /// some of them have checkpoints by now: those without a checkpoint still open at the tip.
    PassedOver,
}

/// The shards of the first complete listing of a subscription, or of a seek. All others appeared later.
#[derive(Clone, Debug)]
pub(crate) struct InitialShards {
    /// For each shard, whether it is passed over if it is unread: it was closed, and the plan would open it at the tip.
    /// This is decided once. A shard that closes later was open when the subscription began, so its records since then
    /// must be read.
    shards: BTreeMap<ShardId, bool>,
    /// A forced position replays the whole stream (R6), so a shard without a row is read even if a descendant has a
    /// checkpoint: an earlier start at LATEST may have passed it over.
    replays: bool,
}

impl InitialShards {
    pub(crate) fn new<'a>(plan: &Plan, listed: impl IntoIterator<Item = &'a ListedShard>) -> Self {
        let shards = listed.into_iter().map(|shard| (shard.id.clone(), shard.closed && plan.skips_unread(&shard.id)));
        Self { shards: shards.collect(), replays: plan.replays() }
    }

    /// Whether the shard existed when the subscription began.
    pub(crate) fn has(&self, shard: &ShardId) -> bool {
        self.shards.contains_key(shard)
    }

    fn is_replayed(&self, shard: &ShardId) -> bool {
        self.replays && self.has(shard)
    }

    fn skips_unread(&self, shard: &ShardId) -> bool {
        self.shards.get(shard).is_some_and(|skips| *skips)
    }
}

/// The parents of every listed shard.
type Parents<'a> = BTreeMap<&'a ShardId, &'a [ShardId]>;

/// A verdict on every listed shard.
///
/// `known` holds the progress of every row, including rows of shards that are no longer listed. A subscription with a
/// forced position shows the shards that it still has to replay as [`Progress::Open`].
///
/// Nearly linear in shards and parents. If the parents of a listing form a circle, the edge that closes it is ignored,
/// so that no shard waits without an end.
pub(crate) fn verdicts<'a>(
    listed: impl IntoIterator<Item = &'a ListedShard>,
    known: &BTreeMap<ShardId, Progress>,
    initial: &InitialShards,
) -> BTreeMap<ShardId, Verdict> {
    let parents = listed.into_iter().map(|shard| (&shard.id, shard.parents.as_slice())).collect();
    let order = parents_first(&parents);
    let has_checkpoint = |progress| matches!(progress, Progress::Begun | Progress::Ended);
    let read_below = ancestors_of(&order, &parents, known, has_checkpoint);
    let unreadable_below = ancestors_of(&order, &parents, known, |progress| progress == Progress::Unreadable);
    let mut verdicts = BTreeMap::new();
    for id in order {
        let above = ParentsRead::of(id, &parents, known, &verdicts);
        let verdict = match known.get(id) {
            Some(Progress::Ended) => Verdict::Done,
            Some(Progress::Unreadable) => Verdict::Unreadable,
            None if initial.skips_unread(id) && above.unread.is_empty() && !above.read => {
                // If a descendant may have a checkpoint, the others open at their oldest record rather than at the tip.
                if unreadable_below.contains(id) { Verdict::Done } else { Verdict::PassedOver }
            }
            None if read_below.contains(id) && !initial.is_replayed(id) => Verdict::Done,
            _ if above.unread.is_empty() => Verdict::Ready { child: above.read || !initial.has(id) },
            _ => Verdict::Waits(above.unread),
        };
        verdicts.insert(id.clone(), verdict);
    }
    verdicts
}

/// How far the parents of one shard were read.
struct ParentsRead {
    /// Listed parents that must be read first.
    unread: BTreeSet<ShardId>,
    /// At least one parent was read: to its end, or until the stream removed it.
    read: bool,
}

impl ParentsRead {
    /// A listed parent has its verdict before its children do, except on an edge that closes a circle.
    fn of(
        id: &ShardId,
        parents: &Parents<'_>,
        known: &BTreeMap<ShardId, Progress>,
        verdicts: &BTreeMap<ShardId, Verdict>,
    ) -> Self {
        let mut above = Self { unread: BTreeSet::new(), read: false };
        for parent in parents[id] {
            match verdicts.get(parent) {
                Some(Verdict::Ready { .. } | Verdict::Waits(_) | Verdict::Unreadable) => {
                    above.unread.insert(parent.clone());
                }
                Some(Verdict::Done) => above.read = true,
                Some(Verdict::PassedOver) => {}
                None => above.read |= known.contains_key(parent) && !parents.contains_key(parent),
            }
        }
        above
    }
}

/// The listed shards, each after its listed parents. It is a loop, not a recursion, because a lineage can be as deep as
/// the listing is long.
fn parents_first<'a>(parents: &Parents<'a>) -> Vec<&'a ShardId> {
    enum Walk<'a> {
        Visit(&'a ShardId),
        Place(&'a ShardId),
    }
    let mut order = Vec::with_capacity(parents.len());
    let mut visited = BTreeSet::new();
    let mut steps: Vec<_> = parents.keys().rev().map(|id| Walk::Visit(id)).collect();
    while let Some(step) = steps.pop() {
        match step {
            Walk::Visit(id) => {
                if let Some(above) = parents.get(id)
                    && visited.insert(id)
                {
                    steps.push(Walk::Place(id));
                    steps.extend(above.iter().map(Walk::Visit));
                }
            }
            Walk::Place(id) => order.push(id),
        }
    }
    order
}

/// The shards that have a descendant with such a row. If a descendant has a checkpoint, a shard without a row counts as
/// read (H6).
fn ancestors_of<'a>(
    parents_first: &[&'a ShardId],
    parents: &Parents<'a>,
    known: &BTreeMap<ShardId, Progress>,
    has: impl Fn(Progress) -> bool,
) -> BTreeSet<&'a ShardId> {
    let mut above = BTreeSet::new();
    for id in parents_first.iter().rev() {
        if above.contains(id) || known.get(*id).copied().is_some_and(&has) {
            above.extend(parents[id]);
        }
    }
    above
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*, sample::Index};

    use super::*;
    use crate::config::position::KinesisPosition;

    type Rows = BTreeMap<ShardId, Progress>;

    /// `c!<p,q` is a closed shard `c` with the parents `p` and `q`.
    fn listing(text: &str) -> Vec<ListedShard> {
        let shard = |word: &str| {
            let (name, parents) = word.split_once('<').unwrap_or((word, ""));
            ListedShard {
                id: name.trim_end_matches('!').into(),
                parents: parents.split_terminator(',').map(ShardId::from).collect(),
                closed: name.ends_with('!'),
            }
        };
        text.split_whitespace().map(shard).collect()
    }

    /// `p=ended c=open`
    fn rows(text: &str) -> Rows {
        let row = |word: &str| {
            let (shard, progress) = word.split_once('=').unwrap();
            let progress = match progress {
                "open" => Progress::Open,
                "begun" => Progress::Begun,
                "ended" => Progress::Ended,
                "spoilt" => Progress::Unreadable,
                _ => panic!("{word}"),
            };
            (shard.into(), progress)
        };
        text.split_whitespace().map(row).collect()
    }

    fn plan(name: &str) -> Plan {
        let position = match name {
            "latest" => KinesisPosition::latest(),
            "horizon" => KinesisPosition::horizon(),
            "record of m" => KinesisPosition::sequence("m", "1"),
            "replay" => return Plan { forced: Some(KinesisPosition::horizon().0), ..Plan::default() },
            _ => panic!("{name}"),
        };
        Plan { initial: Some(position.0), ..Plan::default() }
    }

    fn text(verdicts: &BTreeMap<ShardId, Verdict>) -> String {
        let word = |(id, verdict): (&ShardId, &Verdict)| match verdict {
            Verdict::Ready { child: false } => format!("{id}:ready"),
            Verdict::Ready { child: true } => format!("{id}:child"),
            Verdict::Waits(parents) => {
                let parents: Vec<_> = parents.iter().map(ShardId::as_str).collect();
                format!("{id}:after({})", parents.join(","))
            }
            Verdict::Done => format!("{id}:done"),
            Verdict::Unreadable => format!("{id}:unreadable"),
            Verdict::PassedOver => format!("{id}:passed"),
        };
        verdicts.iter().map(word).collect::<Vec<_>>().join(" ")
    }

    /// Each line: what it shows, plan, listing (the first listing goes before a `/` if it differs), rows, verdicts.
    fn check(table: &[(&str, &str, &str, &str, &str)]) {
        for (name, from, listings, known, expected) in table {
            let (first, now) = listings.split_once('/').unwrap_or((listings, listings));
            let initial = InitialShards::new(&plan(from), &listing(first));
            assert_eq!(text(&verdicts(&listing(now), &rows(known), &initial)), *expected, "{name}");
        }
    }

    // E6, H5
    #[test]
    fn a_shard_whose_row_makes_no_sense_holds_back_its_children_alone() {
        check(&[
            ("no other shard", "horizon", "a b", "a=spoilt b=begun", "a:unreadable b:ready"),
            ("its children", "horizon", "p! c<p d", "p=spoilt", "c:after(p) d:ready p:unreadable"),
            ("under LATEST, too", "latest", "p! c<p d", "p=spoilt", "c:after(p) d:ready p:unreadable"),
            (
                "not its parents and siblings, which are read from the start rather than skipped",
                "latest",
                "p! c<p d<p",
                "c=spoilt",
                "c:unreadable d:child p:done",
            ),
            (
                "a parent that is to be read is read",
                "horizon",
                "p! c<p d<p",
                "c=spoilt",
                "c:unreadable d:after(p) p:ready",
            ),
        ]);
    }

    // H1
    #[test]
    fn children_wait_for_all_their_listed_parents() {
        check(&[
            ("a split", "horizon", "p! a<p b<p", "", "a:after(p) b:after(p) p:ready"),
            ("a split, the parent in the middle", "horizon", "p! a<p b<p", "p=begun", "a:after(p) b:after(p) p:ready"),
            ("a split, the parent read", "horizon", "p! a<p b<p", "p=ended", "a:child b:child p:done"),
            ("a merge", "horizon", "p! q! c<p,q", "", "c:after(p,q) p:ready q:ready"),
            ("a merge, one parent read", "horizon", "p! q! c<p,q", "p=ended q=begun", "c:after(q) p:done q:ready"),
            ("a merge, both parents read", "horizon", "p! q! c<p,q", "p=ended q=ended", "c:child p:done q:done"),
            (
                "a split of a split",
                "horizon",
                "p! a!<p b<p c<a d<a",
                "",
                "a:after(p) b:after(p) c:after(a) d:after(a) p:ready",
            ),
            (
                "a split of a split, the first read",
                "horizon",
                "p! a!<p b<p c<a d<a",
                "p=ended",
                "a:child b:child c:after(a) d:after(a) p:done",
            ),
            (
                "a merge of the children of two splits",
                "horizon",
                "p! q! a<p b!<p c!<q d<q m<b,c",
                "p=ended b=ended",
                "a:child b:done c:after(q) d:after(q) m:after(c) p:done q:ready",
            ),
            (
                "three generations between two listings",
                "latest",
                "p q / p! q! a<p b!<p c!<q d<q m!<b,c x<m y<m",
                "p=open q=begun",
                "a:after(p) b:after(p) c:after(q) d:after(q) m:after(b,c) p:ready q:ready x:after(m) y:after(m)",
            ),
        ]);
    }

    // H1, H6
    #[test]
    fn children_do_not_wait_for_a_parent_that_is_no_longer_listed() {
        check(&[
            ("never read", "horizon", "a<p b<p", "", "a:ready b:ready"),
            ("never read, from the tip", "latest", "a<p b<p", "", "a:ready b:ready"),
            ("read to its end", "latest", "a<p b<p", "p=ended", "a:child b:child"),
            ("trimmed while it was read", "latest", "a!<p b<a", "p=begun", "a:child b:after(a)"),
            ("one of a merge", "horizon", "q! c<p,q", "", "c:after(q) q:ready"),
        ]);
    }

    // H6
    #[test]
    fn a_listed_parent_without_a_row_is_unread_unless_a_descendant_has_a_checkpoint() {
        check(&[
            ("a child is leased and has no checkpoint", "horizon", "p! a<p", "a=open", "a:after(p) p:ready"),
            ("a child has a checkpoint", "horizon", "p! a<p b<p", "a=begun", "a:child b:child p:done"),
            ("a child was read", "horizon", "p! a!<p c<a", "a=ended", "a:done c:child p:done"),
            ("a grandchild has a checkpoint", "horizon", "p! q! a!<p c<a", "c=begun", "a:done c:child p:done q:ready"),
            ("the parent has a row, and the row decides", "horizon", "p! a<p", "p=open a=begun", "a:after(p) p:ready"),
        ]);
    }

    // H5
    #[test]
    fn a_new_consumer_passes_over_shards_closed_before_it_unless_it_reads_history() {
        let resharded = "p! q! a!<p b<p c<a d<a m<q";
        check(&[
            ("from the tip", "latest", resharded, "", "a:passed b:ready c:ready d:ready m:ready p:passed q:passed"),
            (
                "from the horizon",
                "horizon",
                resharded,
                "",
                "a:after(p) b:after(p) c:after(a) d:after(a) m:after(q) p:ready q:ready",
            ),
            (
                "from a record of a closed shard, which is read with all its descendants",
                "record of m",
                "p! m!<p c!<m d<c o! e<o",
                "",
                "c:after(m) d:after(c) e:ready m:ready o:passed p:passed",
            ),
            ("nothing but a closed shard", "latest", "p!", "", "p:passed"),
            ("an empty closed shard", "horizon", "p!", "", "p:ready"),
        ]);
    }

    // H5, R5
    #[test]
    fn a_passed_over_shard_stays_passed_over_and_its_unread_children_open_at_the_tip_again() {
        check(&[
            ("one child has a checkpoint", "latest", "p! a<p b<p", "a=begun b=open", "a:ready b:ready p:passed"),
            ("a child was read to its end", "latest", "p! a!<p b<p c<a", "a=ended", "a:done b:ready c:child p:passed"),
        ]);
    }

    // H5, R6
    #[test]
    fn no_descendant_of_a_read_shard_is_passed_over() {
        check(&[
            ("read to its end", "latest", "p! a!<p c<a", "p=ended", "a:child c:after(a) p:done"),
            ("in the middle", "latest", "p! a!<p c<a", "p=begun", "a:after(p) c:after(a) p:ready"),
            ("taken, and no record was read", "latest", "p! a!<p c<a", "p=open", "a:after(p) c:after(a) p:ready"),
            ("one of two parents", "latest", "p! q! m!<p,q c<m", "q=ended", "c:after(m) m:child p:passed q:done"),
            ("its row was deleted", "latest", "p! a!<p c!<a d<a", "p=ended d=begun", "a:done c:child d:child p:done"),
        ]);
    }

    // H1, R6
    #[test]
    fn a_restart_continues_with_the_children_of_a_finished_parent() {
        check(&[
            ("from the tip", "latest", "p! a<p b<p", "p=ended a=begun", "a:child b:child p:done"),
            ("a closed child too", "latest", "p! a!<p c<a", "p=ended a=begun", "a:child c:after(a) p:done"),
        ]);
    }

    // R6, L5
    #[test]
    fn a_shard_that_appears_after_the_opening_is_a_child_and_never_passed_over() {
        check(&[
            ("its parent was read", "latest", "p / p! a<p b<p", "p=ended", "a:child b:child p:done"),
            ("its parent is being read", "latest", "p / p! a<p b<p", "p=open", "a:after(p) b:after(p) p:ready"),
            ("its parent could not be opened yet", "latest", "p / p! a<p", "", "a:after(p) p:ready"),
            ("it is closed already", "latest", "p / p! a!<p c<a", "p=ended", "a:child c:after(a) p:done"),
            ("it has no parent", "latest", "p / p a", "", "a:child p:ready"),
            ("its parent was passed over", "latest", "p! / p! a!<p", "", "a:child p:passed"),
        ]);
    }

    #[test]
    fn a_contradictory_listing_is_used_as_far_as_it_makes_sense() {
        check(&[
            ("nothing", "horizon", "", "p=ended", ""),
            ("its own parent", "horizon", "p<p a<p", "", "a:after(p) p:ready"),
            ("twice the same parent", "horizon", "p! a<p,p", "", "a:after(p) p:ready"),
            ("twice the same shard", "horizon", "p! a<p a<p", "", "a:after(p) p:ready"),
            ("a circle", "horizon", "a<c b<a c<b d<c", "", "a:after(c) b:ready c:after(b) d:after(c)"),
        ]);
    }

    #[test]
    fn a_lineage_may_be_a_thousand_shards_deep_or_wide() {
        let deep: Vec<_> = (1..1_000).map(|n| format!("s{n}!<s{}", n - 1)).collect();
        let wide: Vec<_> = (1..1_000).map(|n| format!("s{n}<s0")).collect();
        for shards in [deep, wide] {
            let listed = listing(&format!("s0! {}", shards.join(" ")));
            let initial = InitialShards::new(&plan("horizon"), &listed);
            let verdicts = verdicts(&listed, &Rows::new(), &initial);
            assert_eq!(verdicts.values().filter(|verdict| matches!(verdict, Verdict::Waits(_))).count(), 999);
        }
    }

    /// A stream that was split and merged at random; some of its oldest closed shards are no longer listed.
    fn history() -> impl Strategy<Value = (Vec<ListedShard>, Vec<ListedShard>)> {
        let step = (any::<bool>(), any::<Index>(), any::<Index>());
        (1..4_usize, vec(step, 0..12), any::<Index>(), any::<Index>()).prop_map(|(roots, steps, opened, trimmed)| {
            let mut shards: Vec<_> = (0..roots).map(|n| shard(n, vec![])).collect();
            let mut snapshots = vec![shards.clone()];
            for (split, one, other) in steps {
                reshard(&mut shards, split, one, other);
                snapshots.push(shards.clone());
            }
            let kept = shards.iter().take_while(|shard| shard.closed).count();
            shards.drain(..trimmed.index(kept + 1));
            (opened.get(&snapshots).clone(), shards)
        })
    }

    fn shard(number: usize, parents: Vec<ShardId>) -> ListedShard {
        ListedShard { id: format!("s{number:02}").into(), parents, closed: false }
    }

    fn reshard(shards: &mut Vec<ListedShard>, split: bool, one: Index, other: Index) {
        let open: Vec<_> = (0..shards.len()).filter(|n| !shards[*n].closed).collect();
        let parents = BTreeSet::from(if split { [*one.get(&open); 2] } else { [*one.get(&open), *other.get(&open)] });
        let ids: Vec<_> = parents.iter().map(|n| shards[*n].id.clone()).collect();
        for n in parents {
            shards[n].closed = true;
        }
        for _ in 0..=usize::from(split) {
            shards.push(shard(shards.len(), ids.clone()));
        }
    }

    /// Arbitrary parents, including circles and unknown shards.
    fn garbage() -> impl Strategy<Value = (Vec<ListedShard>, Vec<ListedShard>)> {
        let shards = vec((0..8_usize, vec(0..10_usize, 0..3), any::<bool>()), 0..12).prop_map(|shards| {
            let one = |(number, parents, closed): (usize, Vec<usize>, bool)| ListedShard {
                closed,
                ..shard(number, parents.into_iter().map(|parent| shard(parent, vec![]).id).collect())
            };
            shards.into_iter().map(one).collect::<Vec<_>>()
        });
        (shards.clone(), shards)
    }

    fn progress() -> impl Strategy<Value = Vec<Option<Progress>>> {
        let states = [None, None, Some(Progress::Open), Some(Progress::Begun), Some(Progress::Ended)];
        vec(proptest::sample::select(states.to_vec()), 32)
    }

    fn known(states: Vec<Option<Progress>>) -> Rows {
        states.into_iter().enumerate().filter_map(|(n, state)| Some((shard(n, vec![]).id, state?))).collect()
    }

    // R6, H6
    #[test]
    fn a_replay_reads_listed_shards_without_a_row_above_a_checkpoint() {
        check(&[
            ("no replay", "horizon", "p! c<p", "c=begun", "c:child p:done"),
            ("a replay", "replay", "p! c<p", "c=begun", "c:after(p) p:ready"),
            ("the parent was read", "replay", "p! c<p", "p=ended c=begun", "c:child p:done"),
            ("the parent is listed later", "replay", "c<p / p! c<p", "c=begun", "c:child p:done"),
        ]);
    }

    fn has_checkpoint_below(id: &ShardId, listed: &[ListedShard], known: &Rows) -> bool {
        listed.iter().filter(|shard| shard.parents.contains(id)).any(|child| {
            matches!(known.get(&child.id), Some(Progress::Begun | Progress::Ended))
                || has_checkpoint_below(&child.id, listed, known)
        })
    }

    /// Reads one ready shard after the other to its end. Returns the verdicts on the shards that could not be read.
    fn read_all(listed: &[ListedShard], mut known: Rows, initial: &InitialShards) -> Vec<Verdict> {
        for _ in listed {
            let verdicts = verdicts(listed, &known, initial);
            let ready = verdicts.into_iter().find(|(_, verdict)| matches!(verdict, Verdict::Ready { .. }));
            known.extend(ready.map(|(id, _)| (id, Progress::Ended)));
        }
        let left = verdicts(listed, &known, initial).into_values();
        left.filter(|verdict| !matches!(verdict, Verdict::Done | Verdict::PassedOver)).collect()
    }

    proptest! {
        // H1, H6
        #[test]
        fn no_shard_is_ready_below_an_unread_parent(
            (first, listed) in history(), states in progress(), from in prop_oneof!["latest", "horizon"],
        ) {
            let known = known(states);
            let verdicts = verdicts(&listed, &known, &InitialShards::new(&plan(&from), &first));
            prop_assert_eq!(verdicts.len(), listed.len());
            let ready = listed.iter().filter(|shard| matches!(verdicts[&shard.id], Verdict::Ready { .. }));
            for parent in ready.flat_map(|shard| &shard.parents).filter(|parent| verdicts.contains_key(parent)) {
                let read = match known.get(parent) {
                    Some(progress) => *progress == Progress::Ended,
                    None => has_checkpoint_below(parent, &listed, &known),
                };
                prop_assert!(read || verdicts[parent] == Verdict::PassedOver, "{parent}: {}", text(&verdicts));
            }
        }

        // H5
        #[test]
        fn only_closed_unread_shards_are_passed_over_and_only_when_opening_at_the_tip(
            (first, listed) in history(), states in progress(), from in prop_oneof!["latest", "horizon"],
        ) {
            let known = known(states);
            let verdicts = verdicts(&listed, &known, &InitialShards::new(&plan(&from), &first));
            for (id, _) in verdicts.iter().filter(|(_, verdict)| **verdict == Verdict::PassedOver) {
                prop_assert_eq!(&from, "latest");
                prop_assert!(first.iter().any(|shard| shard.id == *id && shard.closed));
                prop_assert!(!known.contains_key(id));
            }
        }

        // H1
        #[test]
        fn every_shard_is_read_in_the_end(
            (first, listed) in prop_oneof![history(), garbage()],
            states in progress(),
            from in prop_oneof!["latest", "horizon", "record of m"],
        ) {
            let initial = InitialShards::new(&plan(&from), &first);
            prop_assert_eq!(read_all(&listed, known(states), &initial), vec![]);
        }
    }
}
