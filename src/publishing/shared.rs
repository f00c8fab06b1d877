//! Where records are handed in and answers come back: what the handles of a sink share with its courier.

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
        accumulator::Lanes,
        completion::Receipt,
        options::PublishTo,
        record::{Outgoing, Published},
    },
    util::{mutex::lock, watched::Board},
};

mod sender_side;

pub(super) use crate::publishing::shared::sender_side::Round;

/// See the module.
pub(super) struct Desk {
    pub(super) stream: Arc<str>,
    connection: Arc<Connection>,
    room: Budget,
    /// A reservation is at most this, or else idle handles, which reserve a byte each, could keep a large record out.
    most_reserved: usize,
    state: Mutex<State>,
    /// To the courier: there may be something to send.
    work: Notify,
    /// To those who flush: everything before this ticket is settled.
    settled: Board<u64>,
}

struct State {
    lanes: Lanes<Kept>,
    /// The one over which the last record was accepted: what was accepted is sent, whether or not the connection was closed
    /// meanwhile.
    service: Option<Arc<dyn Service>>,
    /// What the sink is to be told.
    failures: VecDeque<PublishError>,
    /// Nobody is left to hand anything in.
    is_closed: bool,
    /// Nobody is left to send.
    is_over: bool,
}

/// What a record has with it: whoever is to be told, and its place in the room.
#[derive(Debug)]
struct Kept {
    receipt: Receipt,
    _room: Option<Grant>,
}

/// What will have become of a record.
pub(super) type Outcome = oneshot::Receiver<Result<Published, PublishError>>;

impl Desk {
    pub(super) fn new(connection: Arc<Connection>, to: PublishTo) -> Result<Self, KinesisError> {
        let (name, rules, bytes) = to.checked()?;
        let stream: Arc<str> = name.into();
        let lanes = Lanes::new(Arc::clone(&stream), rules);
        let state = State { lanes, service: None, failures: VecDeque::new(), is_closed: false, is_over: false };
        Ok(Self {
            stream,
            connection,
            room: Budget::new(bytes),
            most_reserved: bytes / 2,
            state: Mutex::new(state),
            work: Notify::new(),
            settled: Board::new(0),
        })
    }

    /// Room for a record, if it is there now.
    pub(super) fn try_admit(&self, prepared: Option<&Prepared>) -> Option<Grant> {
        self.room.try_admit(self.reservation(prepared))
    }

    /// Waits for room for this record, or for one whose size is not known yet.
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

    /// Takes a record once there is room for it. What comes back is where its result will be.
    ///
    /// # Cancel safety
    ///
    /// A future that is dropped has handed nothing in.
    pub(super) async fn hand_in(&self, record: Outgoing) -> Result<Outcome, PublishError> {
        let prepared = Prepared::new(record)?;
        let room = self.admit(Some(&prepared)).await;
        let (caller, outcome) = oneshot::channel();
        self.accept(prepared, Receipt::Caller(caller), Some(room))?;
        Ok(outcome)
    }

    /// Takes a record, or gives it back with the reason.
    pub(super) fn accept(
        &self,
        prepared: Prepared,
        receipt: Receipt,
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
                let kept = Kept { receipt, _room: room };
                let is_news = state.lanes.accept(record, data, kept, Instant::now());
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
        receipt.give_back();
        Err(PublishError::new(record, 0, cause))
    }

    /// Sends all that was accepted so far without lingering.
    pub(super) fn hurry(&self) -> u64 {
        let upto = lock(&self.state).lanes.hurry();
        self.work.notify_one();
        upto
    }

    /// Waits until all that was accepted so far is settled.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: sending goes on.
    pub(super) async fn flush(&self) {
        let upto = self.hurry();
        self.settled.wait_for(|settled| (*settled >= upto).then_some(())).await;
    }

    /// The next failure that the sink was not told yet.
    pub(super) fn failure(&self) -> Option<PublishError> {
        lock(&self.state).failures.pop_front()
    }

    /// Nobody is left to hand anything in.
    pub(super) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        state.lanes.hurry();
        let unheard = mem::take(&mut state.failures);
        drop(state);
        self.work.notify_one();
        self.warn(unheard);
    }

    pub(super) fn stats(&self) -> PublishStats {
        let now = Instant::now();
        let state = lock(&self.state);
        let counts = state.lanes.counts();
        PublishStats {
            stream: Arc::clone(&self.stream),
            published: counts.published,
            bytes: counts.bytes,
            failed: counts.failed,
            requests: counts.requests,
            retries: counts.retries,
            throttles: counts.throttles,
            in_flight: state.lanes.accepted() - counts.published - counts.failed,
            in_flight_bytes: self.room.held(),
            oldest: state.lanes.oldest_accepted().map(|accepted| now.saturating_duration_since(accepted)),
        }
    }

    fn interrupted(&self) -> KinesisError {
        KinesisError::Interrupted { stream: Arc::clone(&self.stream) }
    }

    fn warn(&self, failures: impl IntoIterator<Item = PublishError>) {
        for failure in failures {
            tracing::warn!(stream = %self.stream, error = %Chain(&failure), "a record was not published, and nobody asked");
        }
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").field("stream", &self.stream).finish_non_exhaustive()
    }
}
