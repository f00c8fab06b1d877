//! Faults on demand: calls that fail, wait, hang or come back changed, and a log of what was called.
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
//! Rules act in the order in which they were made, on every call that falls into their scope. Each rule counts for
//! itself, so two rules `nth(1)` and `nth(3)` meet the first and the third call.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

mod call;
mod error;
mod layer;
mod line;
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

/// The handle on an emulator's fault layer, or on a line of faulty clients. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    inner: Mutex<Inner>,
    /// Ticks at every call.
    called: watch::Sender<()>,
    /// How many calls are under way.
    under_way: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct Inner {
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
        self.inner().rules.drain(..).for_each(|rule| rule.lift());
    }

    /// The calls of this operation so far, in order of arrival, failed and unanswered ones too.
    ///
    /// # Panics
    /// More than 100,000 calls or 64 MiB of requests were logged since the start or the last [`clear`](Self::clear).
    #[must_use]
    pub fn calls(&self, op: Op) -> Vec<Call> {
        self.inner().log.of(op).cloned().collect()
    }

    /// How many calls of this operation there were.
    ///
    /// # Panics
    /// As [`calls`](Self::calls).
    #[must_use]
    pub fn count(&self, op: Op) -> usize {
        self.inner().log.of(op).count()
    }

    /// The most calls of this operation on this shard that fell into any one second.
    ///
    /// # Panics
    /// As [`calls`](Self::calls).
    #[must_use]
    pub fn busiest_second(&self, op: Op, shard: &str) -> usize {
        log::busiest_second(self.inner().log.of(op).filter(|call| call.shard() == Some(shard)))
    }

    /// Returns once there were `n` calls of this operation. Dropping the future does no harm.
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

    /// Returns once no call is under way: each was answered, or its caller gave it up. Dropping the future does no harm.
    pub async fn idle(&self) {
        // The sender lives in `self`, so waiting cannot fail.
        drop(self.shared.under_way.subscribe().wait_for(|calls| *calls == 0).await);
    }

    /// Forgets the calls so far. Rules stay.
    pub fn clear(&self) {
        self.inner().log = Log::default();
    }

    /// Counts a call as one that is under way for as long as this is kept.
    fn enter(&self) -> UnderWay {
        self.shared.under_way.send_modify(|calls| *calls += 1);
        UnderWay(self.clone())
    }

    fn install(&self, rule: Rule) {
        self.inner().rules.push(rule);
    }

    /// Logs a call, and tells which rules act on it.
    fn admit(&self, call: Call) -> Vec<Rule> {
        let met = {
            let mut inner = self.inner();
            inner.rules.retain(|rule| !rule.is_lifted());
            let met = inner.rules.iter().filter(|rule| rule.meets(&call)).cloned().collect();
            inner.log.push(call);
            met
        };
        self.shared.called.send_replace(());
        met
    }

    /// A panic in a test leaves nothing half done here, so poison means nothing.
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.shared.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call from its arrival to its answer.
struct UnderWay(Faults);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.shared.under_way.send_modify(|calls| *calls -= 1);
    }
}
