//! A model of one Kinesis stream: its shards, their records, and the service's responses.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
};

use bytes::Bytes;
use tokio::time::Duration;

pub(crate) use self::shown::{OnTrimmed, Written};
use super::clock::Clock;
use crate::{
    budget::RECORD_OVERHEAD,
    config::position::Origin,
    error::service::FailureKind,
    kinesis::{
        Described, Fetched, ListedPage, ListedShard, Listing, Placed, Put, RawRecord, ServiceTime, StreamStatus,
    },
    types::id::{SequenceNumber, ShardId},
    util::mutex::lock,
};

mod shown;

/// The service's time when the model is made, in Unix milliseconds.
pub(crate) const EPOCH: i64 = 1_700_000_000_000;

type Answer<T> = Result<T, FailureKind>;

/// The stream, which all instances of a test share.
#[derive(Debug)]
pub(crate) struct Kinesis {
    clock: Clock,
    /// The service's time at the start of the clock, in Unix milliseconds.
    epoch: AtomicI64,
    /// Responses have no `Date`.
    hides_its_time: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    exists: bool,
    created: i64,
    /// How many earlier streams had this name.
    older: usize,
    retention: Option<Duration>,
    on_trimmed: OnTrimmed,
    iterators_live: Duration,
    /// The last page of a shard names its children.
    names_children: bool,
    /// The last page of a shard holds no records.
    ends_empty: bool,
    /// Shards that listings do not show.
    hidden: BTreeSet<ShardId>,
    /// How many shards a page of a listing holds.
    page: usize,
    shards: BTreeMap<ShardId, Shard>,
    /// The records that were put into other streams.
    written: Vec<Written>,
    /// Other streams that do not exist. All others do.
    lacking: BTreeSet<String>,
}

#[derive(Debug, Default)]
struct Shard {
    parents: Vec<ShardId>,
    closed: bool,
    records: Vec<RawRecord>,
    /// How many of the oldest records are no longer kept.
    trimmed: usize,
    /// The lags of the next responses, in milliseconds. Each of these responses is empty.
    gap: VecDeque<i64>,
}

impl Kinesis {
    pub(crate) fn new(shards: &[&str]) -> Self {
        Self::under(Clock::of_the_runtime(), shards)
    }

    /// Like [`new`](Self::new), with a separate clock.
    pub(crate) fn under(clock: Clock, shards: &[&str]) -> Self {
        let shards = shards.iter().map(|shard| (ShardId::from(*shard), Shard::default())).collect();
        let state = State {
            exists: true,
            created: EPOCH + 123,
            older: 0,
            retention: None,
            on_trimmed: OnTrimmed::Reject,
            iterators_live: Duration::from_mins(5),
            names_children: false,
            ends_empty: false,
            hidden: BTreeSet::new(),
            page: usize::MAX,
            shards,
            written: Vec::new(),
            lacking: BTreeSet::new(),
        };
        Self { clock, epoch: AtomicI64::new(EPOCH), hides_its_time: AtomicBool::new(false), state: Mutex::new(state) }
    }

    /// Puts records named after their shard and index, as in `a0`, `a1`. The name is the payload and the sequence
    /// number. In a recreated stream an apostrophe precedes the index: `a'0`.
    pub(crate) fn put(&self, shard: &str, count: usize) {
        (0..count).for_each(|_| self.put_as(shard, Some("k"), |name| Bytes::from(name.to_owned())));
    }

    /// Puts one record for each of these one-letter keys, named as [`put`](Self::put) does. A dot stands for no key.
    pub(crate) fn put_keys(&self, shard: &str, keys: &str) {
        for key in keys.split_terminator("").skip(1) {
            self.put_as(shard, Some(key).filter(|key| *key != "."), |name| Bytes::from(name.to_owned()));
        }
    }

    /// Puts one record that counts as this many bytes while it is held.
    pub(crate) fn put_bytes(&self, shard: &str, bytes: usize) {
        self.put_as(shard, Some("k"), |_| Bytes::from(vec![b'.'; bytes - 1 - RECORD_OVERHEAD]));
    }

    /// Puts one record with this data.
    pub(crate) fn put_data(&self, shard: &str, data: impl Into<Bytes>) {
        self.put_as(shard, Some("k"), |_| data.into());
    }

    /// The records that were put into other streams, in order.
    pub(crate) fn written(&self) -> Vec<Written> {
        lock(&self.state).written.clone()
    }

    fn put_as(&self, shard: &str, key: Option<&str>, data: impl FnOnce(&str) -> Bytes) {
        let arrived_at = Some(self.millis());
        let apostrophes = "'".repeat(lock(&self.state).older);
        self.change(shard, |shard, id| {
            assert!(!shard.closed, "{id} is closed");
            let name = format!("{id}{apostrophes}{}", shard.records.len());
            shard.records.push(RawRecord {
                data: data(&name),
                partition_key: key.map(ToOwned::to_owned),
                sequence_number: name.clone(),
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

    /// Closes a shard without children.
    pub(crate) fn close(&self, shard: &str) {
        self.change(shard, |shard, _| shard.closed = true);
    }

    fn add(&self, shard: &str, parents: &[&str]) {
        let parents = parents.iter().map(|parent| ShardId::from(*parent)).collect();
        lock(&self.state).shards.insert(shard.into(), Shard { parents, ..Shard::default() });
    }

    /// Removes a shard, as at the end of its retention.
    pub(crate) fn forget(&self, shard: &str) {
        lock(&self.state).shards.remove(&shard.into());
    }

    /// Removes this many more of a shard's oldest records, as at the end of their retention.
    pub(crate) fn trim(&self, shard: &str, count: usize) {
        self.change(shard, |shard, _| shard.trimmed = shard.records.len().min(shard.trimmed + count));
    }

    /// Makes the next reads of a shard find nothing and report these lags, in milliseconds.
    pub(crate) fn gap(&self, shard: &str, lags: impl IntoIterator<Item = i64>) {
        self.change(shard, |shard, _| shard.gap = lags.into_iter().collect());
    }

    /// Sets the retention that the stream reports. The model trims only on request.
    pub(crate) fn keeps(&self, retention: Duration, on_trimmed: OnTrimmed) {
        let mut state = lock(&self.state);
        (state.retention, state.on_trimmed) = (Some(retention), on_trimmed);
    }

    /// Hides a shard from listings.
    pub(crate) fn hide(&self, shard: &str) {
        lock(&self.state).hidden.insert(shard.into());
    }

    /// Shows a shard in listings again.
    pub(crate) fn show(&self, shard: &str) {
        lock(&self.state).hidden.remove(&shard.into());
    }

    /// Shows all shards in listings.
    pub(crate) fn show_all(&self) {
        lock(&self.state).hidden.clear();
    }

    /// Splits listings into pages of this many shards. Empty pages have the same token, without an end.
    pub(crate) fn list_by(&self, page: usize) {
        lock(&self.state).page = page;
    }

    /// Makes the last page of a shard empty: the end shows with the read after the last record.
    pub(crate) fn end_with_an_empty_page(&self) {
        lock(&self.state).ends_empty = true;
    }

    /// Makes the last page of a shard name its children.
    pub(crate) fn name_children(&self) {
        lock(&self.state).names_children = true;
    }

    /// Deletes the stream and creates another one under its name.
    pub(crate) fn recreate(&self, shards: &[&str]) {
        let mut state = lock(&self.state);
        state.exists = true;
        state.created = self.millis();
        state.older += 1;
        state.shards = shards.iter().map(|shard| (ShardId::from(*shard), Shard::default())).collect();
    }

    /// Tells the creation time in whole seconds from now on.
    pub(crate) fn tell_seconds(&self) {
        let mut state = lock(&self.state);
        state.created -= state.created % 1_000;
    }

    /// Tells no time from now on.
    pub(crate) fn hide_its_time(&self) {
        self.hides_its_time.store(true, Ordering::Relaxed);
    }

    /// Deletes the stream.
    pub(crate) fn delete(&self) {
        lock(&self.state).exists = false;
    }

    pub(crate) fn iterators_live(&self, lifetime: Duration) {
        lock(&self.state).iterators_live = lifetime;
    }

    /// Sets the service's time, in Unix milliseconds.
    pub(crate) fn set_time(&self, unix_millis: i64) {
        self.epoch.store(unix_millis - self.elapsed(), Ordering::Relaxed);
    }

    /// The service's time in Unix milliseconds.
    pub(crate) fn millis(&self) -> i64 {
        self.epoch.load(Ordering::Relaxed) + self.elapsed()
    }

    fn elapsed(&self) -> i64 {
        i64::try_from(self.clock.millis()).unwrap()
    }

    /// The `Date` header of a response, in whole seconds.
    fn date(&self) -> Option<ServiceTime> {
        (!self.hides_its_time.load(Ordering::Relaxed)).then(|| ServiceTime(self.millis() / 1_000 * 1_000))
    }

    fn change<T>(&self, id: &str, change: impl FnOnce(&mut Shard, &str) -> T) -> T {
        change(lock(&self.state).shards.get_mut(&id.into()).unwrap(), id)
    }

    fn existing<T>(&self, answer: impl FnOnce(&mut State) -> Answer<T>) -> Answer<T> {
        let mut state = lock(&self.state);
        if state.exists { answer(&mut state) } else { Err(FailureKind::NotFound) }
    }

    /// Deletes another stream than the one that is read.
    pub(crate) fn lacks(&self, stream: &str) {
        lock(&self.state).lacking.insert(stream.to_owned());
    }

    /// Creates another stream than the one that is read.
    pub(super) fn create_other(&self, stream: &str) -> Answer<()> {
        if lock(&self.state).lacking.remove(stream) { Ok(()) } else { Err(FailureKind::NotReady) }
    }

    pub(super) fn describe(&self, stream: &str) -> Answer<Described> {
        if lock(&self.state).lacking.contains(stream) {
            return Err(FailureKind::NotFound);
        }
        self.existing(|state| {
            Ok(Described {
                status: StreamStatus::Usable,
                created: Some(state.created),
                retention: state.retention,
                now: self.date(),
            })
        })
    }

    /// A listing token names the last shard of the page before.
    pub(super) fn list(&self, from: Listing<'_>) -> Answer<ListedPage> {
        self.existing(|state| {
            if state.page == 0 {
                return Ok(ListedPage { shards: Vec::new(), next: Some("1".to_owned()) });
            }
            let after = match from {
                Listing::Stream(_) => None,
                Listing::Token(token) => Some(ShardId::from(token)),
            };
            let rest = state.shards.iter().filter(|(id, _)| after.as_ref().is_none_or(|after| *id > after));
            let page: Vec<(&ShardId, &Shard)> = rest.clone().take(state.page).collect();
            let more = rest.count() > page.len();
            Ok(ListedPage {
                next: page.last().filter(|_| more).map(|(id, _)| id.to_string()),
                shards: page.into_iter().filter(|(id, _)| !state.hidden.contains(*id)).map(listed).collect(),
            })
        })
    }

    pub(super) fn place(&self, shard: &ShardId, origin: &Origin) -> Answer<Placed> {
        self.existing(|state| {
            let Shard { records, trimmed, .. } = state.shards.get(shard).ok_or(FailureKind::NotFound)?;
            let find = |number: &SequenceNumber, skip: usize| {
                let found = records.iter().position(|record| record.sequence_number == number.as_str());
                match found.ok_or(FailureKind::InvalidPosition)? {
                    index if index >= *trimmed => Ok(Some(index + skip)),
                    _ if state.on_trimmed == OnTrimmed::Reject => Err(FailureKind::InvalidPosition),
                    _ if state.on_trimmed == OnTrimmed::Stick => Ok(None),
                    _ => Ok(Some(*trimmed)),
                }
            };
            let index = match origin {
                Origin::Horizon => Some(*trimmed),
                Origin::Latest => Some(records.len()),
                Origin::Timestamp(millis) if *millis > self.millis() => return Err(FailureKind::InvalidPosition),
                Origin::Timestamp(millis) => Some(records.partition_point(|record| record.arrived_at < Some(*millis))),
                Origin::At(number) => find(number, 0)?,
                Origin::After(number) => find(number, 1)?,
            };
            let place = Place { shard: shard.clone(), older: state.older, index };
            Ok(Placed { iterator: self.iterator(&place), now: self.date() })
        })
    }

    pub(super) fn read(&self, iterator: &str, limit: u32) -> Answer<Fetched> {
        let (place, made_at) = parse(iterator);
        self.existing(|state| {
            if place.older != state.older {
                return Err(FailureKind::Rejected);
            }
            if self.millis() - made_at > i64::try_from(state.iterators_live.as_millis()).unwrap() {
                return Err(FailureKind::IteratorExpired);
            }
            let shard = state.shards.get_mut(&place.shard).ok_or(FailureKind::NotFound)?;
            if let Some(behind) = shard.gap.pop_front() {
                let next = Some(self.iterator(&place));
                return Ok(Fetched { records: Vec::new(), next, behind: Some(behind), children: Vec::new() });
            }
            let Shard { closed, records, trimmed, .. } = &state.shards[&place.shard];
            let Some(index) = place.index else {
                let behind = state.retention.map(|retention| i64::try_from(retention.as_millis()).unwrap());
                let next = Some(self.iterator(&place));
                return Ok(Fetched { records: Vec::new(), next, behind, children: Vec::new() });
            };
            let index = index.max(*trimmed);
            let upto = records.len().min(index + usize::try_from(limit).unwrap());
            let more = upto < records.len();
            let behind =
                records.get(upto).and_then(|record| record.arrived_at).map_or(0, |at| (self.millis() - at).max(1));
            let next = Place { index: Some(upto), ..place.clone() };
            let ends = *closed && !more && (index == upto || !state.ends_empty);
            let named = (ends && state.names_children).then(|| state.shards.iter());
            let children = named.into_iter().flatten().filter(|(_, shard)| shard.parents.contains(&place.shard));
            Ok(Fetched {
                records: records[index..upto].to_vec(),
                next: (!ends).then(|| self.iterator(&next)),
                behind: Some(behind),
                children: children.map(listed).collect(),
            })
        })
    }

    /// `PutRecord` into another stream.
    pub(super) fn write(&self, stream: &str, key: &str, data: Bytes) -> Put {
        let written = &mut lock(&self.state).written;
        written.push(Written { stream: stream.to_owned(), key: key.to_owned(), data });
        Put { shard: "elsewhere".into(), sequence_number: written.len().to_string().as_str().into() }
    }

    fn iterator(&self, Place { shard, older, index }: &Place) -> String {
        let index = index.map_or("nowhere".to_owned(), |index| index.to_string());
        format!("{shard}/{index}/{older}/{}", self.millis())
    }
}

fn listed((id, shard): (&ShardId, &Shard)) -> ListedShard {
    ListedShard { id: id.clone(), parents: shard.parents.clone(), closed: shard.closed }
}

/// The position of an iterator.
#[derive(Clone, Debug)]
struct Place {
    shard: ShardId,
    /// The stream that it belongs to, like [`State::older`].
    older: usize,
    /// The index of the next record; `None` if there is never one.
    index: Option<usize>,
}

/// The shard that an iterator belongs to.
pub(super) fn shard_of(iterator: &str) -> ShardId {
    parse(iterator).0.shard
}

/// The position of an iterator, and when it was call.
fn parse(iterator: &str) -> (Place, i64) {
    let mut parts = iterator.split('/');
    let mut part = || parts.next().unwrap();
    let place = Place { shard: part().into(), index: part().parse().ok(), older: part().parse().unwrap() };
    (place, part().parse().unwrap())
}
