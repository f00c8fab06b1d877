//! A model of one Kinesis stream: shards and their records, and what the service answers about them.

use std::{collections::BTreeMap, sync::Mutex};

use bytes::Bytes;
use tokio::time::{Duration, Instant};

use crate::{
    failure::FailureKind,
    id::{SequenceNumber, ShardId},
    lock::lock,
    position::Origin,
    service::{Described, Fetched, ListedPage, ListedShard, Placed, RawRecord, ServiceTime, StreamStatus},
};

/// The service's time when the model is made, in Unix milliseconds.
pub(crate) const EPOCH: i64 = 1_700_000_000_000;

type Answer<T> = Result<T, FailureKind>;

/// The stream. All instances of a test share it.
#[derive(Debug)]
pub(crate) struct Kinesis {
    start: Instant,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    exists: bool,
    iterators_live: Duration,
    shards: BTreeMap<ShardId, Shard>,
}

#[derive(Debug, Default)]
struct Shard {
    parents: Vec<ShardId>,
    closed: bool,
    records: Vec<RawRecord>,
}

impl Kinesis {
    pub(crate) fn new(shards: &[&str]) -> Self {
        let shards = shards.iter().map(|shard| (ShardId::from(*shard), Shard::default())).collect();
        let state = State { exists: true, iterators_live: Duration::from_mins(5), shards };
        Self { start: Instant::now(), state: Mutex::new(state) }
    }

    /// Puts records that are named after their shard and place, as in `a0`, `a1`: the name is the payload and the
    /// sequence number.
    pub(crate) fn put(&self, shard: &str, count: usize) {
        (0..count).for_each(|_| self.put_as(shard, |name| Bytes::from(name.to_owned())));
    }

    /// Puts one record of so many bytes, its partition key included.
    pub(crate) fn put_bytes(&self, shard: &str, bytes: usize) {
        self.put_as(shard, |_| Bytes::from(vec![b'.'; bytes - 1]));
    }

    fn put_as(&self, shard: &str, data: impl FnOnce(&str) -> Bytes) {
        let arrived_at = Some(self.millis());
        self.change(shard, |shard, id| {
            assert!(!shard.closed, "{id} is closed");
            let name = format!("{id}{}", shard.records.len());
            shard.records.push(RawRecord {
                data: data(&name),
                partition_key: Some("k".to_owned()),
                sequence_number: SequenceNumber::new(name),
                arrived_at,
            });
        });
    }

    pub(crate) fn split(&self, parent: &str, children: [&str; 2]) {
        self.close(parent);
        for child in children {
            self.add(child, &[parent]);
        }
    }

    pub(crate) fn merge(&self, parents: [&str; 2], child: &str) {
        for parent in parents {
            self.close(parent);
        }
        self.add(child, &parents);
    }

    /// Closes a shard that gets no children.
    pub(crate) fn close(&self, shard: &str) {
        self.change(shard, |shard, _| shard.closed = true);
    }

    fn add(&self, shard: &str, parents: &[&str]) {
        let parents = parents.iter().map(|parent| ShardId::from(*parent)).collect();
        lock(&self.state).shards.insert(shard.into(), Shard { parents, ..Shard::default() });
    }

    /// A shard is past its retention.
    pub(crate) fn forget(&self, shard: &str) {
        lock(&self.state).shards.remove(&shard.into());
    }

    /// The stream is gone.
    pub(crate) fn delete(&self) {
        lock(&self.state).exists = false;
    }

    pub(crate) fn iterators_live(&self, life: Duration) {
        lock(&self.state).iterators_live = life;
    }

    /// The service's time in Unix milliseconds.
    pub(crate) fn millis(&self) -> i64 {
        EPOCH + i64::try_from(self.start.elapsed().as_millis()).unwrap()
    }

    /// As the `Date` of an answer tells it: in whole seconds.
    fn date(&self) -> ServiceTime {
        ServiceTime(self.millis() / 1_000 * 1_000)
    }

    fn change<T>(&self, id: &str, change: impl FnOnce(&mut Shard, &str) -> T) -> T {
        change(lock(&self.state).shards.get_mut(&id.into()).unwrap(), id)
    }

    fn existing<T>(&self, answer: impl FnOnce(&State) -> Answer<T>) -> Answer<T> {
        let state = lock(&self.state);
        if state.exists { answer(&state) } else { Err(FailureKind::NotFound) }
    }

    pub(super) fn describe(&self) -> Answer<Described> {
        self.existing(|_| {
            Ok(Described {
                status: StreamStatus::Usable,
                created: Some(EPOCH),
                retention: None,
                now: Some(self.date()),
            })
        })
    }

    pub(super) fn list(&self) -> Answer<ListedPage> {
        self.existing(|state| {
            let listed = |(id, shard): (&ShardId, &Shard)| ListedShard {
                id: id.clone(),
                parents: shard.parents.clone(),
                closed: shard.closed,
            };
            Ok(ListedPage { shards: state.shards.iter().map(listed).collect(), next: None })
        })
    }

    pub(super) fn place(&self, shard: &ShardId, origin: &Origin) -> Answer<Placed> {
        self.existing(|state| {
            let records = &state.shards.get(shard).ok_or(FailureKind::NotFound)?.records;
            let find = |number: &SequenceNumber| {
                let found = records.iter().position(|record| record.sequence_number == *number);
                found.ok_or(FailureKind::Rejected)
            };
            let index = match origin {
                Origin::Horizon => 0,
                Origin::Latest => records.len(),
                Origin::Timestamp(millis) if *millis > self.millis() => return Err(FailureKind::Rejected),
                Origin::Timestamp(millis) => records.partition_point(|record| record.arrived_at < Some(*millis)),
                Origin::At(number) => find(number)?,
                Origin::After(number) => find(number)? + 1,
            };
            Ok(Placed { iterator: self.iterator(shard, index), now: Some(self.date()) })
        })
    }

    pub(super) fn read(&self, iterator: &str, limit: u32) -> Answer<Fetched> {
        let (shard, index, made) = parse(iterator);
        self.existing(|state| {
            if self.millis() - made > i64::try_from(state.iterators_live.as_millis()).unwrap() {
                return Err(FailureKind::IteratorExpired);
            }
            let Shard { closed, records, .. } = state.shards.get(&shard).ok_or(FailureKind::NotFound)?;
            let upto = records.len().min(index + usize::try_from(limit).unwrap());
            let more = upto < records.len();
            let behind = records.get(upto).and_then(|record| record.arrived_at).map_or(0, |at| self.millis() - at);
            Ok(Fetched {
                records: records[index..upto].to_vec(),
                next: (more || !closed).then(|| self.iterator(&shard, upto)),
                behind: Some(behind),
                children: Vec::new(),
            })
        })
    }

    fn iterator(&self, shard: &ShardId, index: usize) -> String {
        format!("{shard}/{index}/{}", self.millis())
    }
}

/// The shard that an iterator belongs to.
pub(super) fn shard_of(iterator: &str) -> ShardId {
    parse(iterator).0
}

/// Shard, index of the next record, and when it was made.
fn parse(iterator: &str) -> (ShardId, usize, i64) {
    let mut parts = iterator.split('/');
    let mut part = || parts.next().unwrap();
    (part().into(), part().parse().unwrap(), part().parse().unwrap())
}
