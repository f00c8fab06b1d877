//! What the tasks of one subscription share: its names and clients, its settings, the queues between its tasks, and
//! how the tasks wake each other.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, timeout};

use crate::{
    budget::Budget,
    config::{max_age::TooOld, settings::Settings},
    error::{ErrorClass, KinesisError, chain::Chain, service::StoreError, work::Work},
    kinesis::Service,
    lease::{LeaseKey, LeaseStore, Leases, StoreFuture},
    metering::Meter,
    state::{
        dead_letter_queue::DeadLetterQueue,
        events::Events,
        failures::Failures,
        lease_reads::LeaseReadLimit,
        lifecycle::Lifecycle,
        read_health::ReadHealth,
        retention::Retention,
        service_clock::ServiceClock,
        stats::{ErrorCounts, OngoingFailure},
        wakeups::Wakeups,
        warnings::Warnings,
    },
    types::id::ShardId,
    util::mutex::lock,
};

/// See the module.
#[derive(Debug)]
pub(crate) struct SubscriptionContext {
    pub(crate) consumer: Arc<str>,
    pub(crate) stream: Arc<str>,
    pub(crate) owner: Arc<str>,
    pub(crate) settings: Settings,
    pub(crate) service: Arc<dyn Service>,
    pub(crate) store: Arc<dyn LeaseStore>,
    pub(crate) budget: Budget,
    /// From all tasks to the subscription's stream.
    pub(crate) events: Events,
    /// From the deliveries to the dead-letter writer.
    pub(crate) dead_letter_queue: DeadLetterQueue,
    /// From all tasks to the renewer and the coordinator.
    pub(crate) wakeups: Wakeups,
    /// Running, closing, or over: all tasks watch it.
    pub(crate) lifecycle: Lifecycle,
    pub(crate) gauges: Gauges,
    pub(crate) retention: Retention,
    pub(crate) service_clock: ServiceClock,
    /// Whether this instance can read.
    pub(crate) read_health: ReadHealth,
    /// How many leases were taken so far.
    leases_taken: AtomicU32,
    /// The most records that the next read of any shard asks for (R7).
    read_limit: AtomicU32,
    lease_read_limit: LeaseReadLimit,
    failures: Mutex<Failures>,
    pub(crate) warnings: Warnings,
    pub(crate) meter: Meter,
    warned: Warned,
}

/// What one task sets for the statistics and for other tasks.
#[derive(Debug, Default)]
pub(crate) struct Gauges {
    /// Shards of the opening that other instances hold and that may still become free (E5).
    pub(crate) awaited: AtomicUsize,
    /// Whether another instance holds a live lease, according to the last read of the leases.
    pub(crate) others_in_sight: AtomicBool,
    /// Shards that are ready to be read and unowned, and for which this instance has no free lease.
    pub(crate) unowned: AtomicUsize,
    /// Leases handed over on request, and lost to other instances.
    pub(crate) handed_over: AtomicU64,
    pub(crate) lost: AtomicU64,
}

/// The warnings that a subscription logs once.
#[derive(Debug, Default)]
struct Warned {
    dropped: AtomicBool,
    small_reads: AtomicBool,
    small_bound: AtomicBool,
    old_records: AtomicBool,
}

/// Whether this is the first time that this warning is due.
fn is_first(warned: &AtomicBool) -> bool {
    !warned.swap(true, Ordering::Relaxed)
}

impl SubscriptionContext {
    pub(crate) fn new(
        identity: Identity,
        settings: Settings,
        service: Arc<dyn Service>,
        store: Arc<dyn LeaseStore>,
    ) -> Arc<Self> {
        let Identity { consumer, stream, owner } = identity;
        Arc::new(Self {
            meter: Meter::new(&stream, &consumer),
            consumer,
            stream,
            owner,
            budget: Budget::new(settings.max_buffered_bytes),
            read_health: ReadHealth::new(2 * settings.renew_interval),
            read_limit: AtomicU32::new(settings.read_limit),
            lease_read_limit: LeaseReadLimit::new(settings.renew_interval),
            failures: Mutex::new(Failures::new(settings.patience)),
            leases_taken: AtomicU32::new(0),
            settings,
            service,
            store,
            events: Events::default(),
            dead_letter_queue: DeadLetterQueue::default(),
            wakeups: Wakeups::default(),
            lifecycle: Lifecycle::new(),
            gauges: Gauges::default(),
            retention: Retention::default(),
            service_clock: ServiceClock::new(),
            warnings: Warnings::default(),
            warned: Warned::default(),
        })
    }

    pub(crate) fn lease_key(&self, shard: &ShardId) -> LeaseKey {
        LeaseKey { consumer: Arc::clone(&self.consumer), stream: Arc::clone(&self.stream), shard: shard.clone() }
    }

    /// The response of a call on the lease store. A call is abandoned after one renewal interval: a store that hangs
    /// has failed. The meter knows the call by this name.
    pub(crate) async fn answer<T>(&self, name: &'static str, call: StoreFuture<'_, T>) -> Result<T, StoreError> {
        let (sent_at, limit) = (Instant::now(), self.settings.renew_interval);
        let late = |_| Err(StoreError::new(format!("no answer within {limit:?}")));
        let answer = timeout(limit, call).await.unwrap_or_else(late);
        self.meter.store_call(name, sent_at.elapsed(), answer.is_ok());
        answer
    }

    /// All lease rows of this consumer and stream. A read that takes longer than the ones before is abandoned, and the
    /// next one may take twice as long.
    pub(crate) async fn leases(&self) -> Result<Leases, StoreError> {
        let (begun, limit) = (Instant::now(), self.lease_read_limit.current());
        let answer = timeout(limit, self.store.read_leases(&self.consumer, &self.stream)).await;
        self.meter.store_call("read_leases", begun.elapsed(), matches!(answer, Ok(Ok(_))));
        if let Ok(answer) = answer {
            if answer.is_ok() {
                self.lease_read_limit.answered(begun.elapsed());
            }
            return answer;
        }
        let next = self.lease_read_limit.abandoned(limit);
        Err(StoreError::new(format!(
            "the rows were not read within {limit:?}: the table is slow, large or throttled; the next read may take {next:?}"
        )))
    }

    /// Yields a failure of the lease store that concerns no single shard.
    pub(crate) fn report_store(&self, action: &'static str, source: StoreError) {
        let error = KinesisError::Store { stream: Arc::clone(&self.stream), shard: None, action, source };
        self.report(None, error);
    }

    /// Yields an error about one shard, or about the stream.
    pub(crate) fn report(&self, shard: Option<ShardId>, error: KinesisError) {
        let error = lock(&self.failures).failed(error, Instant::now());
        if error.class() == ErrorClass::Lasting {
            tracing::error!(
                stream = %self.stream, consumer = %self.consumer, error = %Chain(&error),
                "a failure lasts that only a person can end"
            );
        }
        self.events.error(shard, error);
    }

    /// Counts an error that the stream yields without reporting it: one that carries a record.
    pub(crate) fn count_error(&self, error: &KinesisError) {
        lock(&self.failures).count(error);
    }

    /// Notes that a call of this work succeeded.
    pub(crate) fn succeeded(&self, work: Work) {
        lock(&self.failures).succeeded(work);
    }

    /// What fails now.
    pub(crate) fn failing(&self) -> Vec<OngoingFailure> {
        lock(&self.failures).ongoing(Instant::now())
    }

    /// How many errors of each class there were.
    pub(crate) fn errors(&self) -> ErrorCounts {
        lock(&self.failures).errors()
    }

    /// The last loss, with its age.
    pub(crate) fn last_loss(&self) -> Option<(KinesisError, Duration)> {
        lock(&self.failures).last_loss(Instant::now())
    }

    /// Stops reading and ends the subscription's stream. Deliveries in flight may be settled during the drain time.
    pub(crate) fn wind_down(&self, drain: Duration) {
        self.lifecycle.close(drain);
        self.events.end();
    }

    /// Ends the subscription with this error.
    pub(crate) fn fail(&self, error: KinesisError) {
        tracing::error!(stream = %self.stream, error = %Chain(&error), "the subscription ends");
        self.count_error(&error);
        self.events.fatal(error);
        self.lifecycle.close(Duration::ZERO);
    }

    /// Ends a subscription whose tasks end although no one closed it.
    pub(crate) fn interrupted(&self) {
        if self.lifecycle.is_running() {
            self.fail(KinesisError::Interrupted { stream: Arc::clone(&self.stream) });
        }
    }

    /// The part of the renewal interval by which the first renewal of the next lease moves forward. Multiples of the
    /// golden ratio spread any number of leases evenly.
    pub(crate) fn next_renewal_phase(&self) -> f64 {
        const GOLDEN: f64 = 0.618_033_988_749_895;
        (f64::from(self.leases_taken.fetch_add(1, Ordering::Relaxed)) * GOLDEN).fract()
    }

    /// How many leases were taken so far.
    pub(crate) fn leases_taken(&self) -> u64 {
        self.leases_taken.load(Ordering::Relaxed).into()
    }

    /// What becomes of a record that arrived at this time, if it is too old now (A8).
    pub(crate) fn too_old(&self, arrived_at: Option<i64>, now: Instant) -> Option<TooOld> {
        self.settings.max_age.limit?;
        let has_dead_letter = self.settings.retries.dead_letter.is_some();
        self.settings.max_age.decide(arrived_at, self.service_clock.at_least(now), has_dead_letter)
    }

    /// The most records that a read asks for.
    pub(crate) fn read_limit(&self) -> u32 {
        self.read_limit.load(Ordering::Relaxed)
    }

    /// Sets the most records that a read asks for. Each shard uses it from its next read.
    pub(crate) fn set_read_limit(&self, records: u32) {
        self.read_limit.store(records, Ordering::Relaxed);
    }

    /// Warns, once per subscription, that a shard lags because its reads ask for few records (R7).
    pub(crate) fn warn_of_small_reads(&self, shard: &ShardId, behind: Duration) {
        if is_first(&self.warned.small_reads) {
            tracing::warn!(
                stream = %self.stream, %shard, ?behind, read_limit = self.read_limit(),
                "the shard falls behind while every read returns all the records it asked for, which is one batch: use \
                 larger batches, or let reads ask for more than a batch with `keep_read_limit` (logged once)"
            );
        }
    }

    /// Warns, once per subscription, that batches of this size cannot fill (A5).
    pub(crate) fn warn_of_small_bound(&self, size: usize) {
        if is_first(&self.warned.small_bound) {
            tracing::warn!(
                stream = %self.stream, size, max_in_flight = self.settings.max_in_flight,
                "batches can go out less than full: set `max_in_flight` to at least twice their size, so that one is \
                 filled while another is worked on (logged once)"
            );
        }
    }

    /// Warns, once per subscription, that records are older than `max_age`, and what becomes of them (A8).
    pub(crate) fn warn_of_old(&self, shard: &ShardId, becomes: TooOld) {
        if is_first(&self.warned.old_records) {
            let max_age = self.settings.max_age.limit.unwrap_or_default();
            let what = if becomes == TooOld::Skip { "are passed over" } else { "go to the dead-letter stream" };
            tracing::warn!(
                stream = %self.stream, %shard, ?max_age,
                "records are older than `max_age` and {what}; `too_old` in `stats()` counts them (logged once)"
            );
        }
    }

    /// Warns, once per subscription, that a delivery was dropped unsettled, and what becomes of its record (A2, A7).
    pub(crate) fn warn_of_drop(&self, shard: &ShardId, becomes: &str) {
        if is_first(&self.warned.dropped) {
            tracing::warn!(
                stream = %self.stream, %shard,
                "a delivery was dropped without being settled and {becomes}: call `commit` or `ack` on it, or set \
                 `ack_on_drop` on the stream if dropping should acknowledge it (logged once)"
            );
        }
    }

    /// Whether reading has ended and the stream has nothing left to yield, not even the error that replaces a rejected
    /// dead letter.
    pub(crate) fn is_finished(&self) -> bool {
        // In this order: a rejected dead letter enters the events first, and only then leaves the dead-letter queue.
        self.dead_letter_queue.is_idle() && self.events.is_finished()
    }

    /// Notes that the outcome of a record taken from the dead-letter queue is known.
    pub(crate) fn dead_letter_done(&self) {
        self.dead_letter_queue.done();
        if self.dead_letter_queue.is_idle() {
            self.events.nudge();
        }
    }
}

/// Ends the subscription if the task that holds this guard ends before the subscription closes: by a panic in a call,
/// or with its runtime.
pub(crate) struct EndsTheSubscription(pub(crate) Arc<SubscriptionContext>);

impl Drop for EndsTheSubscription {
    fn drop(&mut self) {
        self.0.interrupted();
    }
}

/// Which stream a subscription reads, for which consumer, and as which owner of leases.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) consumer: Arc<str>,
    pub(crate) stream: Arc<str>,
    pub(crate) owner: Arc<str>,
}
