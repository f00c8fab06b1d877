//! Fault injection: calls fail, wait, hang or get an edited response. It also logs every call.
//!
//! ```no_run
//! # async fn example() {
//! use kinesis_stream_support::{AwsError, Emulator, Op};
//!
//! let kinesis = Emulator::start();
//! let faults = kinesis.faults();
//! faults.on(Op::GetRecords).shard("shardId-000000000000").first(3).fail(AwsError::THROTTLED);
//! let outage = faults.on(Op::ListShards).fail(AwsError::INTERNAL_FAILURE);
//! // ...
//! outage.lift();
//! assert!(faults.busiest_second(Op::GetRecords, "shardId-000000000000") <= 5);
//! # }
//! ```
//!
//! Rules act in the order in which they were made, on every call in their scope. Each rule counts calls separately, so
//! two rules `nth(1)` and `nth(3)` act on the first and the third call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

mod call;
mod client;
mod error;
mod layer;
mod log;
mod partial;
mod rule;

pub(crate) use self::layer::layer;
use self::log::Log;
pub use self::{
    call::Call,
    error::AwsError,
    rule::{Rule, Scope},
};
use crate::op::Op;

/// The handle on the fault layer of an emulator, or of the clients that share it. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<LayerState>,
    /// Notifies at every call.
    called: watch::Sender<()>,
    /// How many calls are in flight.
    in_flight: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct LayerState {
    rules: Vec<Rule>,
    log: Log,
}

impl Faults {
    /// Begins a rule for calls of this operation.
    pub fn on(&self, op: Op) -> Scope {
        Scope::new(self.clone(), op)
    }

    /// Lifts every rule.
    pub fn lift_all(&self) {
        self.state().rules.drain(..).for_each(|rule| rule.lift());
    }

    /// The calls of this operation so far, in order of arrival, failed and unanswered ones too.
    ///
    /// # Panics
    /// More than 100,000 calls or 64 MiB of requests were logged since the start or the last [`clear`](Self::clear).
    #[must_use]
    pub fn calls(&self, op: Op) -> Vec<Call> {
        self.state().log.of(op).cloned().collect()
    }

    /// How many calls of this operation there were.
    ///
    /// # Panics
    /// As [`calls`](Self::calls).
    #[must_use]
    pub fn count(&self, op: Op) -> usize {
        self.state().log.of(op).count()
    }

    /// The highest number of calls of this operation on this shard within any one second.
    ///
    /// # Panics
    /// As [`calls`](Self::calls).
    #[must_use]
    pub fn busiest_second(&self, op: Op, shard: &str) -> usize {
        log::busiest_second(self.state().log.of(op).filter(|call| call.shard() == Some(shard)))
    }

    /// Returns once `n` calls of this operation arrived. Dropping the future is safe.
    ///
    /// # Panics
    /// As [`calls`](Self::calls).
    pub async fn called(&self, op: Op, n: usize) {
        let mut calls = self.shared.called.subscribe();
        while self.count(op) < n {
            // The sender lives in `self`, so waiting cannot fail.
            drop(calls.changed().await);
        }
    }

    /// Returns once no call is in flight: each was answered, or its caller cancelled it. Dropping the future is safe.
    pub async fn idle(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        drop(self.shared.in_flight.subscribe().wait_for(|calls| *calls == 0).await);
    }

    /// Forgets the calls so far. Rules stay.
    pub fn clear(&self) {
        self.state().log = Log::default();
    }

    /// Counts a call as in flight until the guard is dropped.
    fn enter(&self) -> InFlightCall {
        self.shared.in_flight.send_modify(|calls| *calls += 1);
        InFlightCall(self.clone())
    }

    fn install(&self, rule: Rule) {
        self.state().rules.push(rule);
    }

    /// Logs a call, and returns the rules that act on it.
    fn admit(&self, call: Call) -> Vec<Rule> {
        let met = {
            let mut state = self.state();
            state.rules.retain(|rule| !rule.is_lifted());
            let met = state.rules.iter().filter(|rule| rule.meets(&call)).cloned().collect();
            state.log.push(call);
            met
        };
        self.shared.called.send_replace(());
        met
    }

    /// A panic in a test leaves no half-done change here, so poison does not matter.
    fn state(&self) -> MutexGuard<'_, LayerState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call from its arrival to its answer.
struct InFlightCall(Faults);

impl Drop for InFlightCall {
    fn drop(&mut self) {
        self.0.shared.in_flight.send_modify(|calls| *calls -= 1);
    }
}
