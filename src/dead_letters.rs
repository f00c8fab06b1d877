//! The task that writes records whose attempts are spent to the dead-letter stream, and settles each of them once that
//! is done. It runs only where such a stream is set, and whether or not anyone polls the subscription.
//!
//! - [`mod@letter`]: what is written,
//! - [`gate`]: when, after writes that failed.
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
    dead_letters::{circuit::Gate, record::letter},
    error::{
        KinesisError,
        chain::Chain,
        service::{Action, FailureKind, ServiceFailure},
    },
    kinesis::Entry,
    state::{
        context::{EndsTheSubscription, Hub},
        events::{Due, Returned},
        shard::{Back, HandOut, Ledger, Ledgers},
    },
};

mod circuit;
mod record;

/// When to look again whether the lease of a waiting record is good.
const DOUBT_PAUSE: Duration = Duration::from_secs(1);

/// A write that came back: of which record, of which shard, when it was sent, and what came of it.
type Answer = (Arc<Ledger>, Returned, Instant, Result<(), ServiceFailure>);

/// See the module.
struct DeadLetters {
    hub: Arc<Hub>,
    ledgers: Arc<Ledgers>,
    /// The stream to which they go.
    to: Arc<str>,
    writes: FuturesUnordered<BoxFuture<'static, Answer>>,
    gate: Gate,
}

/// Starts the task, if there is a stream for dead letters. It ends with the life of the subscription.
pub(crate) fn start(hub: &Arc<Hub>, ledgers: &Arc<Ledgers>) {
    let Some(to) = hub.settings.retries.dead_letter.clone() else { return };
    let task = DeadLetters {
        hub: Arc::clone(hub),
        ledgers: Arc::clone(ledgers),
        to,
        writes: FuturesUnordered::new(),
        gate: Gate::default(),
    };
    tokio::spawn(task.run());
}

impl DeadLetters {
    async fn run(mut self) {
        let hub = Arc::clone(&self.hub);
        let _ends = EndsTheSubscription(Arc::clone(&hub));
        loop {
            let look_at = self.send();
            select! {
                biased;
                _ = hub.life.over() => return,
                Some(answer) = self.writes.next() => self.settle(answer),
                () = hub.outbox.filled() => {}
                () = sleep_until(look_at.unwrap_or_else(Instant::now)), if look_at.is_some() => {}
            }
        }
    }

    /// Sends what may be sent now. Says when to look again, if nothing else happens before.
    fn send(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let mut in_doubt = Vec::new();
        while self.writes.len() < self.gate.width(now) {
            let Some(spent) = self.hub.outbox.take() else { break };
            let ledger = self.ledgers.get(&spent.shard);
            match ledger.map(|ledger| (ledger.take_up(spent.ticket, now), ledger)) {
                Some((HandOut::Out(..), ledger)) => self.write(ledger, spent, now),
                Some((HandOut::NotNow, _)) => in_doubt.push(spent),
                Some((HandOut::Over, _)) | None => self.hub.letter_done(),
            }
        }
        let doubt = (!in_doubt.is_empty()).then(|| now + DOUBT_PAUSE);
        for spent in in_doubt {
            self.hub.outbox.keep(spent);
            self.hub.letter_done();
        }
        let gate = self.gate.opens_at().filter(|at| *at > now && !self.hub.outbox.is_empty());
        gate.or(doubt)
    }

    fn write(&self, ledger: Arc<Ledger>, spent: Returned, now: Instant) {
        let (hub, to) = (Arc::clone(&self.hub), Arc::clone(&self.to));
        self.writes.push(
            async move {
                let written = put(&hub, &to, &spent).await;
                (ledger, spent, now, written)
            }
            .boxed(),
        );
    }

    /// Enters what came of a write.
    fn settle(&mut self, (ledger, spent, sent_at, answer): Answer) {
        match answer {
            Ok(()) => {
                self.gate.passed();
                self.written(&ledger, spent);
            }
            Err(failure) if failure.kind() == FailureKind::Rejected => self.refused(&ledger, spent, failure),
            Err(failure) => {
                self.gate.failed(failure.kind(), sent_at, Instant::now());
                self.unwritten(&ledger, spent, failure);
            }
        }
        self.hub.letter_done();
    }

    fn written(&self, ledger: &Ledger, spent: Returned) {
        tracing::info!(
            stream = %self.hub.stream, shard = %spent.shard, sequence_number = %spent.record.sequence_number,
            attempts = spent.attempts, reason = %spent.reason, dead_letter = %self.to,
            "the attempts of a record are spent: it was written to the dead-letter stream"
        );
        ledger.count(|counts| counts.dead_letters += 1);
        ledger.settle_spent(spent.ticket, spent.tag);
    }

    /// The service will never take it: it becomes an item.
    fn refused(&self, ledger: &Ledger, spent: Returned, failure: ServiceFailure) {
        ledger.put_down(spent, |spent| {
            self.hub.inbox.due(Due::Spent(spent, Some(failure)), Instant::now());
            Next::Error
        });
    }

    /// It is tried again after all others.
    fn unwritten(&self, ledger: &Ledger, spent: Returned, source: ServiceFailure) {
        let error = KinesisError::DeadLetter {
            stream: Arc::clone(&self.hub.stream),
            shard: spent.shard.clone(),
            sequence_number: spent.record.sequence_number.clone(),
            dead_letter: Arc::clone(&self.to),
            source,
        };
        let back = ledger.put_down(spent, |spent| {
            self.hub.outbox.keep(spent);
            Next::DeadLetter
        });
        if back != Back::Over {
            tracing::warn!(error = %Chain(&error), "a dead letter was not written");
            ledger.report(error);
        }
    }
}

/// Writes one record.
async fn put(hub: &Hub, to: &str, spent: &Returned) -> Result<(), ServiceFailure> {
    let refused = |error: KinesisError| {
        ServiceFailure::new(Action::PutRecord, FailureKind::Rejected, "nothing was sent").caused_by(error)
    };
    let letter = letter(hub, spent).map_err(refused)?;
    let entry = Entry { partition_key: letter.partition_key, explicit_hash_key: None, data: letter.data };
    hub.service.put(to, entry).await.map(drop)
}
