//! Settling 10,000 deliveries of one shard, the default limit of records in flight.

use futures::stream::iter;
use kinesis_stream::{Batches, Tolerant, prelude::*};
use kinesis_stream_support::canned::InProcess;

use super::{
    reading::kinesis,
    setup::{Setup, rest, unpaced},
};

/// How many records are in flight.
pub(crate) const IN_FLIGHT: usize = 10_000;

/// The number of concurrent commits, and the size of a batch.
const AT_ONCE: usize = 64;
const BATCH: usize = 500;

/// With a higher limit, so that settling a record does not cause a read.
fn roomy() -> KinesisStream {
    unpaced().max_in_flight(2 * IN_FLIGHT)
}

/// The order of settling.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Delivered,
    Reversed,
    Shuffled,
}

/// A subscription to one shard.
#[derive(Debug)]
pub(crate) struct OneShard {
    deliveries: Tolerant,
    pub(super) setup: Setup,
}

impl Default for OneShard {
    fn default() -> Self {
        Self::new(kinesis(1, 1000, 100))
    }
}

impl OneShard {
    pub(super) fn new(kinesis: InProcess) -> Self {
        let setup = Setup::new(kinesis);
        Self { deliveries: setup.subscribe(roomy()).tolerant(), setup }
    }

    /// Takes all deliveries that may be in flight.
    pub(crate) fn fill(&mut self, order: Order) -> Vec<Delivery> {
        let Self { deliveries, setup } = self;
        let mut held = setup.run(async {
            rest().await;
            let held: Vec<Delivery> = deliveries.take(IN_FLIGHT).try_collect().await.expect("no error");
            rest().await;
            held
        });
        match order {
            Order::Delivered => {}
            Order::Reversed => held.reverse(),
            Order::Shuffled => shuffle(&mut held),
        }
        held
    }

    /// Commits one after the other.
    pub(crate) fn commit_each(&self, held: Vec<Delivery>) {
        self.setup.run(async {
            for delivery in held {
                delivery.commit().await.expect("a store in memory does not fail");
            }
        });
    }

    /// Commits 64 at a time.
    pub(crate) fn commit_at_once(&self, held: Vec<Delivery>) {
        let committed = iter(held).map(Delivery::commit).buffer_unordered(AT_ONCE);
        self.setup.run(committed.try_for_each(async |_| Ok(()))).expect("a store in memory does not fail");
    }

    /// Commits 500 together, then the next 500.
    pub(crate) fn commit_all(&self, held: Vec<Delivery>) {
        let mut held = held.into_iter();
        self.setup.run(async {
            while held.len() > 0 {
                commit_all(held.by_ref().take(BATCH)).await.expect("a store in memory does not fail");
            }
        });
    }
}

/// Acknowledges one after the other.
pub(crate) fn ack(held: Vec<Delivery>) {
    held.into_iter().for_each(Delivery::ack);
}

/// A subscription to one shard in batches of 500.
#[derive(Debug)]
pub(crate) struct OneShardInBatches {
    batches: Batches,
    setup: Setup,
}

impl Default for OneShardInBatches {
    fn default() -> Self {
        let setup = Setup::new(kinesis(1, BATCH, 100));
        let batches = setup.subscribe(roomy()).batches(BATCH).expect("the batch size is allowed");
        Self { batches, setup }
    }
}

impl OneShardInBatches {
    /// Takes all deliveries that may be in flight.
    pub(crate) fn fill(&mut self) -> Vec<Batch> {
        let Self { batches, setup } = self;
        setup.run(async {
            rest().await;
            let held = batches.take(IN_FLIGHT / BATCH).try_collect().await.expect("no error");
            rest().await;
            held
        })
    }

    /// Commits one after the other.
    pub(crate) fn commit(&self, held: Vec<Batch>) {
        self.setup.run(async {
            for batch in held {
                batch.commit().await.expect("a store in memory does not fail");
            }
        });
    }
}

/// Fisher and Yates, with a generator whose seed is fixed.
fn shuffle<T>(all: &mut [T]) {
    let mut state: u64 = 0x9E37_79B9_7F4A_7C15;
    for i in (1..all.len()).rev() {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let j = usize::try_from(state >> 33).expect("31 bits") % (i + 1);
        all.swap(i, j);
    }
}
