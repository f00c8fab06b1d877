//! The books on what became of each event.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::timeout};

use crate::{news::News, progress::Counts, quake};

/// What is known of an event that is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// Not settled yet.
    InFlight,
    /// Settled behind one that was still open.
    Deferred,
    /// Covered by a stored checkpoint: it must not come again.
    Stored,
    /// In flight, or deferred, when its subscription was dropped, its consumer killed, or its lease superseded. It comes
    /// again, unless it was settled before.
    Returned,
}

/// How many events are in the file and not in flight, and how many of them the consumer of the moment settled.
#[derive(Clone, Copy, Debug, Default)]
struct Settled {
    all: usize,
    since_start: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Books {
    events: Mutex<HashMap<String, Event>>,
    settled: watch::Sender<Settled>,
    tally: Mutex<Tally>,
    counts: Arc<Counts>,
}

/// What is reported in the end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Lines of the file.
    pub(crate) written: usize,
    /// Events that were in flight when their consumer went.
    pub(crate) returned: usize,
    /// Events that came again.
    pub(crate) repeats: usize,
    /// Events that came again though they were not in flight at a restart.
    pub(crate) unexpected: usize,
}

impl Books {
    pub(crate) fn new(counts: Arc<Counts>) -> Self {
        Self { events: Mutex::default(), settled: watch::Sender::default(), tally: Mutex::default(), counts }
    }

    /// Enters what is told of an event.
    pub(crate) fn enter(&self, news: News) {
        let (id, event) = match news {
            News::Ready => return,
            News::Written(id) => return self.written(id),
            News::Stored(id) => (id, Event::Stored),
            News::Deferred(id) => (id, Event::Deferred),
            News::Returned(id) => {
                lock(&self.tally).returned += 1;
                (id, Event::Returned)
            }
        };
        lock(&self.events).insert(id, event);
        self.count(|settled| {
            settled.all += 1;
            settled.since_start += 1;
        });
    }

    /// An event is in the file, once more perhaps.
    fn written(&self, id: String) {
        let mut tally = lock(&self.tally);
        tally.written += 1;
        let Some(before) = lock(&self.events).insert(id, Event::InFlight) else { return };
        tally.repeats += 1;
        tally.unexpected += usize::from(before != Event::Returned);
        self.count(|settled| settled.all -= usize::from(before != Event::InFlight));
    }

    /// The subscription is gone, and with it what it had in flight.
    pub(crate) fn dropped(&self) {
        let mut events = lock(&self.events);
        let mut returned = 0;
        for event in events.values_mut().filter(|event| matches!(event, Event::InFlight | Event::Deferred)) {
            *event = Event::Returned;
            returned += 1;
        }
        lock(&self.tally).returned += returned;
        self.count(|settled| *settled = Settled { all: events.len(), since_start: 0 });
    }

    /// The consumer was killed. What it wrote last, it could not tell any more; the file does.
    pub(crate) fn killed(&self, events_of_the_file: impl Iterator<Item = String>) {
        let told = self.tally().written;
        events_of_the_file.skip(told).for_each(|id| self.written(id));
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

    /// Waits until the consumer of the moment has settled so many events, and there are more to come. Never, once a
    /// promise was broken: what comes again and again would have no end.
    pub(crate) async fn settled_since_start(&self, many: usize) {
        let all = quake::all();
        self.until(|settled| settled.since_start >= many && settled.all < all && self.tally().unexpected == 0).await;
    }

    /// Waits until nothing has happened for so long.
    pub(crate) async fn idle(&self, patience: Duration) {
        let mut settled = self.settled.subscribe();
        while timeout(patience, settled.changed()).await.is_ok() {}
    }

    async fn until(&self, condition: impl Fn(&Settled) -> bool + Send) {
        // The sender lives in `self`, so waiting cannot fail.
        drop(self.settled.subscribe().wait_for(condition).await);
    }

    pub(crate) fn tally(&self) -> Tally {
        *lock(&self.tally)
    }
}

/// No step that is done under a lock can be left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
