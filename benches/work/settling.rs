//! Settling what is in the user's hands: 10,000 records of one shard, as many as may be in flight by default.

use futures::stream::iter;
use kinesis_stream::{Batches, Tolerant, prelude::*};
use kinesis_stream_support::canned::InProcess;

use super::{
    ground::{Ground, rest, unpaced},
    reading::kinesis,
};

/// How many records are in flight.
pub(crate) const IN_FLIGHT: usize = 10_000;

/// Commits that wait at the same time, and the size of a batch.
const AT_ONCE: usize = 64;
const BATCH: usize = 500;

/// With room for more, so that nothing is read because something is settled.
fn roomy() -> KinesisStream {
    unpaced().max_in_flight(2 * IN_FLIGHT)
}

/// The order in which they are settled.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    Delivered,
    Reversed,
    Shuffled,
}

/// A subscription to one shard.
#[derive(Debug)]
pub(crate) struct Hands {
    deliveries: Tolerant,
    pub(super) ground: Ground,
}

impl Default for Hands {
    fn default() -> Self {
        Self::new(kinesis(1, 1000, 100))
    }
}

impl Hands {
    pub(super) fn new(kinesis: InProcess) -> Self {
        let ground = Ground::new(kinesis);
        Self { deliveries: ground.subscribe(roomy()).tolerant(), ground }
    }

    /// Takes as many as may be in flight.
    pub(crate) fn fill(&mut self, order: Order) -> Vec<Delivery> {
        let Self { deliveries, ground } = self;
        let mut held = ground.run(async {
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

    /// Commits one, and then the next.
    pub(crate) fn commit_each(&self, held: Vec<Delivery>) {
        self.ground.run(async {
            for delivery in held {
                delivery.commit().await.expect("a store in memory");
            }
        });
    }

    /// Commits 64 at a time.
    pub(crate) fn commit_at_once(&self, held: Vec<Delivery>) {
        let committed = iter(held).map(Delivery::commit).buffer_unordered(AT_ONCE);
        self.ground.run(committed.try_for_each(async |_| Ok(()))).expect("a store in memory");
    }

    /// Commits 500 together, and then the next 500.
    pub(crate) fn commit_all(&self, held: Vec<Delivery>) {
        let mut held = held.into_iter();
        self.ground.run(async {
            while held.len() > 0 {
                commit_all(held.by_ref().take(BATCH)).await.expect("a store in memory");
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
pub(crate) struct InBatches {
    batches: Batches,
    ground: Ground,
}

impl Default for InBatches {
    fn default() -> Self {
        let ground = Ground::new(kinesis(1, BATCH, 100));
        let batches = ground.subscribe(roomy()).batches(BATCH).expect("a size that works");
        Self { batches, ground }
    }
}

impl InBatches {
    /// Takes as many as may be in flight.
    pub(crate) fn fill(&mut self) -> Vec<Batch> {
        let Self { batches, ground } = self;
        ground.run(async {
            rest().await;
            let held = batches.take(IN_FLIGHT / BATCH).try_collect().await.expect("no error");
            rest().await;
            held
        })
    }

    /// Commits one, and then the next.
    pub(crate) fn commit(&self, held: Vec<Batch>) {
        self.ground.run(async {
            for batch in held {
                batch.commit().await.expect("a store in memory");
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
