//! What the tasks of a subscription pass to its stream: errors, redeliveries, and the end.
//!
//! Any thread may call this, without a runtime: dropping a delivery ends up here.
//!
//! **The stream keeps at most one untaken error per shard** of the kind that the library deals with. A newer one
//! replaces it, so that a user who is away for an hour does not return to an hour of errors. A loss, and a failure that
//! lasts, are never replaced: of each kind the first one stays. The first loss names the place from which records may
//! be missing, and `stats()` counts them all.
//!
//! **Dropping returned records when a generation ends:** see `state/settlement.rs`.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    mem,
    sync::{Mutex, atomic::Ordering},
    task::Waker,
};

use futures::task::AtomicWaker;
use tokio::time::Instant;

use crate::{
    config::redelivery::{Reason, Wish},
    error::{ErrorClass, KinesisError, service::ServiceFailure, work::Work},
    state::{
        settlement::Settlement,
        shard_queue::{OfShard, ShardQueue},
        tracker::Ticket,
    },
    types::{id::ShardId, record::Kept},
    util::{atomics::AtomicBool, mutex::lock},
};

/// A record that the user gave back.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) ticket: Ticket,
    pub(crate) shard: ShardId,
    pub(crate) record: Kept,
    /// How often it was delivered.
    pub(crate) attempts: u32,
    /// What the user wants for it.
    pub(crate) wish: Wish,
    /// Why it was given back the last time.
    pub(crate) reason: Reason,
    /// Tells `buffer_by_key` its outcome.
    pub(crate) settlement: Option<Settlement>,
}

/// A record that waits until it is due.
#[derive(Debug)]
pub(crate) enum Redelivery {
    /// It is redelivered.
    Again(Returned),
    /// It has used up its attempts, so the stream yields it as an error, together with the failure that rejected its
    /// dead letter.
    Spent(Returned, Option<ServiceFailure>),
}

impl OfShard for Returned {
    fn shard(&self) -> &ShardId {
        &self.shard
    }

    fn generation(&self) -> u64 {
        self.ticket.generation()
    }
}

impl OfShard for Redelivery {
    fn shard(&self) -> &ShardId {
        self.record().shard()
    }

    fn generation(&self) -> u64 {
        self.record().generation()
    }
}

impl Redelivery {
    pub(crate) fn record(&self) -> &Returned {
        let (Self::Again(returned) | Self::Spent(returned, _)) = self;
        returned
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Events {
    /// Something changed since the stream last looked. The stream checks it for every record, so it is outside the
    /// lock.
    news: AtomicBool,
    waker: AtomicWaker,
    contents: Mutex<EventQueue>,
}

#[derive(Debug, Default)]
struct EventQueue {
    /// At most one error per shard and rank, and one for the whole stream (no shard).
    errors: BTreeMap<(Option<ShardId>, Rank), KinesisError>,
    /// Ordered by due time, then by arrival.
    waiting: ShardQueue<(Instant, u64), Redelivery>,
    arrivals: u64,
    fatal: Option<KinesisError>,
    /// Nothing more will be read: the stream ends once it has delivered everything.
    finishing: bool,
    ended: bool,
}

/// Errors of one shard and one rank take each other's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    CheckpointLost,
    ShardGone,
    OtherLoss,
    Lasting(Option<Work>),
    /// The newest one stays. Of all other ranks, the first one does.
    Passing,
}

impl Rank {
    fn of(error: &KinesisError) -> Self {
        match error {
            KinesisError::CheckpointLost { .. } => Self::CheckpointLost,
            KinesisError::ShardGone { .. } => Self::ShardGone,
            KinesisError::Lasting { source, .. } => Self::Lasting(source.interrupts().map(|(work, _)| work)),
            other if other.class() == ErrorClass::Loss => Self::OtherLoss,
            _ => Self::Passing,
        }
    }
}

/// What the stream takes from the events.
#[derive(Debug)]
pub(crate) enum Event {
    /// An error to yield.
    Error(KinesisError),
    /// A record that is due.
    Redelivery(Redelivery),
    /// The subscription is over.
    End,
}

impl Events {
    /// Adds an error about one shard, or about the stream.
    pub(crate) fn error(&self, shard: Option<ShardId>, error: KinesisError) {
        self.change(|contents| {
            let rank = Rank::of(&error);
            match contents.errors.entry((shard, rank)) {
                Entry::Occupied(_) if rank != Rank::Passing => {}
                entry => drop(entry.insert_entry(error)),
            }
        });
    }

    /// Sets the last error: the subscription ends after it. The first one counts.
    pub(crate) fn fatal(&self, error: KinesisError) {
        self.change(|contents| {
            contents.fatal.get_or_insert(error);
            contents.ended = true;
        });
    }

    /// Ends the subscription's stream. Records that wait for a redelivery are dropped: they stay unsettled.
    pub(crate) fn end(&self) {
        let dropped = self.change(|contents| {
            contents.ended = true;
            mem::take(&mut contents.waiting)
        });
        drop(dropped);
    }

    /// Sets whether nothing more will be read, so that the stream ends once it has delivered everything.
    pub(crate) fn finish(&self, finishing: bool) {
        if lock(&self.contents).finishing != finishing {
            self.change(|contents| contents.finishing = finishing);
        }
    }

    /// Whether nothing more will be read and no event is left.
    pub(crate) fn is_finished(&self) -> bool {
        let contents = lock(&self.contents);
        contents.finishing && contents.waiting.is_empty() && contents.errors.is_empty()
    }

    /// Adds a record that is due at this time.
    pub(crate) fn due(&self, redelivery: Redelivery, at: Instant) {
        let refused = self.change(|contents| {
            if contents.ended {
                return Some(redelivery);
            }
            contents.arrivals += 1;
            contents.waiting.insert((at, contents.arrivals), redelivery);
            None
        });
        drop(refused);
    }

    /// Drops waiting records of a shard that will not be redelivered, because this generation and all before it are
    /// over.
    pub(crate) fn forget(&self, shard: &ShardId, generation: u64) {
        let dropped = self.change(|contents| contents.waiting.remove(shard, generation));
        drop(dropped);
    }

    /// Wakes the stream to look again.
    pub(crate) fn nudge(&self) {
        self.change(|_| ());
    }

    /// Whether anything changed since the last call.
    pub(crate) fn has_news(&self) -> bool {
        self.news.load(Ordering::Relaxed) && self.news.swap(false, Ordering::Acquire)
    }

    /// Whether nothing changed since the last call of [`has_news`](Self::has_news).
    pub(crate) fn is_empty_handed(&self) -> bool {
        !self.news.load(Ordering::Acquire)
    }

    /// Sets the waker for the next change.
    pub(crate) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// Takes the most urgent event: the end, then errors, then due records.
    pub(crate) fn take(&self, now: Instant) -> Option<Event> {
        let mut contents = lock(&self.contents);
        if contents.ended {
            return Some(contents.fatal.take().map_or(Event::End, Event::Error));
        }
        if let Some((_, error)) = contents.errors.pop_first() {
            return Some(Event::Error(error));
        }
        let _due = contents.waiting.first_key().filter(|(at, _)| *at <= now)?;
        contents.waiting.pop_first().map(Event::Redelivery)
    }

    /// When the next record is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        lock(&self.contents).waiting.first_key().map(|(at, _)| at)
    }

    /// The caller drops the result of `change`: dropping a record may wake a task, which must not happen under the
    /// lock.
    fn change<T>(&self, change: impl FnOnce(&mut EventQueue) -> T) -> T {
        let result = change(&mut lock(&self.contents));
        self.news.store(true, Ordering::Release);
        self.waker.wake();
        result
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;
    use crate::error::service::{Action, FailureKind, StoreError, StoreErrorKind};

    // R10
    #[test]
    fn one_untaken_error_is_kept_for_each_shard_and_the_newest_wins() {
        let events = Events::default();
        let error = |what| KinesisError::invalid(what, "");
        events.error(Some("a".into()), error("first"));
        events.error(Some("b".into()), error("other shard"));
        events.error(Some("a".into()), error("second"));
        assert!(events.has_news());
        assert!(!events.has_news());
        let mut whats = Vec::new();
        while let Some(Event::Error(KinesisError::Invalid { what, .. })) = events.take(Instant::now()) {
            whats.push(what);
        }
        assert_eq!(whats, ["second", "other shard"]);
    }

    // R10, X2
    #[test]
    fn a_passing_failure_does_not_replace_the_news_of_a_loss() {
        let events = Events::default();
        let (stream, shard) = (Arc::from("s"), ShardId::from("a"));
        events.error(Some(shard.clone()), KinesisError::ShardGone { stream, shard: shard.clone() });
        events.error(Some(shard), KinesisError::NotConnected);
        let taken = [events.take(Instant::now()), events.take(Instant::now()), events.take(Instant::now())];
        assert!(
            matches!(
                taken,
                [
                    Some(Event::Error(KinesisError::ShardGone { .. })),
                    Some(Event::Error(KinesisError::NotConnected)),
                    None
                ]
            ),
            "{taken:?}"
        );
    }

    // X2
    #[test]
    fn an_untaken_loss_or_lasting_failure_is_never_replaced() {
        let events = Events::default();
        let (stream, shard): (Arc<str>, _) = (Arc::from("s"), ShardId::from("a"));
        let lost = |checkpoint: &str| KinesisError::CheckpointLost {
            stream: Arc::clone(&stream),
            shard: shard.clone(),
            checkpoint: checkpoint.into(),
            source: None,
        };
        let gone = KinesisError::ShardGone { stream: Arc::clone(&stream), shard: shard.clone() };
        let lasting = |shard: Option<ShardId>, seconds| {
            let source = StoreError::new("no").with_kind(StoreErrorKind::Unusable);
            let store = KinesisError::Store { stream: Arc::clone(&stream), shard, action: "reading", source };
            let lasted = Duration::from_secs(seconds);
            KinesisError::Lasting { stream: Arc::clone(&stream), lasted, source: Arc::new(store) }
        };
        let unlisted = |seconds| {
            let source = ServiceFailure::new(Action::ListShards, FailureKind::Denied, "no");
            let denied = KinesisError::List { stream: Arc::clone(&stream), source };
            let lasted = Duration::from_secs(seconds);
            KinesisError::Lasting { stream: Arc::clone(&stream), lasted, source: Arc::new(denied) }
        };
        for error in [lost("1"), lost("2"), gone, lasting(Some(shard.clone()), 120), KinesisError::NotConnected] {
            events.error(Some(shard.clone()), error);
        }
        events.error(None, KinesisError::StreamRecreated { stream: Arc::clone(&stream) });
        for error in [lasting(None, 120), unlisted(130), lasting(None, 240), unlisted(250), KinesisError::NotConnected]
        {
            events.error(None, error);
        }
        let mut taken = Vec::new();
        while let Some(Event::Error(error)) = events.take(Instant::now()) {
            taken.push(match &error {
                KinesisError::CheckpointLost { checkpoint, .. } => format!("lost {checkpoint}"),
                KinesisError::Lasting { lasted, source, .. } => format!("{} s: {source}", lasted.as_secs()),
                other => other.to_string(),
            });
        }
        assert_eq!(
            taken,
            [
                "stream s was deleted and created again; the new one is read from its start",
                "120 s: stream s: the lease store failed while reading",
                "130 s: stream s: the shards could not be listed; the library retries",
                "not connected: the broker has not been connected yet, or was shut down",
                "lost 1",
                "stream s, shard a is gone before it was read to its end; its children start without it",
                "120 s: stream s, shard a: the lease store failed while reading",
                "not connected: the broker has not been connected yet, or was shut down",
            ]
        );
    }

    // X1
    #[test]
    fn the_end_comes_after_the_fatal_error_and_stays() {
        let events = Events::default();
        events.fatal(KinesisError::NotConnected);
        assert!(matches!(events.take(Instant::now()), Some(Event::Error(KinesisError::NotConnected))));
        assert!(matches!(events.take(Instant::now()), Some(Event::End)));
        assert!(matches!(events.take(Instant::now()), Some(Event::End)));
    }
}
