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
    history::{Entry, History, Recorder},
    row::{Place, Row},
    source::{STREAM, Source},
    worker::{self, Worker},
};

/// Short enough for a test, and long enough for a busy machine.
pub(crate) const TTL: Duration = Duration::from_secs(2);
pub(crate) const RENEW: Duration = Duration::from_millis(500);
const DRAIN: Duration = Duration::from_millis(1_500);

/// See the module.
#[derive(Debug)]
pub(crate) struct Fleet {
    pub(crate) source: Arc<Source>,
    pub(crate) recorder: Recorder,
    pub(crate) workers: Vec<Worker>,
    pub(crate) work: Duration,
    table: Server,
    _dynamodb: DynamoDb,
    folder: PathBuf,
    started: usize,
    pulse: AbortHandle,
    _turn: SemaphorePermit<'static>,
}

/// At most two fleets at a time; more would overload the machine and distort the timing.
static TURNS: Semaphore = Semaphore::const_new(2);

impl Fleet {
    pub(crate) async fn new(name: &str, shards: u32) -> Self {
        worker::program();
        let turn = TURNS.acquire().await.unwrap();
        let (dynamodb, recorder) = (DynamoDb::start(), Recorder::start());
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(unique(name));
        fs::create_dir_all(&folder).unwrap();
        Self {
            table: dynamodb.watched(recorder.scribe()),
            source: Arc::new(Source::new(shards).await),
            workers: Vec::new(),
            work: Duration::from_millis(20),
            started: 0,
            pulse: recorder.pulse(),
            recorder,
            folder,
            _dynamodb: dynamodb,
            _turn: turn,
        }
    }

    /// Starts a worker with a new name.
    pub(crate) fn join(&mut self) -> String {
        self.started += 1;
        let name = format!("w{}", self.started);
        self.join_as(&name, &name)
    }

    /// Starts a worker with the owner id `owner`.
    pub(crate) fn join_as(&mut self, name: &str, owner: &str) -> String {
        let seconds = |time: Duration| time.as_secs_f64().to_string();
        let arguments = [
            ("--stream", STREAM.to_owned()),
            ("--endpoint", self.source.kinesis.endpoint()),
            // The path identifies the writer to the table.
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
        self.recorder.action("start", name);
        let log = self.folder.join(format!("{name}.log"));
        self.workers.push(Worker::start(name, &arguments, self.recorder.stdout(), &log));
        name.to_owned()
    }

    /// Starts a worker, and waits until it reads.
    pub(crate) async fn joined(&mut self) -> String {
        let name = self.join();
        self.recorder.event("ready", &name).await;
        name
    }

    pub(crate) fn worker(&mut self, name: &str) -> &mut Worker {
        self.workers.iter_mut().find(|worker| worker.name == name).unwrap()
    }

    pub(crate) fn signal(&mut self, name: &str, signal: Signal) {
        let action = match signal {
            Signal::KILL => "kill",
            Signal::STOP => "stop",
            Signal::CONT => "continue",
            _ => "close",
        };
        self.recorder.action(action, name);
        self.worker(name).signal(signal);
    }

    /// How many unfinished shards each of these workers holds.
    pub(crate) fn shares(&self, owners: &[String]) -> Vec<usize> {
        let history = self.recorder.history();
        let held =
            |owner| history.rows.values().filter(|row| !row.is_ended() && row.owner.as_ref() == Some(owner)).count();
        owners.iter().map(held).collect()
    }

    /// How many unfinished shards none of these workers holds.
    pub(crate) fn unowned(&self, owners: &[String]) -> usize {
        let history = self.recorder.history();
        let is_owned = |row: &&Row| row.owner.as_ref().is_some_and(|owner| owners.contains(owner));
        history.rows.values().filter(|row| !row.is_ended() && !is_owned(row)).count()
    }

    /// Waits until the table covers every record, and holds the end of every closed shard.
    pub(crate) async fn settled(&self) {
        let ends = self.source.ends().await;
        let covers = |history: &History| {
            let lacks =
                |(shard, end): &(&String, &Place)| history.rows.get(*shard).is_none_or(|row| row.place != **end);
            let open: Vec<_> = ends.iter().filter(lacks).collect();
            open.is_empty().then_some(())
        };
        if self.recorder.find_within(PATIENCE, covers).await.is_none() {
            let rows = self.recorder.history().rows.clone();
            panic!("not settled in {PATIENCE:?}: the ends are {ends:#?}, the rows {rows:#?}");
        }
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.recorder.history().entries.clone()
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.pulse.abort();
        self.workers.clear();
        // Keep the files of a seed that was set explicitly.
        if thread::panicking() || env::var_os(SEEDS).is_some() {
            drop(fs::write(self.folder.join("history"), self.recorder.history().to_string()));
            eprintln!("the history and the logs of the workers are in {}", self.folder.display());
        } else {
            drop(fs::remove_dir_all(&self.folder));
        }
    }
}
