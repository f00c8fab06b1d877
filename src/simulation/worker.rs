//! A consumer that settles its deliveries at random.

use std::sync::{Arc, Mutex};

use futures::StreamExt;
use tokio::time::{sleep, timeout};

use kinesis_stream_support::Rng;

use crate::{
    delivery::Delivery,
    error::{ErrorClass, KinesisError},
    simulation::{
        harness::{millis, seconds},
        network::Line,
        oracle::{Which, World, which},
    },
    subscription::Subscription,
    util::mutex::lock,
};

/// A consumer that settles at random and reports each step to the oracle.
pub(crate) struct Worker {
    pub(crate) rng: Rng,
    pub(crate) world: Arc<Mutex<World>>,
    /// The table that knows the deadline of each lease.
    pub(crate) line: Option<Arc<Line>>,
    /// It never gives a record back.
    pub(crate) keen: bool,
    /// Now and then it pauses for up to this many milliseconds.
    pub(crate) looks_away: u64,
}

impl Worker {
    pub(crate) async fn work(mut self, mut subscription: Subscription) {
        let mut held: Vec<Delivery> = Vec::new();
        loop {
            match timeout(seconds(5), subscription.next()).await {
                Ok(None) => break,
                Ok(Some(Ok(delivery))) => {
                    let record = record(&delivery);
                    lock(&self.world).delivered(&record, delivery.epoch(), delivery.attempt());
                    if let Some(late) = self.line.as_ref().and_then(|line| line.lateness(&record.0, delivery.epoch())) {
                        lock(&self.world).violation(format!("{record:?} is handed out {late:?} past the deadline"));
                    }
                    held.push(delivery);
                }
                Ok(Some(Err(error))) => self.check(&error),
                Err(_) => {}
            }
            while !held.is_empty() && (held.len() > 8 || self.is_calm() || !self.rng.one_in(3)) {
                let delivery = held.remove(self.rng.index(held.len()));
                self.settle(delivery).await;
            }
            self.pause().await;
        }
        // The pipeline drains, or is cut off.
        if self.is_calm() || !self.rng.one_in(4) {
            for delivery in held {
                self.settle(delivery).await;
            }
        }
    }

    fn is_calm(&self) -> bool {
        lock(&self.world).is_calm
    }

    async fn pause(&mut self) {
        sleep(millis(self.rng.below(4) * self.rng.below(200))).await;
        if self.looks_away > 0 && self.rng.one_in(100) {
            for _ in 0..self.rng.below(self.looks_away) / 500 {
                if self.is_calm() {
                    return;
                }
                sleep(millis(500)).await;
            }
        }
    }

    fn check(&self, error: &KinesisError) {
        let mut world = lock(&self.world);
        let gone = matches!(error, KinesisError::ShardGone { .. } | KinesisError::StreamRecreated { .. });
        let twin = matches!(error, KinesisError::DuplicateOwner { owner, .. } if world.is_twin(owner));
        if gone || error.class() != ErrorClass::Transient && !twin {
            world.violation(error.to_string());
        }
    }

    async fn settle(&mut self, delivery: Delivery) {
        let (record, epoch) = (record(&delivery), delivery.epoch());
        match self.rng.below(10) {
            n @ 0..2 if !self.keen && !self.is_calm() => {
                lock(&self.world).given_back(&record, epoch);
                if n == 0 { delivery.nack() } else { drop(delivery) }
            }
            2 => commit(Arc::clone(&self.world), delivery).await,
            3 => drop(tokio::spawn(commit(Arc::clone(&self.world), delivery))),
            _ => {
                lock(&self.world).settled(&record, epoch);
                delivery.ack();
            }
        }
    }
}

async fn commit(world: Arc<Mutex<World>>, delivery: Delivery) {
    let (record, epoch) = (record(&delivery), delivery.epoch());
    lock(&world).settled(&record, epoch);
    if let Ok(commit) = delivery.commit().await {
        lock(&world).committed(&record, epoch, commit);
    }
}

fn record(delivery: &Delivery) -> Which {
    which(delivery.shard(), delivery.sequence_number().as_str())
}
