//! The task that writes dead letters, and settles each record once its dead letter is stored. It runs whether or not
//! anyone polls the subscription.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{select, time::Instant};
use tracing::Instrument;

use crate::{
    config::redelivery::{RedeliveryDecision, Wish},
    dead_letters::{circuit::WriteCircuit, dead_letter::DeadLetter, record::record},
    error::{
        KinesisError,
        chain::Chain,
        service::{Action, FailureKind, ServiceFailure},
        work::Work,
    },
    kinesis::PutEntry,
    state::{
        context::{EndsTheSubscription, SubscriptionContext},
        events::{Redelivery, Returned},
        shard::{HandOut, ReturnOutcome, Shard, Shards},
        warnings::{Cause, warn_once_of},
    },
    util::timer::sleep_until_some,
};

/// How long to wait before looking again whether the lease of a queued record is valid.
const DOUBT_PAUSE: Duration = Duration::from_secs(1);

/// A finished write: the shard, the record, when it was sent, and its result.
type WriteResult = (Arc<Shard>, Returned, Instant, Result<(), ServiceFailure>);

/// See the module.
struct DeadLetterWriter {
    context: Arc<SubscriptionContext>,
    shards: Arc<Shards>,
    /// The dead-letter stream.
    to: Arc<str>,
    writes: FuturesUnordered<BoxFuture<'static, WriteResult>>,
    circuit: WriteCircuit,
}

/// Starts the task, if the subscription sets a dead-letter stream. It ends with the subscription.
pub(crate) fn start(context: &Arc<SubscriptionContext>, shards: &Arc<Shards>) {
    let Some(to) = context.settings.retries.dead_letter.clone() else { return };
    let span = tracing::error_span!(
        "dead_letters", consumer = %context.consumer, stream = %context.stream, dead_letter = %to
    );
    let task = DeadLetterWriter {
        context: Arc::clone(context),
        shards: Arc::clone(shards),
        to,
        writes: FuturesUnordered::new(),
        circuit: WriteCircuit::default(),
    };
    tokio::spawn(task.run().instrument(span));
}

impl DeadLetterWriter {
    async fn run(mut self) {
        let context = Arc::clone(&self.context);
        let _ends = EndsTheSubscription(Arc::clone(&context));
        loop {
            let retry_at = self.send();
            select! {
                biased;
                _ = context.lifecycle.over() => return,
                Some(result) = self.writes.next() => self.settle(result),
                () = context.dead_letter_queue.pushed() => {}
                () = sleep_until_some(retry_at) => {}
            }
        }
    }

    /// Sends all writes that are allowed now. Returns when to try again, if nothing else happens before.
    fn send(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let mut in_doubt = Vec::new();
        while self.writes.len() < self.circuit.allowed(now) {
            let Some(spent) = self.context.dead_letter_queue.take() else { break };
            let shard = self.shards.get(&spent.shard);
            match shard.map(|shard| (shard.take_up(spent.ticket, now), shard)) {
                Some((HandOut::Out(..), shard)) => self.write(shard, spent, now),
                Some((HandOut::NotNow, _)) => in_doubt.push(spent),
                Some((HandOut::Stale, _)) | None => self.context.dead_letter_done(),
            }
        }
        let doubt = (!in_doubt.is_empty()).then(|| now + DOUBT_PAUSE);
        for spent in in_doubt {
            self.context.dead_letter_queue.requeue(spent);
            self.context.dead_letter_done();
        }
        let circuit = self.circuit.retry_at().filter(|at| *at > now && !self.context.dead_letter_queue.is_empty());
        circuit.or(doubt)
    }

    fn write(&self, shard: Arc<Shard>, spent: Returned, now: Instant) {
        let (context, to) = (Arc::clone(&self.context), Arc::clone(&self.to));
        self.writes.push(
            async move {
                let result = put(&context, &to, &spent).await;
                (shard, spent, now, result)
            }
            .boxed(),
        );
    }

    /// Handles the result of a write.
    fn settle(&mut self, (shard, spent, sent_at, result): WriteResult) {
        match result {
            Ok(()) => {
                self.circuit.succeeded();
                self.context.succeeded(Work::WriteDeadLetters);
                Self::written(&shard, spent);
            }
            Err(failure) if failure.kind() == FailureKind::Rejected => self.rejected(&shard, spent, failure),
            Err(failure) => {
                self.circuit.failed(failure.kind(), sent_at, Instant::now());
                self.unwritten(&shard, spent, failure);
            }
        }
        self.context.dead_letter_done();
    }

    fn written(shard: &Shard, spent: Returned) {
        tracing::info!(
            shard = %spent.shard, sequence_number = %spent.record.sequence_number, attempts = spent.attempts,
            rejected = spent.wish == Wish::Reject, reason = %spent.reason,
            "a record was given up and written to the dead-letter stream"
        );
        shard.count(|counts| counts.dead_letters += 1);
        shard.settle_spent(spent.ticket, spent.settlement);
    }

    /// The service will never accept this record, so the subscription's stream yields it as an error.
    fn rejected(&self, shard: &Shard, spent: Returned, failure: ServiceFailure) {
        shard.put_down(spent, |spent| {
            self.context.events.due(Redelivery::Spent(spent, Some(failure)), Instant::now());
            RedeliveryDecision::Error
        });
    }

    /// The record goes to the end of the queue, to be retried.
    fn unwritten(&self, shard: &Shard, spent: Returned, source: ServiceFailure) {
        let error = KinesisError::DeadLetter {
            stream: Arc::clone(&self.context.stream),
            shard: spent.shard.clone(),
            sequence_number: spent.record.sequence_number.clone(),
            dead_letter: Arc::clone(&self.to),
            source,
        };
        let outcome = shard.put_down(spent, |spent| {
            self.context.dead_letter_queue.requeue(spent);
            RedeliveryDecision::DeadLetter
        });
        if outcome != ReturnOutcome::Stale {
            let what = "a dead letter was not written";
            let is_first = self.context.warnings.is_first(Cause::of_error(what, &error));
            warn_once_of!(is_first, error = %Chain(&error), "{what}");
            shard.report(error);
        }
    }
}

/// Writes one record.
async fn put(context: &SubscriptionContext, to: &str, spent: &Returned) -> Result<(), ServiceFailure> {
    let rejected = |error: KinesisError| {
        ServiceFailure::new(Action::PutRecord, FailureKind::Rejected, format!("nothing was sent: {error}"))
    };
    let letter = DeadLetter::of(context, spent);
    let record = record(&letter, context.settings.retries.format).map_err(rejected)?;
    let entry = PutEntry { partition_key: record.partition_key, explicit_hash_key: None, data: record.data };
    context.service.put(to, entry).await.map(drop)
}
