//! What the parts of one subscription share: who and what it reads, with which settings, and how the parts call on
//! each other.

use std::{
    collections::BTreeSet,
    mem,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    time::Duration,
};

use tokio::{sync::Notify, time::timeout};

use crate::{
    budget::Budget,
    config::settings::Settings,
    error::{KinesisError, chain::Chain, service::StoreError},
    kinesis::Service,
    lease::{LeaseKey, LeaseStore, StoreFuture},
    state::{dead_letter_queue::DeadLetterQueue, events::Events, lifecycle::Lifecycle},
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
    /// To the subscription.
    pub(crate) events: Events,
    /// To the writer of dead letters.
    pub(crate) dead_letter_queue: DeadLetterQueue,
    /// To the keeper: these shards have something to be written.
    pub(crate) wakeups: Wakeups,
    /// To the coordinator: a shard came to its end, so that its children may start, or is gone. It lists at once.
    pub(crate) agenda: Notify,
    /// To the coordinator: it looks again at what there is to do, without listing.
    pub(crate) rounds: Notify,
    /// To everybody: how far the subscription is in its life.
    pub(crate) lifecycle: Lifecycle,
    /// The service refused a call in a way that makes it doubtful whether the stream is still the same.
    doubtful: AtomicBool,
    /// Shards of the opening that others hold and that may still turn out to be free (E5).
    pub(crate) awaited: AtomicUsize,
    /// Shards that are ready to be read, that nobody holds, and for which there is no room here.
    pub(crate) unowned: AtomicUsize,
    /// The most records that the next read of any shard asks for (R7).
    read_limit: AtomicU32,
    warned_of_drop: AtomicBool,
    warned_of_small_reads: AtomicBool,
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
            consumer,
            stream,
            owner,
            budget: Budget::new(settings.max_buffered_bytes),
            read_limit: AtomicU32::new(settings.read_limit),
            settings,
            service,
            store,
            events: Events::default(),
            dead_letter_queue: DeadLetterQueue::default(),
            wakeups: Wakeups::default(),
            agenda: Notify::new(),
            rounds: Notify::new(),
            lifecycle: Lifecycle::new(),
            doubtful: AtomicBool::new(false),
            awaited: AtomicUsize::new(0),
            unowned: AtomicUsize::new(0),
            warned_of_drop: AtomicBool::new(false),
            warned_of_small_reads: AtomicBool::new(false),
        })
    }

    pub(crate) fn lease_key(&self, shard: &ShardId) -> LeaseKey {
        LeaseKey { consumer: Arc::clone(&self.consumer), stream: Arc::clone(&self.stream), shard: shard.clone() }
    }

    /// What a call on the lease store came to. It is given up after a renewal interval: a store that hangs has failed.
    pub(crate) async fn answer<T>(&self, call: StoreFuture<'_, T>) -> Result<T, StoreError> {
        let limit = self.settings.renew_interval;
        let late = |_| Err(StoreError::new(format!("no answer within {limit:?}")));
        timeout(limit, call).await.unwrap_or_else(late)
    }

    /// Puts a failure of the lease store that concerns no single shard into the subscription's stream.
    pub(crate) fn report_store(&self, action: &'static str, source: StoreError) {
        let error = KinesisError::Store { stream: Arc::clone(&self.stream), shard: None, action, source };
        self.events.error(None, error);
    }

    /// Stops reading and ends the subscription's stream; what is in flight may be settled for this long.
    pub(crate) fn wind_down(&self, drain: Duration) {
        self.lifecycle.close(drain);
        self.events.end();
    }

    /// Has the coordinator look with its next listing whether the stream is still the same.
    pub(crate) fn doubt_a_little(&self) {
        self.doubtful.store(true, Ordering::Relaxed);
    }

    /// Has the coordinator look at once what became of the stream.
    pub(crate) fn doubt(&self) {
        self.doubt_a_little();
        self.agenda.notify_one();
    }

    /// Whether there was doubt since the last call.
    pub(crate) fn was_in_doubt(&self) -> bool {
        self.doubtful.swap(false, Ordering::Relaxed)
    }

    /// Ends the subscription after this error.
    pub(crate) fn fail(&self, error: KinesisError) {
        tracing::error!(stream = %self.stream, error = %Chain(&error), "the subscription ends");
        self.events.fatal(error);
        self.lifecycle.close(Duration::ZERO);
    }

    /// Ends a subscription whose tasks end though nobody closed it.
    pub(crate) fn interrupted(&self) {
        if self.lifecycle.is_running() {
            self.fail(KinesisError::Interrupted { stream: Arc::clone(&self.stream) });
        }
    }

    /// The most records that a read asks for.
    pub(crate) fn read_limit(&self) -> u32 {
        self.read_limit.load(Ordering::Relaxed)
    }

    /// Has reads ask for so many records, each from its next one on.
    pub(crate) fn set_read_limit(&self, records: u32) {
        self.read_limit.store(records, Ordering::Relaxed);
    }

    /// Says once a subscription that it falls behind because its reads ask for few records (R7).
    pub(crate) fn warn_of_small_reads(&self, shard: &ShardId, behind: Duration) {
        if !self.warned_of_small_reads.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                stream = %self.stream, %shard, ?behind, read_limit = self.read_limit(),
                "the shard falls behind while every read brings all that it asked for, which is one batch: make batches \
                 larger, or have reads ask for more than a batch with `keep_read_limit` (this is said once)"
            );
        }
    }

    /// Says once a subscription that a delivery was dropped without being settled, and what becomes of it (A2, A7).
    pub(crate) fn warn_of_drop(&self, shard: &ShardId, becomes: &str) {
        if !self.warned_of_drop.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                stream = %self.stream, %shard,
                "a delivery was dropped without being settled and {becomes}: call `commit` or `ack` on it, or set \
                 `ack_on_drop` on the stream if dropping is meant to acknowledge (this is said once)"
            );
        }
    }

    /// Whether nothing more will be read and nothing that was read is still to come: also not as the error in whose stead a dead
    /// letter is written.
    pub(crate) fn is_finished(&self) -> bool {
        // In this order: what is refused as a dead letter goes into the inbox first, and then out of the outbox.
        self.dead_letter_queue.is_idle() && self.events.is_finished()
    }

    /// What came of a record that was taken from the outbox is entered.
    pub(crate) fn letter_done(&self) {
        self.dead_letter_queue.done();
        if self.dead_letter_queue.is_idle() {
            self.events.nudge();
        }
    }
}

/// Ends the subscription when the task that holds this ends in any other way than by the subscription's closing: by a
/// panic of what it calls, or with its runtime.
pub(crate) struct EndsTheSubscription(pub(crate) Arc<SubscriptionContext>);

impl Drop for EndsTheSubscription {
    fn drop(&mut self) {
        self.0.interrupted();
    }
}

/// Who reads what.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) consumer: Arc<str>,
    pub(crate) stream: Arc<str>,
    pub(crate) owner: Arc<str>,
}

/// Calls the keeper to single shards. Ringing needs no runtime and never blocks.
#[derive(Debug, Default)]
pub(crate) struct Wakeups {
    shards: Mutex<BTreeSet<ShardId>>,
    notify: Notify,
}

impl Wakeups {
    pub(crate) fn ring(&self, shard: &ShardId) {
        if lock(&self.shards).insert(shard.clone()) {
            self.notify.notify_one();
        }
    }

    /// Waits until it rings.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: nothing is taken before the future is ready, and then all of it.
    pub(crate) async fn rung(&self) -> BTreeSet<ShardId> {
        loop {
            let shards = mem::take(&mut *lock(&self.shards));
            if !shards.is_empty() {
                return shards;
            }
            self.notify.notified().await;
        }
    }
}
