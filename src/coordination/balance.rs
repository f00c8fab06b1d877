//! Which leases of others to ask for, so that all instances come to hold about as many. Pure, with the time passed in.
//!
//! There is no leader. Every instance looks at the same rows and applies the same rule to itself: while another one has
//! at least two more than I have, I ask the one that has most for its first shard. An ask marks the row, so whoever looks
//! next counts the shard where it is going; two that ask for the same one at the same moment meet on its row, and one of
//! them is refused. Every move makes the fleet more even, and a difference of one moves nothing, so it comes to rest.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio::time::{Duration, Instant};

use crate::{lease::Lease, types::id::ShardId};

/// A shard that a living instance holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldShard<'a> {
    pub(crate) shard: &'a ShardId,
    pub(crate) owner: &'a str,
    pub(crate) request: Request<'a>,
}

/// Who asked for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request<'a> {
    None,
    By(&'a str),
    /// It cannot come here: the holder was asked for it and does not let go, or this instance could not read it now.
    Unmovable,
}

/// The shards that `me` is to ask for. `own` leases are its own or about to be; it never wants more than `most`.
pub(crate) fn shards_to_request<'a>(
    me: &'a str,
    own: usize,
    max_leases: usize,
    held: &[HeldShard<'a>],
) -> Vec<&'a ShardId> {
    let mut shares = BTreeMap::from([(me, own)]);
    let mut movable: BTreeMap<&str, BTreeSet<&ShardId>> = BTreeMap::new();
    for held in held {
        shares.entry(held.owner).or_default();
        let requester = match held.request {
            Request::By(requester) => requester,
            Request::None | Request::Unmovable => held.owner,
        };
        *shares.entry(requester).or_default() += 1;
        if held.request == Request::None && held.owner != me {
            movable.entry(held.owner).or_default().insert(held.shard);
        }
    }
    let mut wanted = Vec::new();
    while shares[me] < max_leases {
        let with_more =
            movable.iter_mut().filter(|(owner, shards)| shares[*owner] >= shares[me] + 2 && !shards.is_empty());
        let Some((owner, shard)) = with_more
            .min_by_key(|(owner, _)| (Reverse(shares[*owner]), **owner))
            .and_then(|(owner, shards)| Some((*owner, shards.pop_first()?)))
        else {
            break;
        };
        wanted.push(shard);
        shares.entry(owner).and_modify(|share| *share -= 1);
        shares.entry(me).and_modify(|share| *share += 1);
    }
    wanted
}

/// What this instance asked for and has not come into yet, and since when.
#[derive(Debug, Default)]
pub(crate) struct OpenRequests(BTreeMap<ShardId, (u64, Instant)>);

impl OpenRequests {
    /// Takes note of all rows.
    pub(crate) fn observe(&mut self, rows: &[Lease], me: &Arc<str>, now: Instant) {
        let open = rows.iter().filter(|row| row.wanted_by.as_ref() == Some(me) && row.owner.as_ref() != Some(me));
        let requests = open.map(|row| {
            let since =
                self.0.get(&row.key.shard).filter(|(epoch, _)| *epoch == row.epoch).map_or(now, |(_, since)| *since);
            (row.key.shard.clone(), (row.epoch, since))
        });
        self.0 = requests.collect();
    }

    /// Whether the holder had this long to let go and did not.
    pub(crate) fn is_overdue(&self, shard: &ShardId, patience: Duration, now: Instant) -> bool {
        self.0.get(shard).is_some_and(|(_, since)| now >= *since + patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::LeaseKey;

    /// A fleet as text: `A:0,1>B,2! C:` is A with the shards 0 to 2, of which B asked for 1 and somebody in vain for 2, and
    /// C with none.
    fn fleet(text: &str) -> Vec<(String, ShardId, String)> {
        let members = text.split_whitespace().flat_map(|member| {
            let (owner, shards) = member.split_once(':').unwrap();
            shards.split(',').filter(|shard| !shard.is_empty()).map(|shard| (owner.to_owned(), shard.to_owned()))
        });
        let held = members.map(|(owner, shard)| match shard.split_once('>') {
            Some((shard, requester)) => (owner, ShardId::new(shard), requester.to_owned()),
            None => (owner, ShardId::new(shard.trim_end_matches('!')), shard.matches('!').collect()),
        });
        held.collect()
    }

    fn held(fleet: &[(String, ShardId, String)]) -> Vec<HeldShard<'_>> {
        let held = fleet.iter().map(|(owner, shard, request)| HeldShard {
            shard,
            owner,
            request: match request.as_str() {
                "" => Request::None,
                "!" => Request::Unmovable,
                requester => Request::By(requester),
            },
        });
        held.collect()
    }

    fn asks(me: &str, own: usize, max_leases: usize, text: &str) -> String {
        let fleet = fleet(text);
        let wanted: Vec<String> =
            shards_to_request(me, own, max_leases, &held(&fleet)).into_iter().map(ToString::to_string).collect();
        wanted.join(",")
    }

    // E5, D14
    #[test]
    fn an_instance_asks_for_what_makes_the_fleet_even() {
        const ANY: usize = usize::MAX;
        let table = [
            ("a newcomer takes half of one", "B", 0, ANY, "A:0,1,2,3,4,5,6,7", "0,1,2,3"),
            ("what it asked for counts as its own", "B", 0, ANY, "A:0>B,1>B,2,3,4,5,6,7", "2,3"),
            ("asked for enough", "B", 0, ANY, "A:0>B,1>B,2>B,3>B,4,5,6,7", ""),
            ("a difference of one is even", "B", 0, ANY, "A:0,1,2 B:3,4", ""),
            ("a difference of two is not", "B", 0, ANY, "A:0,1,2,3 B:4,5", "0"),
            ("one shard stays where it is", "B", 0, ANY, "A:0", ""),
            ("the one that has most gives", "C", 0, ANY, "A:0,1,2,3,4 B:5,6,7", "0,1"),
            ("several give in turn", "D", 0, ANY, "A:0,1,2,3 B:4,5,6,7 C:8,9", "0,4"),
            ("the richer one asks for nothing", "A", 0, ANY, "A:0,1,2,3 B:", ""),
            ("what others asked for is on its way", "C", 0, ANY, "A:0>B,1>B,2>B,3,4,5", "3"),
            ("what is on its way cannot be asked for", "C", 0, ANY, "A:0>B,1>B,2>B", ""),
            ("what is about to be taken counts", "B", 3, ANY, "A:0,1,2,3,4,5,6,7", "0,1"),
            ("never more than the most", "B", 0, 2, "A:0,1,2,3,4,5,6,7", "0,1"),
            ("at the most already", "B", 2, 2, "A:0,1,2,3,4,5,6,7", ""),
            ("what is not let go is left alone", "B", 0, ANY, "A:0!,1!,2,3", "2,3"),
            ("nobody else", "A", 4, ANY, "", ""),
        ];
        for (what, me, own, max_leases, text, expected) in table {
            assert_eq!(asks(me, own, max_leases, text), expected, "{what}");
        }
    }

    /// Everybody asks, in an order that the seed gives, and everything asked for moves. How many moves it took.
    fn settle(mut owners: Vec<usize>, instances: usize, mut seed: u64) -> (Vec<usize>, usize) {
        let names: Vec<String> = (0..instances).map(|n| format!("i{n:02}")).collect();
        let shards: Vec<ShardId> = (0..owners.len()).map(|n| ShardId::new(format!("{n:04}"))).collect();
        let mut moves = 0;
        for _ in 0..instances * 2 {
            let mut requesters: Vec<Option<usize>> = vec![None; shards.len()];
            let mut order: Vec<usize> = (0..instances).collect();
            order.sort_by_key(|n| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (seed >> 33) + *n as u64
            });
            for me in order {
                let held: Vec<HeldShard<'_>> = (0..shards.len())
                    .map(|n| HeldShard {
                        shard: &shards[n],
                        owner: &names[owners[n]],
                        request: requesters[n].map_or(Request::None, |requester| Request::By(&names[requester])),
                    })
                    .collect();
                for shard in shards_to_request(&names[me], 0, usize::MAX, &held) {
                    requesters[shard.as_str().parse::<usize>().unwrap()] = Some(me);
                }
            }
            for (owner, requester) in owners.iter_mut().zip(requesters) {
                moves += usize::from(requester.is_some());
                *owner = requester.unwrap_or(*owner);
            }
        }
        let mut counts = vec![0; instances];
        for owner in owners {
            counts[owner] += 1;
        }
        (counts, moves)
    }

    // E5, D14, D15
    #[test]
    fn every_fleet_comes_to_rest_at_a_difference_of_one_at_most_with_no_more_moves_than_needed() {
        for seed in 0..50 {
            for (shards, instances) in [(8, 2), (40, 6), (100, 7), (3, 5), (1, 2), (64, 1)] {
                let old = (instances - 1).max(1);
                let before: Vec<usize> = (0..shards).map(|n| n % old).collect();
                let (counts, moves) = settle(before, instances, seed);
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                assert!(most - least <= 1, "{shards} on {instances}: {counts:?}");
                let newcomer = if instances == 1 { 0 } else { shards / instances };
                assert_eq!(moves, newcomer, "{shards} on {instances}");
            }
        }
    }

    // E5
    #[test]
    fn a_fleet_that_starts_with_one_holder_comes_to_rest_as_well() {
        for seed in 0..50 {
            for instances in 2..9 {
                let (counts, _) = settle(vec![0; 100], instances, seed);
                let (least, most) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
                assert!(most - least <= 1, "{counts:?}");
            }
        }
    }

    fn row(owner: &str, wanted_by: &str, epoch: u64) -> Lease {
        Lease {
            key: LeaseKey { consumer: "c".into(), stream: "s".into(), shard: "a".into() },
            owner: Some(owner.into()),
            epoch,
            counter: epoch,
            checkpoint: None,
            parents: Vec::new(),
            stream_created: None,
            wanted_by: Some(wanted_by.into()),
        }
    }

    #[test]
    fn a_request_runs_out_when_the_same_holder_does_not_let_go() {
        let (start, patience, shard) = (Instant::now(), Duration::from_secs(40), ShardId::new("a"));
        let after = |seconds| start + Duration::from_secs(seconds);
        let (me, mut requests) = (Arc::from("me"), OpenRequests::default());
        requests.observe(&[row("A", "me", 1)], &me, after(0));
        requests.observe(&[row("A", "me", 1)], &me, after(39));
        assert!(!requests.is_overdue(&shard, patience, after(39)));
        assert!(requests.is_overdue(&shard, patience, after(40)));
        requests.observe(&[row("B", "me", 2)], &me, after(41));
        assert!(!requests.is_overdue(&shard, patience, after(41)), "another holder has its own time");
        requests.observe(&[row("B", "other", 2)], &me, after(90));
        assert!(!requests.is_overdue(&shard, patience, after(90)), "it is somebody else's request");
    }
}
