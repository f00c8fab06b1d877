//! The file that the events go to, and the books on what became of each of them.

use std::{
    collections::HashMap,
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kinesis_stream::{Acker, Commit, Delivery};
use tokio::{sync::watch, task::spawn_blocking, time::timeout};

use crate::{failure::Failure, progress::Counts, quake, quake::Quake};

/// What is known of an event that is in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// Not settled yet.
    InFlight,
    /// Settled behind one that was still open.
    Deferred,
    /// Covered by a stored checkpoint: it must not come again.
    Stored,
    /// In flight, or deferred, when its subscription was dropped, or superseded. It comes again, unless it was settled
    /// before.
    Returned,
}

/// How many events are in the file and not in flight, and how many of them the subscription of the moment settled.
#[derive(Clone, Copy, Debug, Default)]
struct Settled {
    all: usize,
    since_start: usize,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Archive {
    path: PathBuf,
    file: Arc<fs::File>,
    events: Mutex<HashMap<String, Event>>,
    settled: watch::Sender<Settled>,
    tally: Mutex<Tally>,
    counts: Arc<Counts>,
}

/// What is reported in the end.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    /// Events that were in flight when their subscription was dropped.
    pub(crate) returned: usize,
    /// Events that came again.
    pub(crate) repeats: usize,
    /// Events that came again though they were not in flight at a restart.
    pub(crate) unexpected: usize,
}

impl Archive {
    /// An empty file.
    pub(crate) fn create(path: &Path, counts: Arc<Counts>) -> Result<Self, Failure> {
        let file = fs::File::create(path).map_err(|source| Failure::File { path: path.to_owned(), source })?;
        Ok(Self {
            path: path.to_owned(),
            file: Arc::new(file),
            events: Mutex::default(),
            settled: watch::Sender::default(),
            tally: Mutex::default(),
            counts,
        })
    }

    /// Appends events. When this is done they are on the disk, so they can be settled.
    pub(crate) async fn append(self: Arc<Self>, quakes: Vec<Delivery<Quake>>) -> Result<Vec<Delivery<Quake>>, Failure> {
        let lines: Vec<&[u8]> = quakes.iter().map(|quake| quake.payload().line.as_slice()).collect();
        let written = (&*self.file).write_all(&lines.concat());
        written.map_err(|source| self.failed(source))?;
        for quake in &quakes {
            self.note(quake.payload());
        }
        let file = Arc::clone(&self.file);
        let synced = spawn_blocking(move || file.sync_data()).await.unwrap_or_else(|error| Err(error.into()));
        synced.map_err(|source| self.failed(source))?;
        Ok(quakes)
    }

    /// Notes that an event is in the file, once more perhaps.
    fn note(&self, quake: &Quake) {
        let Some(before) = lock(&self.events).insert(quake.id.clone(), Event::InFlight) else { return };
        let mut tally = lock(&self.tally);
        tally.repeats += 1;
        tally.unexpected += usize::from(before != Event::Returned);
        self.count(|settled| settled.all -= usize::from(before != Event::InFlight));
    }

    /// Commits one event, and notes what that came to.
    pub(crate) async fn settle(self: Arc<Self>, quake: Delivery<Quake>) -> Result<(), Failure> {
        let id = quake.payload().id.clone();
        let event = match Acker::from(quake).commit().await? {
            Commit::Stored => Event::Stored,
            Commit::Deferred => Event::Deferred,
            _ => {
                lock(&self.tally).returned += 1;
                Event::Returned
            }
        };
        lock(&self.events).insert(id, event);
        self.count(|settled| {
            settled.all += 1;
            settled.since_start += 1;
        });
        Ok(())
    }

    /// Notes that the subscription is gone, and with it what it had in flight.
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

    fn count(&self, change: impl FnOnce(&mut Settled)) {
        self.settled.send_modify(change);
        self.counts.set_settled(self.settled.borrow().all);
    }

    /// Waits until every event is in the file and none is in flight.
    pub(crate) async fn complete(&self) {
        let all = quake::all();
        self.until(|settled| settled.all >= all).await;
    }

    /// Waits until the subscription of the moment has settled so many events, and there are more to come. Never, once a
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

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn tally(&self) -> Tally {
        *lock(&self.tally)
    }

    /// What the file holds.
    pub(crate) fn written(&self) -> Result<String, Failure> {
        fs::read_to_string(&self.path).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> Failure {
        Failure::File { path: self.path.clone(), source }
    }
}

/// No step that is done under a lock can be left half done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
