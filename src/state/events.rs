//! What the tasks of a subscription pass to its stream: errors, redeliveries, and the end.
//!
//! Any thread may call this, without a runtime: dropping a delivery ends up here.
//!
//! **The stream keeps at most one untaken error per shard and class** of the kind that the library deals with. A newer
//! error of the same class replaces it. So a user who is away for an hour does not return to an hour of errors.
//!
//! **Dropping returned records when a generation ends:** see `state/settlement.rs`.

use std::{
    collections::BTreeMap,
    mem,
    sync::{Mutex, atomic::Ordering},
    task::Waker,
};

use futures::task::AtomicWaker;
use tokio::time::Instant;

use crate::{
    config::redelivery::{Reason, Wish},
    error::{ErrorClass, KinesisError, service::ServiceFailure},
    state::{settlement::Settlement, tracker::Ticket},
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
    /// At most one error per shard and rank, and one for the whole stream (no shard): a newer error replaces it.
    errors: BTreeMap<(Option<ShardId>, Rank), KinesisError>,
    /// Ordered by due time, then by arrival.
    waiting: BTreeMap<(Instant, u64), Redelivery>,
    arrivals: u64,
    fatal: Option<KinesisError>,
    /// Nothing more will be read: the stream ends once it has delivered everything.
    finishing: bool,
    ended: bool,
}

/// Errors of one rank replace each other. A passing failure does not replace the news of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Loss,
    Lasting,
    Other,
}

impl Rank {
    fn of(error: &KinesisError) -> Self {
        match error.class() {
            ErrorClass::Loss => Self::Loss,
            ErrorClass::Lasting => Self::Lasting,
            _ => Self::Other,
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
            contents.errors.insert((shard, Rank::of(&error)), error);
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
            contents.waiting.insert((at, contents.arrivals), redelivery)
        });
        drop(refused);
    }

    /// Drops waiting records that will not be redelivered, because their generation is over.
    pub(crate) fn forget(&self, is_over: impl Fn(&Returned) -> bool) {
        let dropped: Vec<_> =
            self.change(|contents| contents.waiting.extract_if(.., |_, waiting| is_over(waiting.record())).collect());
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
        let due = contents.waiting.first_entry().filter(|entry| entry.key().0 <= now)?;
        Some(Event::Redelivery(due.remove()))
    }

    /// When the next record is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let contents = lock(&self.contents);
        contents.waiting.first_key_value().map(|((at, _), _)| *at)
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
    use std::sync::Arc;

    use super::*;

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
