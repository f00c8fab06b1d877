//! What a subscription's workers leave for it to pick up: errors, records that come again, and the end.
//!
//! Everything here can be called from any thread, without a runtime: dropping a delivery ends up here.

use std::{
    collections::BTreeMap,
    mem,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::Waker,
};

use futures::task::AtomicWaker;
use tokio::time::Instant;

use crate::{
    config::redelivery::Reason,
    error::{KinesisError, service::ServiceFailure},
    state::{settlement::Settlement, tracker::Ticket},
    types::{id::ShardId, record::Kept},
    util::mutex::lock,
};

/// A record that the user gave back.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) ticket: Ticket,
    pub(crate) shard: ShardId,
    pub(crate) record: Kept,
    /// How often it was handed out.
    pub(crate) attempts: u32,
    /// Why it came back the last time.
    pub(crate) reason: Reason,
    /// Tells whoever waits for it.
    pub(crate) settlement: Option<Settlement>,
}

/// A record that waits for its moment.
#[derive(Debug)]
pub(crate) enum Redelivery {
    /// It is handed out again.
    Again(Returned),
    /// Its attempts are spent, so it is handed out as an error, with what refused it as a dead letter.
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
    /// Something changed since the subscription looked last. Checked for every record, so it stands outside the lock.
    news: AtomicBool,
    waker: AtomicWaker,
    contents: Mutex<EventQueue>,
}

#[derive(Debug, Default)]
struct EventQueue {
    /// At most one error a shard, and one of the stream as a whole (no shard): a newer one replaces it.
    errors: BTreeMap<Option<ShardId>, KinesisError>,
    /// By the moment they are due, then in the order in which they came.
    waiting: BTreeMap<(Instant, u64), Redelivery>,
    arrivals: u64,
    fatal: Option<KinesisError>,
    /// Nothing more will be read: the subscription ends itself once everything was handed out.
    finishing: bool,
    ended: bool,
}

/// What a subscription finds in its inbox.
#[derive(Debug)]
pub(crate) enum Event {
    /// An error to hand out.
    Error(KinesisError),
    /// A record whose moment has come.
    Redelivery(Redelivery),
    /// The subscription is over.
    End,
}

impl Events {
    /// Leaves an error about one shard, or about the stream.
    pub(crate) fn error(&self, shard: Option<ShardId>, error: KinesisError) {
        self.change(|contents| {
            contents.errors.insert(shard, error);
        });
    }

    /// Leaves the last error: the subscription ends after it. The first one counts.
    pub(crate) fn fatal(&self, error: KinesisError) {
        self.change(|contents| {
            contents.fatal.get_or_insert(error);
            contents.ended = true;
        });
    }

    /// Ends the subscription's stream. Records that wait to come again are dropped: they stay unsettled.
    pub(crate) fn end(&self) {
        let dropped = self.change(|contents| {
            contents.ended = true;
            mem::take(&mut contents.waiting)
        });
        drop(dropped);
    }

    /// Says whether nothing more will be read, so that the subscription is to end once everything was handed out.
    pub(crate) fn finish(&self, finishing: bool) {
        if lock(&self.contents).finishing != finishing {
            self.change(|contents| contents.finishing = finishing);
        }
    }

    /// Whether nothing more will be read and nothing is left in here.
    pub(crate) fn is_finished(&self) -> bool {
        let contents = lock(&self.contents);
        contents.finishing && contents.waiting.is_empty() && contents.errors.is_empty()
    }

    /// Leaves a record for this moment.
    pub(crate) fn due(&self, due: Redelivery, at: Instant) {
        let refused = self.change(|contents| {
            if contents.ended {
                return Some(due);
            }
            contents.arrivals += 1;
            contents.waiting.insert((at, contents.arrivals), due)
        });
        drop(refused);
    }

    /// Drops what waits and will not come, since the opening of its shard is over.
    pub(crate) fn forget(&self, is_over: impl Fn(&Returned) -> bool) {
        let dropped: Vec<_> =
            self.change(|contents| contents.waiting.extract_if(.., |_, due| is_over(due.record())).collect());
        drop(dropped);
    }

    /// Has the subscription look again.
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

    /// Who is woken by the next change.
    pub(crate) fn register(&self, waker: &Waker) {
        self.waker.register(waker);
    }

    /// The most urgent thing in here.
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

    /// What `change` gives is for the caller to drop: a record that is dropped may wake somebody, which is not to happen under
    /// the lock.
    fn change<T>(&self, change: impl FnOnce(&mut EventQueue) -> T) -> T {
        let result = change(&mut lock(&self.contents));
        self.news.store(true, Ordering::Release);
        self.waker.wake();
        result
    }
}

#[cfg(test)]
mod tests {
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
