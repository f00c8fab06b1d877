//! The load on the stream: puts records, splits and merges shards.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use kinesis_stream::{Outgoing, Publisher};
use kinesis_stream_support::Harness;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};

use crate::{Failure, STREAM, phase::Clock, tracker::RecordTracker};

/// The size of a record in bytes. It starts with the number of the record.
const RECORD_BYTES: usize = 1024;

/// The interval between two puts.
const TICK: Duration = Duration::from_millis(50);

/// The state that producer and consumer share.
#[derive(Debug)]
pub(crate) struct Soak {
    pub(crate) clock: Clock,
    tracker: Mutex<RecordTracker>,
    per_tick: u32,
}

impl Soak {
    pub(crate) fn new(rate: u32, length: Duration) -> Self {
        let per_tick = (rate / 20).max(1);
        let ticks = usize::try_from(length.as_millis() / TICK.as_millis()).unwrap_or(usize::MAX);
        let most = (ticks + 2) * usize::try_from(per_tick).unwrap_or(usize::MAX);
        Self { clock: Clock::new(length), tracker: Mutex::new(RecordTracker::for_at_most(most)), per_tick }
    }

    pub(crate) fn tracker(&self) -> MutexGuard<'_, RecordTracker> {
        self.tracker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) async fn all_settled(&self) {
        while self.tracker().open() > 0 {
            sleep(TICK).await;
        }
    }
}

/// Puts records at a steady rate, under 64 keys.
pub(crate) async fn produce(publisher: &Publisher, soak: &Soak, end: Instant) -> Result<(), Failure> {
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while Instant::now() < end {
        ticks.tick().await;
        let numbers: Vec<usize> = (0..soak.per_tick).filter_map(|_| soak.tracker().add()).collect();
        let records = numbers.into_iter().map(|number| {
            let mut payload = format!("{number} ").into_bytes();
            payload.resize(RECORD_BYTES, b'.');
            Outgoing::new(format!("key-{:02}", number % 64), payload)
        });
        let results = publisher.publish_all(STREAM, records).await;
        results.into_iter().collect::<Result<Vec<_>, _>>()?;
    }
    Ok(())
}

/// Splits the first open shard in the middle of each round, and merges its halves in the middle of the next one.
pub(crate) async fn reshard(harness: Harness, clock: Clock, end: Instant) {
    let mut halves: Option<[String; 2]> = None;
    for round in 0.. {
        let at = clock.middle_of(round);
        if at >= end {
            return;
        }
        sleep_until(at).await;
        halves = if let Some([lower, upper]) = halves.take() {
            harness.merge(STREAM, &lower, &upper).await;
            None
        } else {
            let shards = harness.shards(STREAM).await;
            let Some(open) = shards.iter().find(|shard| !shard.closed) else { return };
            Some(harness.split(STREAM, &open.id).await)
        };
    }
}
