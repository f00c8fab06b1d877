//! Which leases to request from other instances, so that all instances hold about the same number. Pure, with the time
//! passed in.
//!
//! There is no leader. Every instance reads the same rows and applies the same rule to itself. A request marks the row,
//! so the next instance that reads it counts the shard for the instance that asked.
//!
//! **How the shares become even.** While another instance holds at least two leases more than this one, this one asks
//! the instance with the most for its first shard. A requested shard counts for the instance that asked. All instances
//! choose in the same order, so two that ask at the same time meet on one row, where the condition lets one of them
//! through. A difference of one moves nothing, so the fleet comes to rest, and a new instance costs as many moves as it
//! gets shards.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use tokio::time::{Duration, Instant};

use crate::{coordination::expiry::Unobserved, lease::Lease, types::id::ShardId};

/// A shard that a live instance holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeldShard<'a> {
    pub(crate) shard: &'a ShardId,
    pub(crate) owner: &'a str,
    pub(crate) request: HandOverRequest<'a>,
}

/// Whether an instance requested the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandOverRequest<'a> {
    None,
    By(&'a str),
    /// The shard cannot move here: its owner was asked and does not release it, or this instance could not read it now.
    Unmovable,
}

/// The shards that `me` should request. It holds or is about to hold `own` leases, and never wants more than
/// `max_leases`.
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
            HandOverRequest::By(requester) => requester,
            HandOverRequest::None | HandOverRequest::Unmovable => held.owner,
        };
        *shares.entry(requester).or_default() += 1;
        if held.request == HandOverRequest::None && held.owner != me {
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

/// What this instance requested and has not received yet, with the epoch of the row and since when.
#[derive(Debug, Default)]
pub(crate) struct OpenRequests(BTreeMap<ShardId, (u64, Instant)>);

impl OpenRequests {
    /// Records the open requests in all rows.
    pub(crate) fn observe(&mut self, rows: &[Lease], me: &Arc<str>, unobserved: Unobserved, now: Instant) {
        let open = rows.iter().filter(|row| row.wanted_by.as_ref() == Some(me) && row.owner.as_ref() != Some(me));
        let requests = open.map(|row| {
            let before = self.0.get(&row.key.shard).filter(|(epoch, _)| *epoch == row.epoch);
            let since = before.map_or(now, |(_, since)| unobserved.leave_out(*since, now));
            (row.key.shard.clone(), (row.epoch, since))
        });
        self.0 = requests.collect();
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the owner had this long to release the shard and did not.
    pub(crate) fn is_overdue(&self, shard: &ShardId, patience: Duration, now: Instant) -> bool {
        self.0.get(shard).is_some_and(|(_, since)| now >= *since + patience)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::LeaseKey;

    const ALL: Unobserved = Unobserved::Part(Duration::ZERO);

    /// A fleet as text: in `A:0,1>B,2! C:`, A holds the shards 0 to 2 and C holds none. B requested shard 1, and shard
    /// 2 cannot move.
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
                "" => HandOverRequest::None,
                "!" => HandOverRequest::Unmovable,
                requester => HandOverRequest::By(requester),
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
    fn an_instance_requests_the_shards_that_make_the_fleet_even() {
        const ANY: usize = usize::MAX;
        let table = [
            ("a newcomer takes half of one", "B", 0, ANY, "A:0,1,2,3,4,5,6,7", "0,1,2,3"),
            ("a requested shard counts as its own", "B", 0, ANY, "A:0>B,1>B,2,3,4,5,6,7", "2,3"),
            ("it has requested enough", "B", 0, ANY, "A:0>B,1>B,2>B,3>B,4,5,6,7", ""),
            ("a difference of one is even", "B", 0, ANY, "A:0,1,2 B:3,4", ""),
            ("a difference of two is not", "B", 0, ANY, "A:0,1,2,3 B:4,5", "0"),
            ("one shard stays where it is", "B", 0, ANY, "A:0", ""),
            ("the instance with the most gives", "C", 0, ANY, "A:0,1,2,3,4 B:5,6,7", "0,1"),
            ("several give in turn", "D", 0, ANY, "A:0,1,2,3 B:4,5,6,7 C:8,9", "0,4"),
            ("the instance with more requests nothing", "A", 0, ANY, "A:0,1,2,3 B:", ""),
            ("a shard that another requested counts for that one", "C", 0, ANY, "A:0>B,1>B,2>B,3,4,5", "3"),
            ("a requested shard cannot be requested again", "C", 0, ANY, "A:0>B,1>B,2>B", ""),
            ("a lease about to be taken counts", "B", 3, ANY, "A:0,1,2,3,4,5,6,7", "0,1"),
            ("never more than max_leases", "B", 0, 2, "A:0,1,2,3,4,5,6,7", "0,1"),
            ("at max_leases already", "B", 2, 2, "A:0,1,2,3,4,5,6,7", ""),
            ("a shard that cannot move is left alone", "B", 0, ANY, "A:0!,1!,2,3", "2,3"),
            ("no other instance", "A", 4, ANY, "", ""),
        ];
        for (what, me, own, max_leases, text, expected) in table {
            assert_eq!(asks(me, own, max_leases, text), expected, "{what}");
        }
    }

    /// Every instance requests, in an order that the seed gives, and every requested shard moves. Returns the shares
    /// and the number of moves.
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
                        request: requesters[n]
                            .map_or(HandOverRequest::None, |requester| HandOverRequest::By(&names[requester])),
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
    fn every_fleet_comes_to_rest_at_a_difference_of_at_most_one_with_no_needless_move() {
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
    fn a_fleet_that_starts_with_one_owner_comes_to_rest() {
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
            is_foreign: false,
        }
    }

    #[test]
    fn a_request_is_overdue_when_the_same_owner_does_not_release_the_shard() {
        let (start, patience, shard) = (Instant::now(), Duration::from_secs(40), ShardId::new("a"));
        let after = |seconds| start + Duration::from_secs(seconds);
        let (me, mut requests) = (Arc::from("me"), OpenRequests::default());
        requests.observe(&[row("A", "me", 1)], &me, ALL, after(0));
        requests.observe(&[row("A", "me", 1)], &me, ALL, after(39));
        assert!(!requests.is_overdue(&shard, patience, after(39)));
        assert!(requests.is_overdue(&shard, patience, after(40)));
        requests.observe(&[row("B", "me", 2)], &me, ALL, after(41));
        assert!(!requests.is_overdue(&shard, patience, after(41)), "a new owner gets the full time");
        requests.observe(&[row("B", "other", 2)], &me, ALL, after(90));
        assert!(!requests.is_overdue(&shard, patience, after(90)), "another instance requested it");
    }
}
