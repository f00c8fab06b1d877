//! A consumer that settles its deliveries at random.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use tokio::time::{sleep, timeout};

use kinesis_stream_support::Rng;

use crate::{
    delivery::Delivery,
    error::{ErrorClass, KinesisError, chain::Chain},
    simulation::{
        harness::{millis, seconds},
        network::NetworkedTable,
        oracle::{Oracle, RecordRef, record_ref},
    },
    subscription::Subscription,
    util::mutex::lock,
};

/// A consumer that settles at random and reports each step to the oracle.
pub(crate) struct Worker {
    pub(crate) rng: Rng,
    pub(crate) oracle: Arc<Mutex<Oracle>>,
    /// The table that knows the deadline of each lease.
    pub(crate) table: Option<Arc<NetworkedTable>>,
    /// It never gives a record back.
    pub(crate) never_gives_back: bool,
    /// Now and then it pauses for up to this many milliseconds.
    pub(crate) max_pause: u64,
}

impl Worker {
    pub(crate) async fn work(mut self, mut subscription: Subscription) {
        let mut held: Vec<Delivery> = Vec::new();
        loop {
            match timeout(seconds(5), subscription.next()).await {
                Ok(None) => break,
                Ok(Some(Ok(delivery))) => {
                    let record = record(&delivery);
                    lock(&self.oracle).delivered(&record, delivery.epoch(), delivery.attempt());
                    if let Some(late) =
                        self.table.as_ref().and_then(|table| table.lateness(&record.0, delivery.epoch()))
                    {
                        lock(&self.oracle).violation(format!("{record:?} is delivered {late:?} past the deadline"));
                    }
                    held.push(delivery);
                }
                Ok(Some(Err(error))) => self.check(&error),
                Err(_) => {}
            }
            while !held.is_empty() && (held.len() > 8 || self.faults_are_over() || !self.rng.one_in(3)) {
                let delivery = held.remove(self.rng.index(held.len()));
                self.settle(delivery).await;
            }
            self.pause().await;
        }
        // The pipeline drains, or is cut off.
        if self.faults_are_over() || !self.rng.one_in(4) {
            for delivery in held {
                self.settle(delivery).await;
            }
        }
    }

    fn faults_are_over(&self) -> bool {
        lock(&self.oracle).faults_are_over
    }

    async fn pause(&mut self) {
        sleep(millis(self.rng.below(4) * self.rng.below(200))).await;
        if self.max_pause > 0 && self.rng.one_in(100) {
            for _ in 0..self.rng.below(self.max_pause) / 500 {
                if self.faults_are_over() {
                    return;
                }
                sleep(millis(500)).await;
            }
        }
    }

    fn check(&self, error: &KinesisError) {
        let mut oracle = lock(&self.oracle);
        let gone = matches!(error, KinesisError::ShardGone { .. } | KinesisError::StreamRecreated { .. });
        let twin = matches!(error, KinesisError::DuplicateOwner { owner, .. } if oracle.is_duplicate(owner));
        // Chance may deny every call of a kind for longer than the patience of the subscription.
        let passes = matches!(error.class(), ErrorClass::Transient | ErrorClass::Loss | ErrorClass::Lasting);
        if gone || !passes && !twin {
            oracle.violation(Chain(error).to_string());
        }
    }

    async fn settle(&mut self, delivery: Delivery) {
        let (record, epoch) = (record(&delivery), delivery.epoch());
        match self.rng.below(10) {
            n @ 0..2 if !self.never_gives_back && !self.faults_are_over() => {
                lock(&self.oracle).given_back(&record, epoch);
                if n == 0 { delivery.nack() } else { drop(delivery) }
            }
            2 => commit(Arc::clone(&self.oracle), delivery).await,
            3 => drop(tokio::spawn(commit(Arc::clone(&self.oracle), delivery))),
            _ => {
                lock(&self.oracle).settled(&record, epoch);
                delivery.ack();
            }
        }
    }
}

async fn commit(oracle: Arc<Mutex<Oracle>>, delivery: Delivery) {
    let (record, epoch) = (record(&delivery), delivery.epoch());
    lock(&oracle).settled(&record, epoch);
    if let Ok(commit) = delivery.commit().await {
        lock(&oracle).committed(&record, epoch, commit);
    }
}

fn record(delivery: &Delivery) -> RecordRef {
    record_ref(delivery.shard(), delivery.sequence_number().as_str())
}
