//! One simulated process: a runtime with a time of its own, which moves only when it is stepped.

use std::{
    fmt,
    sync::{Arc, Mutex},
};

use tokio::{
    runtime::{Builder, Runtime},
    task::JoinHandle,
    time::{Duration, Instant, advance, sleep_until},
};

use super::super::{wire::Wire, worker::Worker};
use crate::{
    kinesis::Service,
    lease::LeaseStore,
    simulation::network::Line,
    state::{
        context::{Identity, SubscriptionContext},
        stats::ShardState,
    },
    subscription::{close::Closer, descriptor::KinesisStream, start, stats_handle::StatsHandle},
    types::close_report::CloseReport,
    util::mutex::lock,
};

/// See the module.
pub(super) struct Member {
    pub(super) owner: String,
    pub(super) most: usize,
    pub(super) wire: Arc<Wire>,
    pub(super) line: Arc<Line>,
    runtime: Runtime,
    handles: Arc<Mutex<Option<(Closer, StatsHandle)>>>,
    worker: JoinHandle<()>,
    start: Instant,
    /// Its own time since its start in microseconds, and how fast it runs in thousandths of the world's.
    time: u64,
    pub(super) speed: u64,
    /// It runs faster until then, by the time of the world.
    pub(super) hurries_until: u64,
    /// It is stopped until then, by the time of the world.
    pub(super) stopped_until: u64,
    was_stopped: bool,
}

/// What a member is started with.
pub(super) struct Setup {
    pub(super) owner: String,
    pub(super) most: usize,
    pub(super) speed: u64,
    pub(super) stream: KinesisStream,
    pub(super) worker: Worker,
}

impl Member {
    /// A process starts, subscribes, and works. `line` and `wire` are made under its own clock.
    pub(super) fn start(setup: Setup, line: impl FnOnce() -> Line, wire: impl FnOnce() -> Wire) -> Self {
        let Setup { owner, most, speed, stream, mut worker } = setup;
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let entered = runtime.enter();
        let (start, line, wire) = (Instant::now(), Arc::new(line()), Arc::new(wire()));
        drop(entered);
        let (name, settings) = stream.max_leases(most).checked().unwrap();
        let identity = Identity { consumer: "test".into(), stream: name.into(), owner: owner.as_str().into() };
        let (service, store) = (Arc::clone(&wire) as Arc<dyn Service>, Arc::clone(&line) as Arc<dyn LeaseStore>);
        let context = SubscriptionContext::new(identity, settings, service, store);
        let handles = Arc::new(Mutex::new(None));
        worker.line = Some(Arc::clone(&line));
        let open = Arc::clone(&handles);
        let worker = runtime.spawn(async move {
            let subscription = start::start(context).await.unwrap();
            *lock(&open) = Some((subscription.closer(), subscription.stats_handle()));
            worker.work(subscription).await;
        });
        Self {
            owner,
            most,
            wire,
            line,
            runtime,
            handles,
            worker,
            start,
            time: 0,
            speed,
            hurries_until: 0,
            stopped_until: 0,
            was_stopped: false,
        }
    }

    /// Lets so many milliseconds of the world's time pass, up to `now`. A process that was stopped finds its clock ahead
    /// by all that it missed before anything in it goes on.
    pub(super) fn step(&mut self, millis: u64, now: u64) {
        let speed = if now < self.hurries_until { self.speed * 3 } else { self.speed };
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
        self.wire.script.heal();
        self.line.heal();
        (self.hurries_until, self.stopped_until) = (0, 0);
    }

    /// How many shards it reads, or may still settle.
    pub(super) fn holds(&self) -> usize {
        let Some((_, stats)) = &*lock(&self.handles) else { return 0 };
        let holds = |state| matches!(state, ShardState::Reading | ShardState::Draining);
        stats.snapshot().shards.iter().filter(|shard| holds(shard.state)).count()
    }

    /// Whether its worker has ended, which it must not have done by a panic.
    pub(super) fn has_ended(&mut self) -> bool {
        if !self.worker.is_finished() {
            return false;
        }
        let ended = self.runtime.block_on(&mut self.worker);
        assert!(!ended.is_err_and(|error| error.is_panic()), "a worker has panicked");
        true
    }

    /// Begins to close its subscription. None if there is none yet.
    pub(super) fn close(&self) -> Option<JoinHandle<CloseReport>> {
        let (closer, _) = lock(&self.handles).clone()?;
        Some(self.runtime.spawn(async move { closer.close().await }))
    }

    /// Drops its subscription.
    pub(super) fn abandon(&self) {
        self.worker.abort();
    }

    /// What came of a task of its own that has ended.
    pub(super) fn outcome<T>(&self, task: JoinHandle<T>) -> T {
        self.runtime.block_on(task).unwrap()
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("owner", &self.owner).field("most", &self.most).finish_non_exhaustive()
    }
}
