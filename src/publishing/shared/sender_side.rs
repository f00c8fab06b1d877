//! The sender's side of the shared state.

use std::{mem, sync::Arc};

use tokio::time::Instant;

use super::{PendingRecord, SinkShared};
use crate::{
    kinesis::Service,
    publishing::{
        accumulator::{Answer, Request, SettledRecord},
        error::PublishError,
    },
    util::mutex::lock,
};

/// The sender's next step.
pub(in crate::publishing) struct SenderStep {
    pub(in crate::publishing) requests: Vec<Request>,
    pub(in crate::publishing) service: Option<Arc<dyn Service>>,
    pub(in crate::publishing) wake: Option<Instant>,
    /// Nothing is left to send, and no handle remains.
    pub(in crate::publishing) is_done: bool,
}

impl SinkShared {
    /// What to send now, and when to check again.
    pub(in crate::publishing) fn step(&self) -> SenderStep {
        let now = Instant::now();
        let mut state = lock(&self.state);
        state.accumulator.pass(now);
        let mut requests = Vec::new();
        while let Some(request) = state.accumulator.take(now) {
            requests.push(request);
        }
        let step = SenderStep {
            requests,
            service: state.service.clone(),
            wake: state.accumulator.wake(now),
            is_done: state.is_closed && state.accumulator.is_empty(),
        };
        let settled = state.accumulator.settled();
        drop(state);
        self.tell(settled);
        step
    }

    /// Takes a response.
    pub(in crate::publishing) fn answered(&self, flight: u64, answer: Answer) {
        let mut state = lock(&self.state);
        state.accumulator.answer(flight, answer, Instant::now());
        let settled = state.accumulator.settled();
        drop(state);
        self.tell(settled);
    }

    /// Waits until there may be something to send.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a notification is kept until it is received.
    pub(in crate::publishing) async fn work(&self) {
        self.work.notified().await;
    }

    /// The sender has ended: no open record will be sent.
    pub(in crate::publishing) fn abandon(&self) {
        let mut state = lock(&self.state);
        state.is_over = true;
        state.accumulator.abandon(&self.interrupted());
        let settled = state.accumulator.settled();
        drop(state);
        self.tell(settled);
        self.settled.close();
    }

    /// Delivers results. It holds no lock meanwhile: a wake-up can drop a task, and that task can call back here.
    fn tell(&self, settled: Vec<SettledRecord<PendingRecord>>) {
        if settled.is_empty() {
            return;
        }
        let mut failures = Vec::new();
        for SettledRecord { record, completion, attempts, outcome } in settled {
            let outcome = outcome.map_err(|cause| PublishError::new(record, attempts, cause));
            failures.extend(completion.completion.resolve(outcome));
        }
        let mut state = lock(&self.state);
        let unheard = if state.is_closed { mem::take(&mut failures) } else { Vec::new() };
        state.failures.extend(failures);
        let upto = state.accumulator.open_from();
        drop(state);
        self.warn(unheard);
        self.settled.change(|settled| *settled = (*settled).max(upto));
    }
}
