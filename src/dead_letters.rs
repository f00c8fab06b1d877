//! The task that writes records whose attempts are spent to the dead-letter stream, and settles each of them once that
//! is done. It runs only where such a stream is set, and whether or not anyone polls the subscription.
//!
//! - [`mod@record`]: what is written,
//! - [`circuit`]: when, after writes that failed.
//!
//! A record that is being written counts as in the user's hands, so that closing and handing over wait for it as they do
//! for a handler. One that waits, in the outbox, is out of them, as one that waits to be delivered again: it is dropped
//! unsettled when its shard leaves, and comes again with whoever reads the shard next.

use std::{sync::Arc, time::Duration};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream::FuturesUnordered};
use tokio::{
    select,
    time::{Instant, sleep_until},
};

use crate::{
    config::redelivery::Next,
    dead_letters::{circuit::Circuit, record::record},
    error::{
        KinesisError,
        service::{Action, FailureKind, ServiceFailure},
    },
    kinesis::PutEntry,
    state::{
        context::{EndsTheSubscription, SubscriptionContext},
        events::{Redelivery, Returned},
        shard::{Back, HandOut, Shard, Shards},
    },
};

mod circuit;
mod record;

/// When to look again whether the lease of a waiting record is good.
const DOUBT_PAUSE: Duration = Duration::from_secs(1);

/// A write that came back: of which record, of which shard, when it was sent, and what came of it.
type Answer = (Arc<Shard>, Returned, Instant, Result<(), ServiceFailure>);

/// See the module.
struct DeadLetters {
    context: Arc<SubscriptionContext>,
    shards: Arc<Shards>,
    /// The stream to which they go.
    to: Arc<str>,
    writes: FuturesUnordered<BoxFuture<'static, Answer>>,
    circuit: Circuit,
}

/// Starts the task, if there is a stream for dead letters. It ends with the life of the subscription.
pub(crate) fn start(context: &Arc<SubscriptionContext>, shards: &Arc<Shards>) {
    let Some(to) = context.settings.retries.dead_letter.clone() else { return };
    let task = DeadLetters {
        context: Arc::clone(context),
        shards: Arc::clone(shards),
        to,
        writes: FuturesUnordered::new(),
        circuit: Circuit::default(),
    };
    tokio::spawn(task.run());
}

impl DeadLetters {
    async fn run(mut self) {
        let context = Arc::clone(&self.context);
        let _ends = EndsTheSubscription(Arc::clone(&context));
        loop {
            let look_at = self.send();
            select! {
                biased;
                _ = context.lifecycle.over() => return,
                Some(answer) = self.writes.next() => self.settle(answer),
                () = context.dead_letter_queue.filled() => {}
                () = sleep_until(look_at.unwrap_or_else(Instant::now)), if look_at.is_some() => {}
            }
        }
    }

    /// Sends what may be sent now. Says when to look again, if nothing else happens before.
    fn send(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let mut in_doubt = Vec::new();
        while self.writes.len() < self.circuit.width(now) {
            let Some(spent) = self.context.dead_letter_queue.take() else { break };
            let shard = self.shards.get(&spent.shard);
            match shard.map(|shard| (shard.take_up(spent.ticket, now), shard)) {
                Some((HandOut::Out(..), shard)) => self.write(shard, spent, now),
                Some((HandOut::NotNow, _)) => in_doubt.push(spent),
                Some((HandOut::Over, _)) | None => self.context.letter_done(),
            }
        }
        let doubt = (!in_doubt.is_empty()).then(|| now + DOUBT_PAUSE);
        for spent in in_doubt {
            self.context.dead_letter_queue.keep(spent);
            self.context.letter_done();
        }
        let circuit = self.circuit.opens_at().filter(|at| *at > now && !self.context.dead_letter_queue.is_empty());
        circuit.or(doubt)
    }

    fn write(&self, shard: Arc<Shard>, spent: Returned, now: Instant) {
        let (context, to) = (Arc::clone(&self.context), Arc::clone(&self.to));
        self.writes.push(
            async move {
                let written = put(&context, &to, &spent).await;
                (shard, spent, now, written)
            }
            .boxed(),
        );
    }

    /// Enters what came of a write.
    fn settle(&mut self, (shard, spent, sent_at, answer): Answer) {
        match answer {
            Ok(()) => {
                self.circuit.passed();
                self.written(&shard, spent);
            }
            Err(failure) if failure.kind() == FailureKind::Rejected => self.refused(&shard, spent, failure),
            Err(failure) => {
                self.circuit.failed(failure.kind(), sent_at, Instant::now());
                self.unwritten(&shard, spent, failure);
            }
        }
        self.context.letter_done();
    }

    fn written(&self, shard: &Shard, spent: Returned) {
        tracing::info!(
            stream = %self.context.stream, shard = %spent.shard, sequence_number = %spent.record.sequence_number,
            attempts = spent.attempts, reason = %spent.reason, dead_letter = %self.to,
            "the attempts of a record are spent: it was written to the dead-letter stream"
        );
        shard.count(|counts| counts.dead_letters += 1);
        shard.settle_spent(spent.ticket, spent.settlement);
    }

    /// The service will never take it: it becomes an item.
    fn refused(&self, shard: &Shard, spent: Returned, failure: ServiceFailure) {
        shard.put_down(spent, |spent| {
            self.context.events.due(Redelivery::Spent(spent, Some(failure)), Instant::now());
            Next::Error
        });
    }

    /// It is tried again after all others.
    fn unwritten(&self, shard: &Shard, spent: Returned, source: ServiceFailure) {
        let error = KinesisError::DeadLetter {
            stream: Arc::clone(&self.context.stream),
            shard: spent.shard.clone(),
            sequence_number: spent.record.sequence_number.clone(),
            dead_letter: Arc::clone(&self.to),
            source,
        };
        let back = shard.put_down(spent, |spent| {
            self.context.dead_letter_queue.keep(spent);
            Next::DeadLetter
        });
        if back != Back::Over {
            tracing::warn!(%error, "a dead letter was not written");
            shard.report(error);
        }
    }
}

/// Writes one record.
async fn put(context: &SubscriptionContext, to: &str, spent: &Returned) -> Result<(), ServiceFailure> {
    let refused = |error: KinesisError| {
        ServiceFailure::new(Action::PutRecord, FailureKind::Rejected, format!("nothing was sent: {error}"))
    };
    let record = record(context, spent).map_err(refused)?;
    let entry = PutEntry { partition_key: record.partition_key, explicit_hash_key: None, data: record.data };
    context.service.put(to, entry).await.map(drop)
}
