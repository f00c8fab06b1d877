//! One simulated process: a runtime with a separate clock that moves only when the driver steps it.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
    time::{Duration, Instant, advance, sleep_until},
};

use super::super::{scripted_service::ScriptedService, worker::Worker};
use crate::{
    kinesis::Service,
    lease::LeaseStore,
    simulation::network::NetworkedTable,
    state::{
        context::{Identity, SubscriptionContext},
        stats::ShardState,
    },
    subscription::{close::Closer, descriptor::KinesisStream, start, stats_handle::StatsHandle},
    types::close_report::CloseReport,
    util::mutex::lock,
};

/// One simulated process.
pub(super) struct Node {
    pub(super) owner: String,
    pub(super) most: usize,
    pub(super) service: Arc<ScriptedService>,
    pub(super) table: Arc<NetworkedTable>,
    runtime: Runtime,
    handles: Arc<Mutex<Option<(Closer, StatsHandle)>>>,
    worker: JoinHandle<()>,
    start: Instant,
    /// Microseconds on its clock since its start, and the rate of its clock in thousandths of the outer clock's.
    time: u64,
    pub(super) speed: u64,
    /// Its clock runs faster until this time of the outer clock.
    pub(super) fast_until: u64,
    /// It is stopped until this time of the outer clock.
    pub(super) stopped_until: u64,
    was_stopped: bool,
}

/// The settings of a new node.
pub(super) struct Setup {
    pub(super) owner: String,
    pub(super) most: usize,
    pub(super) speed: u64,
    pub(super) stream: KinesisStream,
    pub(super) worker: Worker,
}

impl Node {
    /// Starts a process that subscribes and works. `table` and `service` are made under its clock.
    pub(super) fn start(
        setup: Setup,
        table: impl FnOnce() -> NetworkedTable,
        service: impl FnOnce() -> ScriptedService,
    ) -> Self {
        let Setup { owner, most, speed, stream, mut worker } = setup;
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let entered = runtime.enter();
        let (start, table, service) = (Instant::now(), Arc::new(table()), Arc::new(service()));
        drop(entered);
        let (name, settings) = stream.max_leases(most).checked().unwrap();
        let identity = Identity { consumer: "test".into(), stream: name.into(), owner: owner.as_str().into() };
        let (calls, store) = (Arc::clone(&service) as Arc<dyn Service>, Arc::clone(&table) as Arc<dyn LeaseStore>);
        let context = SubscriptionContext::new(identity, settings, calls, store);
        let handles = Arc::new(Mutex::new(None));
        worker.table = Some(Arc::clone(&table));
        let open = Arc::clone(&handles);
        let worker = runtime.spawn(async move {
            let subscription = start::start(context).await.unwrap();
            *lock(&open) = Some((subscription.closer(), subscription.stats_handle()));
            worker.work(subscription).await;
        });
        Self {
            owner,
            most,
            service,
            table,
            runtime,
            handles,
            worker,
            start,
            time: 0,
            speed,
            fast_until: 0,
            stopped_until: 0,
            was_stopped: false,
        }
    }

    /// Lets this many milliseconds of the outer clock pass, up to `now`. A process that was stopped first finds its
    /// clock ahead by all the time that it missed.
    pub(super) fn step(&mut self, millis: u64, now: u64) {
        let speed = if now < self.fast_until { self.speed * 3 } else { self.speed };
        self.time += millis * speed;
        if now < self.stopped_until {
            self.was_stopped = true;
            return;
        }
        let (missed, until) = (self.was_stopped, self.start + Duration::from_micros(self.time));
        self.was_stopped = false;
        self.runtime.block_on(async {
            if missed {
                advance(until.saturating_duration_since(Instant::now())).await;
            }
            sleep_until(until).await;
        });
    }

    pub(super) fn heal(&mut self) {
        self.service.script.heal();
        self.table.heal();
        (self.fast_until, self.stopped_until) = (0, 0);
    }

    /// How many shards it reads or still drains.
    pub(super) fn holds(&self) -> usize {
        let Some((_, stats)) = &*lock(&self.handles) else { return 0 };
        let holds = |state| matches!(state, ShardState::Reading | ShardState::Draining);
        stats.snapshot().shards.iter().filter(|shard| holds(shard.state)).count()
    }

    /// Whether its worker has ended. Fails if it panicked.
    pub(super) fn has_ended(&mut self) -> bool {
        if !self.worker.is_finished() {
            return false;
        }
        let ended = self.runtime.block_on(&mut self.worker);
        assert!(!ended.is_err_and(|error| error.is_panic()), "a worker has panicked");
        true
    }

    /// Begins to close its subscription. `None` if it has not subscribed yet.
    pub(super) fn close(&self) -> Option<JoinHandle<CloseReport>> {
        let (closer, _) = lock(&self.handles).clone()?;
        Some(self.runtime.spawn(async move { closer.close().await }))
    }

    /// Drops its subscription.
    pub(super) fn abandon(&self) {
        self.worker.abort();
    }

    /// The result of one of its tasks that has ended.
    pub(super) fn outcome<T>(&self, task: JoinHandle<T>) -> T {
        self.runtime.block_on(task).unwrap()
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("owner", &self.owner).field("most", &self.most).finish_non_exhaustive()
    }
}
