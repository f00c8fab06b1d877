//! Leases: which instance reads a shard, and how far a consumer has read it. Every store implements [`LeaseStore`].
//!
//! A lease is one row for each consumer, stream and shard. It names an owner, has an *epoch* that grows with every
//! take, and holds the [`Checkpoint`]. Every write carries its epoch. The store refuses late writes of an instance that
//! lost its lease.
//!
//! This folder only stores leases. `coordination/renewer` renews them and stores checkpoints.
//!
//! - [`MemoryLeaseStore`] (`memory`) keeps leases in this process; they end with it.
//! - `EmbeddedLeaseStore` (`embedded`, a cargo feature) keeps them in a file of this host.
//! - `DynamoDbLeaseStore` (`dynamodb`, a cargo feature) keeps them in a table that instances share.
//! - `contract` (a cargo feature) tests that a store keeps its promises.
//!
//! Only `coordination` calls a store. Other folders only use its types. Read the trait first, then `memory`, the
//! shortest store.

use std::{fmt, sync::Arc, time::Duration};

use futures::future::BoxFuture;

use crate::{config::position::Checkpoint, error::service::StoreError, types::id::ShardId};

#[cfg(any(test, feature = "contract"))]
pub mod contract;
#[cfg(feature = "dynamodb")]
mod dynamodb;
#[cfg(feature = "embedded")]
mod embedded;
mod memory;
mod next_count;

#[cfg(feature = "dynamodb")]
pub use self::dynamodb::DynamoDbLeaseStore;
#[cfg(all(fuzzing, feature = "dynamodb"))]
pub(crate) use self::dynamodb::fuzz_row as fuzz_dynamodb_row;
#[cfg(feature = "embedded")]
pub use self::embedded::EmbeddedLeaseStore;
#[cfg(all(fuzzing, feature = "embedded"))]
pub(crate) use self::embedded::fuzz_row as fuzz_embedded_row;
pub use self::memory::MemoryLeaseStore;

/// The consumer, stream and shard that a lease belongs to. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct LeaseKey {
    /// The consumer's name, as set with [`KinesisBroker::consumer`](crate::KinesisBroker::consumer).
    pub consumer: Arc<str>,
    /// The name of the Kinesis stream.
    pub stream: Arc<str>,
    /// The shard.
    pub shard: ShardId,
}

impl LeaseKey {
    /// The key of this consumer, stream and shard.
    pub fn new(consumer: impl Into<Arc<str>>, stream: impl Into<Arc<str>>, shard: impl Into<ShardId>) -> Self {
        Self { consumer: consumer.into(), stream: stream.into(), shard: shard.into() }
    }
}

impl fmt::Display for LeaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.consumer, self.stream, self.shard)
    }
}

/// One row of the lease table, as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lease {
    /// Whose row it is.
    pub key: LeaseKey,
    /// The instance that holds the shard; none while it is free.
    pub owner: Option<Arc<str>>,
    /// One higher with every take.
    pub epoch: u64,
    /// One higher with every write of any kind. A counter that does not move for the time to live of a lease is
    /// the sign of a dead owner: the observer measures that on its own monotonic clock, so no two clocks are compared.
    pub counter: u64,
    /// How far the consumer has come; none before anything was read.
    pub checkpoint: Option<Checkpoint>,
    /// The parents of the shard, oldest knowledge of its lineage once the service stops listing them.
    pub parents: Vec<ShardId>,
    /// When the Kinesis stream was created (Unix milliseconds): a stream deleted and created again under its name is
    /// another stream, to which the checkpoint does not apply. None where the service did not say.
    pub stream_created: Option<i64>,
    /// The instance that asked the owner to hand this shard over; none when nobody did.
    pub wanted_by: Option<Arc<str>>,
    /// The holder is another program on the same table, such as the Kinesis Client Library, or may be one. It knows no
    /// requests and may fail on a row that they changed, so the library sends it none. False by default; only a store
    /// that shares its table with other programs sets it.
    pub is_foreign: bool,
    /// For how long the last owner's lease lives after a write, so that instances with a shorter time to live wait as
    /// long. None if the owner did not say.
    pub ttl: Option<Duration>,
}

/// All rows of one consumer and stream, as [`LeaseStore::read_leases`] returns them.
///
/// ```
/// use kinesis_stream::{Lease, LeaseKey, Leases, Seen};
///
/// let row = Lease::new(LeaseKey::new("archive", "orders", "shardId-000000000000"), Seen::new(3, 250));
/// let leases: Leases = vec![row].into();
/// assert_eq!((leases.rows.len(), leases.unreadable.len()), (1, 0));
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Leases {
    /// The rows, in any order.
    pub rows: Vec<Lease>,
    /// The rows that exist and make no sense, for example because a person edited them. None by default.
    ///
    /// The library takes no such shard and lets its children wait, and all other shards continue. A store that fails
    /// the whole call instead stops every shard of the consumer.
    pub unreadable: Vec<UnreadableLease>,
}

/// A row that exists and makes no sense.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UnreadableLease {
    /// Whose row it is.
    pub key: LeaseKey,
    /// Why it cannot be read. The text names the table, the row and the column.
    pub error: StoreError,
}

impl Leases {
    /// These rows.
    #[must_use]
    pub fn new(rows: Vec<Lease>) -> Self {
        Self { rows, unreadable: Vec::new() }
    }

    /// The rows, if all can be read.
    ///
    /// # Errors
    ///
    /// The error of the first unreadable row.
    pub fn into_rows(self) -> Result<Vec<Lease>, StoreError> {
        match self.unreadable.into_iter().next() {
            Some(row) => Err(row.error),
            None => Ok(self.rows),
        }
    }

    /// Adds the row of this key: a lease, or the reason why it makes no sense.
    pub fn push(&mut self, key: LeaseKey, row: Result<Lease, StoreError>) {
        match row {
            Ok(row) => self.rows.push(row),
            Err(error) => self.unreadable.push(UnreadableLease { key, error }),
        }
    }
}

impl From<Vec<Lease>> for Leases {
    fn from(rows: Vec<Lease>) -> Self {
        Self::new(rows)
    }
}

impl FromIterator<Lease> for Leases {
    fn from_iter<I: IntoIterator<Item = Lease>>(rows: I) -> Self {
        Self::new(rows.into_iter().collect())
    }
}

/// The lease of one shard as its holder knows it: what [`renew`](LeaseStore::renew),
/// [`checkpoint`](LeaseStore::checkpoint) and [`release`](LeaseStore::release) are conditional on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// Whose row it is.
    pub key: LeaseKey,
    /// The holder.
    pub owner: Arc<str>,
    /// The epoch of the take.
    pub epoch: u64,
}

/// What an instance asks for when it takes a lease.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Take {
    /// Whose row it is.
    pub key: LeaseKey,
    /// The instance that takes it.
    pub owner: Arc<str>,
    /// Kept in the row: see [`Lease::ttl`].
    pub ttl: Option<Duration>,
    /// The row as the instance last saw it; none if there was no row. The take is conditional on it.
    pub seen: Option<Seen>,
    /// Kept in the row: see [`Lease::parents`].
    pub parents: Vec<ShardId>,
    /// Kept in the row: see [`Lease::stream_created`].
    pub stream_created: Option<i64>,
    /// The checkpoint of the row is not to be kept: it belongs to another stream of the same name.
    pub forget_checkpoint: bool,
    /// The shard opens at LATEST, which is this time (Unix milliseconds, by the service's clock). The store writes
    /// [`Checkpoint::Since`] with it, in the same step, so that the next reader opens there and not at a later tip. Set
    /// only if the row that was seen has no checkpoint, or has one that is not to be kept.
    pub since: Option<i64>,
}

/// The state of a row on which a write is conditional.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// [`Lease::epoch`] as seen.
    pub epoch: u64,
    /// [`Lease::counter`] as seen.
    pub counter: u64,
}

impl Held {
    /// The lease of this row, as this owner took it with this epoch.
    pub fn new(key: LeaseKey, owner: impl Into<Arc<str>>, epoch: u64) -> Self {
        Self { key, owner: owner.into(), epoch }
    }
}

impl Take {
    /// A take of a row that does not exist yet. The setters say more.
    pub fn new(key: LeaseKey, owner: impl Into<Arc<str>>) -> Self {
        let owner = owner.into();
        Self {
            key,
            owner,
            ttl: None,
            seen: None,
            parents: Vec::new(),
            stream_created: None,
            forget_checkpoint: false,
            since: None,
        }
    }

    /// Sets [`ttl`](Self#structfield.ttl).
    #[must_use]
    pub fn with_ttl(self, ttl: Option<Duration>) -> Self {
        Self { ttl, ..self }
    }

    /// Sets [`seen`](Self#structfield.seen).
    #[must_use]
    pub fn with_seen(self, seen: Option<Seen>) -> Self {
        Self { seen, ..self }
    }

    /// Sets [`parents`](Self#structfield.parents).
    #[must_use]
    pub fn with_parents(self, parents: Vec<ShardId>) -> Self {
        Self { parents, ..self }
    }

    /// Sets [`stream_created`](Self#structfield.stream_created).
    #[must_use]
    pub fn with_stream_created(self, stream_created: Option<i64>) -> Self {
        Self { stream_created, ..self }
    }

    /// Sets [`forget_checkpoint`](Self#structfield.forget_checkpoint).
    #[must_use]
    pub fn with_forget_checkpoint(self, forget_checkpoint: bool) -> Self {
        Self { forget_checkpoint, ..self }
    }

    /// Sets [`since`](Self#structfield.since).
    #[must_use]
    pub fn with_since(self, since: Option<i64>) -> Self {
        Self { since, ..self }
    }

    /// The checkpoint of the row after this take, if the row had this one before. For implementations of
    /// [`LeaseStore::take`].
    #[must_use]
    pub fn checkpoint_after(&self, before: Option<Checkpoint>) -> Option<Checkpoint> {
        before.filter(|_| !self.forget_checkpoint).or_else(|| self.since.map(Checkpoint::Since))
    }
}

impl Seen {
    /// A row with this epoch and this counter.
    #[must_use]
    pub fn new(epoch: u64, counter: u64) -> Self {
        Self { epoch, counter }
    }
}

impl Lease {
    /// A free row without a checkpoint. The setters say more.
    ///
    /// ```
    /// use kinesis_stream::{Checkpoint, Lease, LeaseKey, Seen};
    ///
    /// let key = LeaseKey::new("archive", "orders", "shardId-000000000000");
    /// let lease = Lease::new(key, Seen::new(3, 250))
    ///     .with_owner(Some("instance-1".into()))
    ///     .with_checkpoint(Some(Checkpoint::ShardEnd));
    /// assert!(lease.is_ended());
    /// ```
    #[must_use]
    pub fn new(key: LeaseKey, seen: Seen) -> Self {
        let Seen { epoch, counter } = seen;
        Self {
            key,
            owner: None,
            epoch,
            counter,
            checkpoint: None,
            parents: Vec::new(),
            stream_created: None,
            wanted_by: None,
            is_foreign: false,
            ttl: None,
        }
    }

    /// Sets [`owner`](Self#structfield.owner).
    #[must_use]
    pub fn with_owner(self, owner: Option<Arc<str>>) -> Self {
        Self { owner, ..self }
    }

    /// Sets [`checkpoint`](Self#structfield.checkpoint).
    #[must_use]
    pub fn with_checkpoint(self, checkpoint: Option<Checkpoint>) -> Self {
        Self { checkpoint, ..self }
    }

    /// Sets [`parents`](Self#structfield.parents).
    #[must_use]
    pub fn with_parents(self, parents: Vec<ShardId>) -> Self {
        Self { parents, ..self }
    }

    /// Sets [`stream_created`](Self#structfield.stream_created).
    #[must_use]
    pub fn with_stream_created(self, stream_created: Option<i64>) -> Self {
        Self { stream_created, ..self }
    }

    /// Sets [`wanted_by`](Self#structfield.wanted_by).
    #[must_use]
    pub fn with_wanted_by(self, wanted_by: Option<Arc<str>>) -> Self {
        Self { wanted_by, ..self }
    }

    /// Sets [`is_foreign`](Self#structfield.is_foreign).
    #[must_use]
    pub fn with_is_foreign(self, is_foreign: bool) -> Self {
        Self { is_foreign, ..self }
    }

    /// Sets [`ttl`](Self#structfield.ttl).
    #[must_use]
    pub fn with_ttl(self, ttl: Option<Duration>) -> Self {
        Self { ttl, ..self }
    }

    /// Whether the shard was read to its end.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.checkpoint == Some(Checkpoint::ShardEnd)
    }

    /// What a conditional write on this row is conditional on.
    #[must_use]
    pub fn seen(&self) -> Seen {
        Seen { epoch: self.epoch, counter: self.counter }
    }
}

/// The outcome of a conditional write that reached the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write<T = ()> {
    /// It was applied.
    Applied(T),
    /// The condition did not hold and nothing was written. Here is the row as it stands; none if there is no row.
    Refused(Option<Lease>),
}

/// The future of a call on a store.
pub type StoreFuture<'a, T> = BoxFuture<'a, Result<T, StoreError>>;

/// A table of leases, shared by the instances of a consumer.
///
/// You choose a store or write one; the library calls it. Every method is one atomic step on one row, except
/// [`leases`](Self::leases), which may read row by row.
///
/// # What a store must do
///
/// - **Check and apply a condition in one step.** Of a hundred concurrent takes of one row, the store applies one.
/// - **Increase [`Lease::counter`] by one with every applied write,** and [`Lease::epoch`] by one with takes only.
/// - **Use no clock.** A store neither expires leases nor reads the time; the observer decides what has expired.
/// - **Report a refused write as a result, not as an [`Err`].** After an `Err` the write may or may not have been
///   applied. The library retries it or reads the row again, so a retry must be harmless. A repeated renewal or
///   checkpoint is applied once more. A repeated take, ask or release finds its work done and is refused, with the row
///   that shows it.
/// - **Apply the calls of one holder in the order in which they were made.** An abandoned call must not be applied
///   after a later one, or a stored checkpoint would move back. A store over a network therefore also makes each write
///   conditional on the counter of its last response.
/// - **Read consistently.** [`leases`](Self::leases) and the row of a refusal show every write that was applied before
///   the call.
/// - **Keep a row that makes no sense apart.** [`read_leases`](Self::read_leases) lists it as unreadable. A write that
///   meets it changes nothing and returns a [`StoreError`] of the kind
///   [`UnreadableRow`](crate::StoreErrorKind::UnreadableRow).
/// - **Respond in bounded time.** The library abandons a call after one renewal interval and treats it as failed.
///   A read of all rows may need many round trips and gets more: twice as long after each abandoned call, up to
///   five minutes. So give each of its round trips a limit.
///
/// The cargo feature `contract` has these promises as a suite of tests, `contract::run`, for authors of a store.
///
/// # Cancel safety
///
/// The library may drop a future before it is ready. As after an `Err`, the write may then be applied or not.
pub trait LeaseStore: fmt::Debug + Send + Sync + 'static {
    /// All rows of one consumer and stream, in any order. Fails if one of them cannot be read.
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Vec<Lease>>;

    /// All rows of one consumer and stream, with those that make no sense apart. The library calls this method.
    ///
    /// A store that a person or another program can edit implements it: a row in [`Leases::unreadable`] holds back its
    /// own shard alone. By default it calls [`leases`](Self::leases), so one such row stops every shard of the
    /// consumer.
    fn read_leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Leases> {
        Box::pin(async move { Ok(self.leases(consumer, stream).await?.into()) })
    }

    /// Makes `take.owner` the holder and increases the epoch by one, if the row is as `take.seen` says (absent if that
    /// is none). It makes no difference whether the row was held or free. Returns the new row.
    ///
    /// A new row starts with epoch 1 and counter 1. [`Take::checkpoint_after`] gives the checkpoint: an old row keeps
    /// its own unless [`Take::forget_checkpoint`] is set, and a row without one gets [`Take::since`].
    /// [`Lease::wanted_by`] is cleared; parents, creation time and time to live are those of the take. A store keeps
    /// the time to live in milliseconds at least.
    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>>;

    /// Shows that the holder lives: increases the counter and changes nothing else. Conditional on owner and epoch.
    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write>;

    /// Replaces the checkpoint, whatever it was: only the library knows the order of a shard. Counts as a renewal. The
    /// end of a shard also clears [`Lease::wanted_by`], since no instance needs the shard any more. Conditional on
    /// owner and epoch.
    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write>;

    /// Frees the row: removes the owner and keeps everything else. Conditional on owner and epoch, so later writes of
    /// that epoch are refused.
    fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write>;

    /// Asks the holder to hand the shard over to `by`, through [`Lease::wanted_by`]. Conditional on the row being as
    /// seen.
    fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write>;

    /// Takes an ask back: clears [`Lease::wanted_by`] and increases the counter. The instance that asked closes and no
    /// longer needs the shard. Conditional on the row being as seen.
    ///
    /// A store may leave this out. By default it changes nothing and is refused without a row. The shard then stays
    /// without an owner for two renewal intervals after it is released.
    fn withdraw_ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        let _ = (key, seen);
        Box::pin(async { Ok(Write::Refused(None)) })
    }

    /// Removes the row, because its shard no longer exists and no other row depends on it. Conditional on the row being
    /// as seen.
    fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write>;
}

impl<S: LeaseStore + ?Sized> LeaseStore for Arc<S> {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Vec<Lease>> {
        (**self).leases(consumer, stream)
    }

    fn read_leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Leases> {
        (**self).read_leases(consumer, stream)
    }

    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
        (**self).take(take)
    }

    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        (**self).renew(held)
    }

    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
        (**self).checkpoint(held, checkpoint)
    }

    fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        (**self).release(held)
    }

    fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write> {
        (**self).ask(key, seen, by)
    }

    fn withdraw_ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        (**self).withdraw_ask(key, seen)
    }

    fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        (**self).delete(key, seen)
    }
}
