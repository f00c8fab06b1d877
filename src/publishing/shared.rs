//! The state that all handles of a sink share with its sender.
//!
//! **A record holds its room, in bytes, until it is settled,** and callers get room first come, first served. Each
//! record's completion is notified exactly once, also if the task is dropped with its runtime.

use std::{
    collections::VecDeque,
    fmt, mem,
    sync::{Arc, Mutex},
};

use tokio::{
    sync::{Notify, oneshot},
    time::Instant,
};

use super::{error::PublishError, prepared::Prepared, stats::PublishStats};
use crate::{
    budget::{Budget, Forecast, Grant},
    connection::Connection,
    error::{KinesisError, chain::Chain},
    kinesis::Service,
    publishing::{
        accumulator::Accumulator,
        completion::Completion,
        options::PublishTo,
        record::{Outgoing, Published},
    },
    util::{mutex::lock, watched::Watched},
};

mod sender_side;

pub(super) use crate::publishing::shared::sender_side::SenderStep;

/// See the module.
pub(super) struct SinkShared {
    pub(super) stream: Arc<str>,
    connection: Arc<Connection>,
    room: Budget,
    /// The largest reservation. Idle handles reserve one byte each; without this limit they could block a large record.
    most_reserved: usize,
    state: Mutex<SinkState>,
    /// Wakes the sender: there may be something to send.
    work: Notify,
    /// Wakes flushes: everything before this ticket is settled.
    settled: Watched<u64>,
}

struct SinkState {
    accumulator: Accumulator<PendingRecord>,
    /// The service at the time of the last accept: accepted records are sent even if the connection closes meanwhile.
    service: Option<Arc<dyn Service>>,
    /// Failures that the sink has yet to report.
    failures: VecDeque<PublishError>,
    /// No handle is left.
    is_closed: bool,
    /// The sender has ended.
    is_over: bool,
}

/// An accepted record's completion and its room.
#[derive(Debug)]
struct PendingRecord {
    completion: Completion,
    _room: Option<Grant>,
}

/// Resolves to the result of a record.
pub(super) type PublishOutcome = oneshot::Receiver<Result<Published, PublishError>>;

impl SinkShared {
    pub(super) fn new(connection: Arc<Connection>, to: PublishTo) -> Result<Self, KinesisError> {
        let (name, rules, bytes) = to.checked()?;
        let stream: Arc<str> = name.into();
        let accumulator = Accumulator::new(Arc::clone(&stream), rules);
        let state =
            SinkState { accumulator, service: None, failures: VecDeque::new(), is_closed: false, is_over: false };
        Ok(Self {
            stream,
            connection,
            room: Budget::new(bytes),
            most_reserved: bytes / 2,
            state: Mutex::new(state),
            work: Notify::new(),
            settled: Watched::new(0),
        })
    }

    /// Room for a record, if there is room now.
    pub(super) fn try_admit(&self, prepared: Option<&Prepared>) -> Option<Grant> {
        self.room.try_admit(self.reservation(prepared))
    }

    /// Waits for room for this record, or for a record of unknown size.
    ///
    /// # Cancel safety
    ///
    /// A dropped future leaves the queue.
    pub(super) async fn admit(&self, prepared: Option<&Prepared>) -> Grant {
        match self.try_admit(prepared) {
            Some(grant) => grant,
            None => self.room.admit(Forecast::Exactly(self.reservation(prepared))).await,
        }
    }

    fn reservation(&self, prepared: Option<&Prepared>) -> usize {
        prepared.map_or(1, Prepared::room).min(self.most_reserved)
    }

    /// Accepts a record once there is room for it. The receiver gets its result.
    ///
    /// # Cancel safety
    ///
    /// A dropped future has submitted nothing.
    pub(super) async fn submit(&self, record: Outgoing) -> Result<PublishOutcome, PublishError> {
        let prepared = Prepared::new(record)?;
        let room = self.admit(Some(&prepared)).await;
        let (caller, outcome) = oneshot::channel();
        self.accept(prepared, Completion::Caller(caller), Some(room))?;
        Ok(outcome)
    }

    /// Accepts a record, or returns it with the cause.
    pub(super) fn accept(
        &self,
        prepared: Prepared,
        completion: Completion,
        mut room: Option<Grant>,
    ) -> Result<(), PublishError> {
        if let Some(room) = &mut room {
            room.ready(prepared.room());
        }
        let (record, data) = prepared.into_parts();
        let service = self.connection.service();
        let mut state = lock(&self.state);
        let cause = match service {
            Ok(service) if !state.is_over => {
                state.service = Some(service);
                let pending = PendingRecord { completion, _room: room };
                let is_news = state.accumulator.accept(record, data, pending, Instant::now());
                drop(state);
                if is_news {
                    self.work.notify_one();
                }
                return Ok(());
            }
            Ok(_) => self.interrupted(),
            Err(cause) => cause,
        };
        drop(state);
        completion.give_back();
        Err(PublishError::new(record, 0, cause))
    }

    /// Sends all accepted records without lingering.
    pub(super) fn skip_linger(&self) -> u64 {
        let upto = lock(&self.state).accumulator.skip_linger();
        self.work.notify_one();
        upto
    }

    /// Waits until all records accepted so far are settled.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: sending continues.
    pub(super) async fn flush(&self) {
        let upto = self.skip_linger();
        self.settled.wait_for(|settled| (*settled >= upto).then_some(())).await;
    }

    /// The next failure that the sink has not reported yet.
    pub(super) fn failure(&self) -> Option<PublishError> {
        lock(&self.state).failures.pop_front()
    }

    /// The last handle is gone.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.accumulator.skip_linger();
        let unheard = mem::take(&mut state.failures);
        drop(state);
        self.work.notify_one();
        self.warn(unheard);
    }

    pub(super) fn stats(&self) -> PublishStats {
        let now = Instant::now();
        let state = lock(&self.state);
        let counts = state.accumulator.counts();
        PublishStats {
            stream: Arc::clone(&self.stream),
            published: counts.published,
            bytes: counts.bytes,
            failed: counts.failed,
            requests: counts.requests,
            retries: counts.retries,
            throttles: counts.throttles,
            in_flight: state.accumulator.accepted() - counts.published - counts.failed,
            in_flight_bytes: self.room.held(),
            oldest: state.accumulator.oldest_accepted().map(|accepted| now.saturating_duration_since(accepted)),
        }
    }

    fn interrupted(&self) -> KinesisError {
        KinesisError::Interrupted { stream: Arc::clone(&self.stream) }
    }

    fn warn(&self, failures: impl IntoIterator<Item = PublishError>) {
        for failure in failures {
            tracing::warn!(stream = %self.stream, error = %Chain(&failure), "a record was not published, and its sink is dropped");
        }
    }
}

impl fmt::Debug for SinkShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SinkShared").field("stream", &self.stream).finish_non_exhaustive()
    }
}
