//! Tracks the state of each event.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::timeout};

use crate::{progress::Counts, quake, status::Status};

/// The state of an event that is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// Not settled yet.
    InFlight,
    /// Settled, while an earlier record of its shard was still open.
    Deferred,
    /// Covered by a stored checkpoint. It must not be redelivered.
    Stored,
    /// In flight or deferred when its subscription was dropped, its consumer killed, or its lease superseded. It may be
    /// redelivered.
    Returned,
}

/// How many events are in the file and not in flight, and how many of them the current consumer settled.
#[derive(Clone, Copy, Debug, Default)]
struct Settled {
    all: usize,
    since_start: usize,
}

/// The states of all events, and the totals.
#[derive(Debug)]
pub(crate) struct EventTracker {
    events: Mutex<HashMap<String, Event>>,
    settled: watch::Sender<Settled>,
    totals: Mutex<Totals>,
    counts: Arc<Counts>,
}

/// The numbers of the final report.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Totals {
    /// Lines of the file.
    pub(crate) written: usize,
    /// Events that were in flight when their consumer stopped.
    pub(crate) returned: usize,
    /// Redelivered events.
    pub(crate) repeats: usize,
    /// Redelivered events that were not in flight at a restart.
    pub(crate) unexpected: usize,
}

impl EventTracker {
    pub(crate) fn new(counts: Arc<Counts>) -> Self {
        Self { events: Mutex::default(), settled: watch::Sender::default(), totals: Mutex::default(), counts }
    }

    /// Applies a status that the archive reported.
    pub(crate) fn update(&self, status: Status) {
        let (id, event) = match status {
            Status::Ready => return,
            Status::Written(id) => return self.written(id),
            Status::Stored(id) => (id, Event::Stored),
            Status::Deferred(id) => (id, Event::Deferred),
            Status::Returned(id) => {
                lock(&self.totals).returned += 1;
                (id, Event::Returned)
            }
        };
        lock(&self.events).insert(id, event);
        self.count(|settled| {
            settled.all += 1;
            settled.since_start += 1;
        });
    }

    /// An event was written to the file, perhaps not for the first time.
    fn written(&self, id: String) {
        let mut totals = lock(&self.totals);
        totals.written += 1;
        let Some(before) = lock(&self.events).insert(id, Event::InFlight) else { return };
        totals.repeats += 1;
        totals.unexpected += usize::from(before != Event::Returned);
        self.count(|settled| settled.all -= usize::from(before != Event::InFlight));
    }

    /// The subscription was dropped, and the records in flight with it.
    pub(crate) fn dropped(&self) {
        let mut events = lock(&self.events);
        let mut returned = 0;
        for event in events.values_mut().filter(|event| matches!(event, Event::InFlight | Event::Deferred)) {
            *event = Event::Returned;
            returned += 1;
        }
        lock(&self.totals).returned += returned;
        self.count(|settled| *settled = Settled { all: events.len(), since_start: 0 });
    }

    /// The consumer was killed before it could report its last writes. The file has them.
    pub(crate) fn killed(&self, events_of_the_file: impl Iterator<Item = String>) {
        let reported = self.totals().written;
        events_of_the_file.skip(reported).for_each(|id| self.written(id));
        self.dropped();
    }

    fn count(&self, change: impl FnOnce(&mut Settled)) {
        self.settled.send_modify(change);
        self.counts.set_settled(self.settled.borrow().all);
    }

    /// Waits until every event is in the file and none is in flight.
    pub(crate) async fn complete(&self) {
        let all = quake::all();
        self.until(|settled| settled.all >= all).await;
    }

    /// Waits until the current consumer has settled `many` events and more are missing. Never returns once a promise
    /// was broken, because endless redeliveries would restart the consumer without end.
    pub(crate) async fn settled_since_start(&self, many: usize) {
        let all = quake::all();
        self.until(|settled| settled.since_start >= many && settled.all < all && self.totals().unexpected == 0).await;
    }

    /// Waits until nothing has happened for `patience`.
    pub(crate) async fn idle(&self, patience: Duration) {
        let mut settled = self.settled.subscribe();
        while timeout(patience, settled.changed()).await.is_ok() {}
    }

    async fn until(&self, condition: impl Fn(&Settled) -> bool + Send) {
        // The sender lives in `self`, so waiting cannot fail.
        drop(self.settled.subscribe().wait_for(condition).await);
    }

    pub(crate) fn totals(&self) -> Totals {
        *lock(&self.totals)
    }
}

/// No code panics between two changes under a lock, so a poisoned lock still holds consistent data.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
