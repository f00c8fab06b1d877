//! A stream, a table, and the workers on them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use kinesis_stream_support::{DynamoDb, Server, unique};
use rustix::process::Signal;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    task::AbortHandle,
    time::Duration,
};

use crate::{
    PATIENCE, SEEDS,
    history::{Book, Entry, Journal},
    row::{Place, Row},
    source::{STREAM, Source},
    worker::{self, Worker},
};

/// Times that are short for a test, and long for a machine that is busy with others.
pub(crate) const TTL: Duration = Duration::from_secs(2);
pub(crate) const RENEW: Duration = Duration::from_millis(500);
const DRAIN: Duration = Duration::from_millis(1_500);

/// See the module.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) source: Arc<Source>,
    pub(crate) journal: Journal,
    pub(crate) workers: Vec<Worker>,
    pub(crate) work: Duration,
    table: Server,
    _dynamodb: DynamoDb,
    folder: PathBuf,
    started: usize,
    pulse: AbortHandle,
    _turn: SemaphorePermit<'static>,
}

/// Two fleets at a time, or their times would be those of the machine.
static TURNS: Semaphore = Semaphore::const_new(2);

impl Fleet {
    pub(crate) async fn new(name: &str, shards: u32) -> Self {
        worker::program();
        let turn = TURNS.acquire().await.unwrap();
        let (dynamodb, journal) = (DynamoDb::start(), Journal::start());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique(name));
        fs::create_dir_all(&folder).unwrap();
        Self {
            table: dynamodb.watched(journal.scribe()),
            source: Arc::new(Source::new(shards).await),
            workers: Vec::new(),
            work: Duration::from_millis(20),
            started: 0,
            pulse: journal.pulse(),
            journal,
            folder,
            _dynamodb: dynamodb,
            _turn: turn,
        }
    }

    /// Starts a worker with a name of its own.
    pub(crate) fn join(&mut self) -> String {
        self.started += 1;
        let name = format!("w{}", self.started);
        self.join_as(&name, &name)
    }

    /// Starts a worker that calls itself `owner`.
    pub(crate) fn join_as(&mut self, name: &str, owner: &str) -> String {
        let seconds = |time: Duration| time.as_secs_f64().to_string();
        let arguments = [
            ("--stream", STREAM.to_owned()),
            ("--endpoint", self.source.kinesis.endpoint()),
            // The path tells the table who writes.
            ("--dynamodb-endpoint", format!("{}/{name}", self.table.endpoint())),
            ("--owner", owner.to_owned()),
            ("--work", seconds(self.work)),
            ("--ttl", seconds(TTL)),
            ("--renew", seconds(RENEW)),
            ("--drain", seconds(DRAIN)),
            ("--poll", "0.1".to_owned()),
            ("--list", "1".to_owned()),
        ];
        let arguments: Vec<String> =
            arguments.into_iter().flat_map(|(option, value)| [option.to_owned(), value]).collect();
        self.journal.deed("start", name);
        let log = self.folder.join(format!("{name}.log"));
        self.workers.push(Worker::start(name, &arguments, self.journal.stdout(), &log));
        name.to_owned()
    }

    /// Starts a worker, and waits until it reads.
    pub(crate) async fn joined(&mut self) -> String {
        let name = self.join();
        self.journal.event("ready", &name).await;
        name
    }

    pub(crate) fn worker(&mut self, name: &str) -> &mut Worker {
        self.workers.iter_mut().find(|worker| worker.name == name).unwrap()
    }

    pub(crate) fn signal(&mut self, name: &str, signal: Signal) {
        let deed = match signal {
            Signal::KILL => "kill",
            Signal::STOP => "stop",
            Signal::CONT => "continue",
            _ => "close",
        };
        self.journal.deed(deed, name);
        self.worker(name).signal(signal);
    }

    /// How many shards each of these holds that are not read to their end.
    pub(crate) fn shares(&self, owners: &[String]) -> Vec<usize> {
        let book = self.journal.book();
        let held =
            |owner| book.rows.values().filter(|row| !row.is_ended() && row.owner.as_ref() == Some(owner)).count();
        owners.iter().map(held).collect()
    }

    /// How many shards none of these holds that are not read to their end.
    pub(crate) fn unowned(&self, owners: &[String]) -> usize {
        let book = self.journal.book();
        let is_owned = |row: &&Row| row.owner.as_ref().is_some_and(|owner| owners.contains(owner));
        book.rows.values().filter(|row| !row.is_ended() && !is_owned(row)).count()
    }

    /// Waits until the table covers every record, and knows the end of every closed shard.
    pub(crate) async fn settled(&self) {
        let ends = self.source.ends().await;
        let covers = |book: &Book| {
            let lacks = |(shard, end): &(&String, &Place)| book.rows.get(*shard).is_none_or(|row| row.place != **end);
            let open: Vec<_> = ends.iter().filter(lacks).collect();
            open.is_empty().then_some(())
        };
        if self.journal.find_within(PATIENCE, covers).await.is_none() {
            let rows = self.journal.book().rows.clone();
            panic!("not settled in {PATIENCE:?}: the ends are {ends:#?}, the rows {rows:#?}");
        }
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.journal.book().entries.clone()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.pulse.abort();
        self.workers.clear();
        // Seeds that were asked for are looked into.
        if thread::panicking() || env::var_os(SEEDS).is_some() {
            drop(fs::write(self.folder.join("journal"), self.journal.book().to_string()));
            eprintln!("the journal and what the workers logged are in {}", self.folder.display());
        } else {
            drop(fs::remove_dir_all(&self.folder));
        }
    }
}
