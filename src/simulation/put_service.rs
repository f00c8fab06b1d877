//! A service that accepts `PutRecords` as the test plans it and records every request.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use futures::{FutureExt, future::pending};
use tokio::time::{Duration, Instant, sleep};

use crate::{
    config::position::Origin,
    connection::Connection,
    error::service::{Action, FailureKind, ServiceFailure},
    kinesis::{Call, Described, Fetched, ListedPage, Listing, Placed, Put, PutEntry, Service},
    publishing::publisher::Publisher,
    types::id::ShardId,
    util::mutex::lock,
};

/// How long a request takes.
pub(crate) const ROUND_TRIP: Duration = Duration::from_millis(20);

/// The result of a request.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    /// The service stores all entries.
    Stored,
    /// The entries at these indexes fail like this; the service stores the others.
    Fails(Vec<(usize, FailureKind)>),
    /// The request fails, and the service stores nothing.
    Refused(FailureKind),
    /// The service stores all entries, and the response is lost.
    Lost(FailureKind),
    /// The request never gets a response.
    Hangs,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct PutCall {
    /// The time since the start.
    pub(crate) at: Duration,
    pub(crate) entries: Vec<PutEntry>,
}

type Plan = Box<dyn FnMut(usize, &[PutEntry]) -> Outcome + Send>;

/// The service, with the record of its requests.
pub(crate) struct PutService {
    start: Instant,
    state: Mutex<State>,
}

struct State {
    plan: Plan,
    asked: Vec<PutCall>,
    stored: Vec<PutEntry>,
}

impl PutService {
    /// The plan picks the result of each request. It gets the request's number, from 0, and its entries.
    pub(crate) fn new(plan: impl FnMut(usize, &[PutEntry]) -> Outcome + Send + 'static) -> Arc<Self> {
        let state = State { plan: Box::new(plan), asked: Vec::new(), stored: Vec::new() };
        Arc::new(Self { start: Instant::now(), state: Mutex::new(state) })
    }

    /// A service that stores everything.
    pub(crate) fn kind() -> Arc<Self> {
        Self::new(|_, _| Outcome::Stored)
    }

    /// A connection to this service, and a publisher on it.
    pub(crate) fn publisher(self: &Arc<Self>) -> (Arc<Connection>, Publisher) {
        let connection = Arc::new(Connection::default());
        connection.open(Arc::clone(self) as Arc<dyn Service>);
        (Arc::clone(&connection), Publisher::new(connection))
    }

    /// Time since the start, in milliseconds.
    pub(crate) fn millis(&self) -> u128 {
        self.start.elapsed().as_millis()
    }

    pub(crate) fn asked(&self) -> Vec<PutCall> {
        lock(&self.state).asked.clone()
    }

    /// The data of all requests so far, one text a request.
    pub(crate) fn requests(&self) -> Vec<String> {
        let asked = self.asked().into_iter();
        asked.map(|asked| asked.entries.iter().map(text).collect::<Vec<_>>().join(" ")).collect()
    }

    pub(crate) fn stored(&self) -> Vec<PutEntry> {
        lock(&self.state).stored.clone()
    }

    /// The data of all stored entries, in order.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.stored().iter().map(text).collect()
    }

    fn store(&self, entry: &PutEntry) -> Put {
        let mut state = lock(&self.state);
        state.stored.push(entry.clone());
        Put { shard: "shard".into(), sequence_number: state.stored.len().to_string().into() }
    }

    async fn take(&self, entries: Vec<PutEntry>) -> Result<Vec<Result<Put, ServiceFailure>>, ServiceFailure> {
        let outcome = {
            let mut state = lock(&self.state);
            let k = state.asked.len();
            state.asked.push(PutCall { at: self.start.elapsed(), entries: entries.clone() });
            (state.plan)(k, &entries)
        };
        sleep(ROUND_TRIP).await;
        let fails = match &outcome {
            Outcome::Refused(kind) => return Err(failure(*kind)),
            Outcome::Hangs => return pending().await,
            Outcome::Fails(fails) => fails.as_slice(),
            Outcome::Stored | Outcome::Lost(_) => &[],
        };
        let results =
            entries.iter().enumerate().map(|(place, entry)| match fails.iter().find(|(failed, _)| *failed == place) {
                Some((_, kind)) => Err(failure(*kind)),
                None => Ok(self.store(entry)),
            });
        let results = results.collect();
        match outcome {
            Outcome::Lost(kind) => Err(failure(kind)),
            _ => Ok(results),
        }
    }
}

fn text(entry: &PutEntry) -> String {
    String::from_utf8_lossy(&entry.data).into_owned()
}

fn failure(kind: FailureKind) -> ServiceFailure {
    ServiceFailure::new(Action::PutRecords, kind, format!("{kind:?}"))
}

fn no<'a, T: Send + 'a>(action: Action) -> Call<'a, T> {
    async move { Err(ServiceFailure::new(action, FailureKind::Rejected, "it takes records, and nothing else")) }.boxed()
}

impl Service for PutService {
    fn describe<'a>(&'a self, _stream: &'a str) -> Call<'a, Described> {
        no(Action::DescribeStreamSummary)
    }

    fn create<'a>(&'a self, _stream: &'a str, _shards: u32) -> Call<'a, ()> {
        no(Action::CreateStream)
    }

    fn list<'a>(&'a self, _from: Listing<'a>) -> Call<'a, ListedPage> {
        no(Action::ListShards)
    }

    fn place<'a>(&'a self, _stream: &'a str, _shard: &'a ShardId, _origin: &'a Origin) -> Call<'a, Placed> {
        no(Action::GetShardIterator)
    }

    fn read<'a>(&'a self, _iterator: &'a str, _limit: u32) -> Call<'a, Fetched> {
        no(Action::GetRecords)
    }

    fn put<'a>(&'a self, _stream: &'a str, entry: PutEntry) -> Call<'a, Put> {
        async move { self.take(vec![entry]).await?.remove(0) }.boxed()
    }

    fn put_all<'a>(&'a self, _stream: &'a str, entries: Vec<PutEntry>) -> Call<'a, Vec<Result<Put, ServiceFailure>>> {
        self.take(entries).boxed()
    }
}

impl fmt::Debug for PutService {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PutService").field("stored", &self.stored().len()).finish_non_exhaustive()
    }
}
