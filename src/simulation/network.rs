//! The lease table behind a network: requests and responses take time, and some are lost. A message that is under way
//! arrives even if its caller is stopped, has given up, or is dead.

use std::{
    collections::BTreeMap,
    fmt,
    future::pending,
    sync::{Arc, Mutex},
};

use futures::FutureExt;
use tokio::{
    sync::oneshot,
    time::{Duration, Instant},
};

use kinesis_stream_support::Rng;

use super::{
    clock::Clock,
    script::{Fault, Script},
    scripted_table::TableOp,
};
use crate::{
    config::position::Checkpoint,
    error::service::StoreError,
    lease::{Held, Lease, LeaseKey, LeaseStore, Leases, Seen, StoreFuture, Take, Write},
    simulation::oracle::RecordedTable,
    types::id::ShardId,
    util::mutex::lock,
};

type Arrival = Box<dyn FnOnce(&Network) + Send>;

/// All messages that are under way.
pub(crate) struct Network {
    clock: Clock,
    under_way: Mutex<UnderWay>,
}

#[derive(Default)]
struct UnderWay {
    sent: u64,
    /// The messages by arrival time. Messages with the same time arrive in the order in which they were sent.
    arrivals: BTreeMap<(u64, u64), Arrival>,
}

impl Network {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, under_way: Mutex::default() }
    }

    fn send(&self, lag: u64, arrival: impl FnOnce(&Self) + Send + 'static) {
        if lag == 0 {
            return arrival(self);
        }
        let mut under_way = lock(&self.under_way);
        under_way.sent += 1;
        let key = (self.clock.millis() + lag, under_way.sent);
        under_way.arrivals.insert(key, Box::new(arrival));
    }

    /// Delivers the messages that are due.
    pub(crate) fn deliver(&self) {
        let now = self.clock.millis();
        loop {
            let mut under_way = lock(&self.under_way);
            let Some(first) = under_way.arrivals.first_entry().filter(|first| first.key().0 <= now) else { return };
            let arrival = first.remove();
            drop(under_way);
            arrival(self);
        }
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").finish_non_exhaustive()
    }
}

/// The lease table as one instance sees it through the network.
#[derive(Debug)]
pub(crate) struct NetworkedTable {
    network: Arc<Network>,
    rows: Arc<RecordedTable>,
    pub(crate) script: Script<TableOp, StoreError>,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    /// The upper bound for the time that a request, and a response, takes, in milliseconds.
    lag: u64,
    ttl: Duration,
    /// The number of the last call on each row.
    calls: BTreeMap<ShardId, u64>,
    /// The deadline of each lease, on the caller's clock.
    deadlines: BTreeMap<(String, u64), Instant>,
}

impl State {
    fn lags(&mut self) -> (u64, u64) {
        (self.rng.below(self.lag), self.rng.below(self.lag))
    }

    fn number(&mut self, shard: Option<&ShardId>) -> u64 {
        let Some(shard) = shard else { return 0 };
        let number = self.calls.entry(shard.clone()).or_default();
        *number += 1;
        *number
    }

    fn is_last(&self, shard: Option<&ShardId>, number: u64) -> bool {
        shard.is_none_or(|shard| self.calls[shard] == number)
    }

    /// Notes that a call sent at `sent` got its response: the lease is valid for a TTL from then on.
    fn came_back(&mut self, key: &LeaseKey, epoch: u64, sent: Instant) {
        self.deadlines.insert((key.shard.to_string(), epoch), sent + self.ttl);
    }
}

/// The result of a call that arrives.
enum Outcome {
    Answered,
    Lost(StoreError),
    Failed(StoreError),
}

impl NetworkedTable {
    /// `lag`: the upper bound for the time that a request, and a response, takes, in milliseconds.
    pub(crate) fn new(
        network: &Arc<Network>,
        rows: &Arc<RecordedTable>,
        (ttl, lag): (Duration, u64),
        rng: Rng,
    ) -> Self {
        let state = State { rng, lag, ttl, calls: BTreeMap::new(), deadlines: BTreeMap::new() };
        Self {
            network: Arc::clone(network),
            rows: Arc::clone(rows),
            script: Script::new(),
            state: Arc::new(Mutex::new(state)),
        }
    }

    /// Ends all faults. From here on, a call takes less than a tenth of a second.
    pub(crate) fn heal(&self) {
        self.script.heal();
        let mut state = lock(&self.state);
        state.lag = state.lag.min(50);
    }

    /// How long after the deadline of its lease a record is delivered now; `None` if it is in time (E3).
    pub(crate) fn lateness(&self, shard: &str, epoch: u64) -> Option<Duration> {
        let deadline = lock(&self.state).deadlines.get(&(shard.to_owned(), epoch)).copied();
        let now = Instant::now();
        deadline.map_or(Some(Duration::MAX), |deadline| (now >= deadline).then(|| now - deadline))
    }

    /// Makes a call. A call that its caller gave up does not arrive after a later one on the same row.
    fn call<T: Send + 'static>(
        &self,
        op: TableOp,
        shard: Option<&ShardId>,
        act: impl FnOnce(&RecordedTable) -> Result<T, StoreError> + Send + 'static,
    ) -> StoreFuture<'static, T> {
        let fault = self.script.enter(op, shard.cloned(), String::new());
        let mut state = lock(&self.state);
        let ((there, back), number) = (state.lags(), state.number(shard));
        drop(state);
        let late = |time: Duration| there + u64::try_from(time.as_millis()).unwrap();
        let (there, outcome) = match fault {
            None => (there, Outcome::Answered),
            Some(Fault::Fail(error)) => (there, Outcome::Failed(error)),
            Some(Fault::FailAfter(time, error)) => (late(time), Outcome::Failed(error)),
            Some(Fault::LoseAnswer(error)) => (there, Outcome::Lost(error)),
            Some(Fault::Delay(time) | Fault::DelayAnswer(time)) => (late(time), Outcome::Answered),
            Some(Fault::Hang | Fault::Panic) => return pending().boxed(),
        };
        let (response_tx, response_rx) = oneshot::channel();
        let (rows, state, shard) = (Arc::clone(&self.rows), Arc::clone(&self.state), shard.cloned());
        self.network.send(there, move |network| {
            if response_tx.is_closed() && !lock(&state).is_last(shard.as_ref(), number) {
                return;
            }
            let answer = match outcome {
                Outcome::Answered => act(&rows),
                Outcome::Lost(error) => act(&rows).and(Err(error)),
                Outcome::Failed(error) => Err(error),
            };
            network.send(back, move |_| drop(response_tx.send(answer)));
        });
        response_rx.map(|response| response.unwrap_or_else(|_| Err(StoreError::new("no answer")))).boxed()
    }

    /// A conditional write by the holder of a lease.
    fn write<'a>(
        &'a self,
        op: TableOp,
        held: &'a Held,
        act: impl FnOnce(&RecordedTable) -> Result<Write, StoreError> + Send + 'static,
    ) -> StoreFuture<'a, Write> {
        let (sent, call) = (Instant::now(), self.call(op, Some(&held.key.shard), act));
        async move {
            let answer = call.await?;
            if answer == Write::Applied(()) {
                lock(&self.state).came_back(&held.key, held.epoch, sent);
            }
            Ok(answer)
        }
        .boxed()
    }
}

/// The result of the table, which responds at once.
fn at_once<T>(answer: StoreFuture<'_, T>) -> Result<T, StoreError> {
    answer.now_or_never().expect("the table answers at once")
}

impl LeaseStore for NetworkedTable {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Leases> {
        let (consumer, stream) = (consumer.to_owned(), stream.to_owned());
        self.call(TableOp::Leases, None, move |rows| at_once(rows.leases(&consumer, &stream)))
    }

    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
        let (sent, sending) = (Instant::now(), take.clone());
        let call = self.call(TableOp::Take, Some(&take.key.shard), move |rows| at_once(rows.take(&sending)));
        async move {
            let answer = call.await?;
            if let Write::Applied(lease) = &answer {
                lock(&self.state).came_back(&take.key, lease.epoch, sent);
            }
            Ok(answer)
        }
        .boxed()
    }

    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        let sending = held.clone();
        self.write(TableOp::Renew, held, move |rows| at_once(rows.renew(&sending)))
    }

    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
        let (sending, checkpoint) = (held.clone(), checkpoint.clone());
        self.write(TableOp::Checkpoint, held, move |rows| at_once(rows.checkpoint(&sending, &checkpoint)))
    }

    fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        let (sending, settled) = (held.clone(), self.rows.settled(held));
        self.write(TableOp::Release, held, move |rows| at_once(rows.release_with(&sending, settled)))
    }

    fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write> {
        let (sending, by) = (key.clone(), by.to_owned());
        self.call(TableOp::Want, Some(&key.shard), move |rows| at_once(rows.ask(&sending, seen, &by)))
    }

    fn withdraw_ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        let sending = key.clone();
        self.call(TableOp::Withdraw, Some(&key.shard), move |rows| at_once(rows.withdraw_ask(&sending, seen)))
    }

    fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        let sending = key.clone();
        self.call(TableOp::Delete, Some(&key.shard), move |rows| at_once(rows.delete(&sending, seen)))
    }
}
