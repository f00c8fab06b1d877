//! Reading: from the bytes of a page to a record that is acknowledged, and the same by a bare loop over the SDK.

use std::hint::black_box;

use aws_sdk_kinesis::types::ShardIteratorType;
use futures::future::try_join_all;
use kinesis_stream::prelude::*;
use kinesis_stream_support::canned::{Canned, InProcess};
use tokio::time::{Duration, sleep};

use super::ground::{Ground, STREAM, rest};

/// What the service allows for each shard.
const READS_PER_SECOND: u32 = 5;

/// A stream of so many shards, with pages of so many records of so many bytes.
pub(crate) fn kinesis(shards: usize, records_per_page: usize, record_bytes: usize) -> InProcess {
    Canned { shards, records_per_page, record_bytes, ..Canned::default() }.in_process()
}

/// A subscription that has handed out a page of each busy shard, and read the next one.
#[derive(Debug)]
pub(crate) struct Reading {
    deliveries: kinesis_stream::Tolerant,
    ground: Ground,
}

impl Reading {
    pub(crate) fn new(kinesis: InProcess) -> Self {
        Self::at(kinesis, u32::MAX)
    }

    /// At the pace of the service: five pages a second, by the paused clock, with all that happens in a second.
    pub(crate) fn paced(kinesis: InProcess) -> Self {
        Self::at(kinesis, READS_PER_SECOND)
    }

    fn at(kinesis: InProcess, reads_per_second: u32) -> Self {
        let ground = Ground::new(kinesis);
        let stream = KinesisStream::new(STREAM).reads_per_second(reads_per_second);
        let mut this = Self { deliveries: ground.subscribe(stream).tolerant(), ground };
        let a_page_each = this.ground.kinesis.busy_shards() * this.ground.kinesis.records_per_page();
        this.read(a_page_each);
        this
    }

    /// Acknowledges so many records, one by one, and waits until what comes next is read.
    pub(crate) fn read(&mut self, records: usize) {
        let deliveries = &mut self.deliveries;
        self.ground.run(async {
            for _ in 0..records {
                let delivery = deliveries.try_next().await.expect("no error").expect("no end");
                black_box(delivery.payload());
                delivery.ack();
            }
            rest().await;
        });
    }
}

/// A loop over GetRecords for each shard, in tasks of their own.
#[derive(Debug)]
pub(crate) struct Bare {
    iterators: Vec<String>,
    ground: Ground,
}

impl Bare {
    pub(crate) fn new(kinesis: InProcess) -> Self {
        let ground = Ground::new(kinesis);
        let shards = 0..ground.kinesis.busy_shards();
        let placed = shards.map(|shard| {
            let place = ground.client.get_shard_iterator().stream_name(STREAM).shard_id(format!("shardId-{shard:012}"));
            place.shard_iterator_type(ShardIteratorType::TrimHorizon).send()
        });
        let placed = ground.run(try_join_all(placed)).expect("shards that are there");
        let iterators = placed.into_iter().filter_map(|placed| placed.shard_iterator).collect();
        let mut this = Self { iterators, ground };
        let a_page_each = this.iterators.len() * this.ground.kinesis.records_per_page();
        this.read(a_page_each);
        this
    }

    /// Reads so many records, from all shards alike.
    pub(crate) fn read(&mut self, records: usize) {
        let pages = records / self.iterators.len() / self.ground.kinesis.records_per_page();
        self.turns(u32::try_from(pages).expect("so many take too long"), Duration::ZERO);
    }

    /// Reads so many records, five pages a second from each shard.
    pub(crate) fn read_paced(&mut self, records: usize) {
        let pages = records / self.iterators.len() / self.ground.kinesis.records_per_page();
        let pause = Duration::from_secs(1) / READS_PER_SECOND;
        self.turns(u32::try_from(pages).expect("so many take too long"), pause);
    }

    /// Reads each shard so many times, with a pause after each read.
    pub(crate) fn turns(&mut self, turns: u32, pause: Duration) {
        let limit = i32::try_from(self.ground.kinesis.records_per_page()).expect("a page of the service");
        let client = &self.ground.client;
        let shard = |mut iterator: String| {
            let client = client.clone();
            tokio::spawn(async move {
                for _ in 0..turns {
                    let page = client.get_records().shard_iterator(iterator).limit(limit.max(1)).send().await;
                    let page = page.expect("a page");
                    for record in page.records {
                        black_box(record.data.as_ref());
                    }
                    iterator = page.next_shard_iterator.expect("no end");
                    if !pause.is_zero() {
                        sleep(pause).await;
                    }
                }
                iterator
            })
        };
        let iterators = self.iterators.drain(..);
        let read = self.ground.run(async { try_join_all(iterators.map(shard)).await });
        self.iterators = read.expect("no panic");
    }
}

/// A subscription to shards that have nothing, at the pace of the service and the settings by default.
#[derive(Debug)]
pub(crate) struct Idle {
    subscription: Subscription,
    ground: Ground,
}

impl Idle {
    pub(crate) fn new(shards: usize) -> Self {
        let ground = Ground::new(kinesis(shards, 1, 1).busy(0));
        let mut this = Self { subscription: ground.subscribe(KinesisStream::new(STREAM)), ground };
        this.wait(Duration::from_millis(10_500));
        this
    }

    /// Lets so much time pass.
    pub(crate) fn wait(&mut self, time: Duration) {
        let subscription = &mut self.subscription;
        self.ground.run(async { tokio::time::timeout(time, subscription.next()).await }).expect_err("there is nothing");
    }
}

/// A bare loop for each of them, that looks once a second.
pub(crate) fn bare_idle(shards: usize) -> Bare {
    let ground = Ground::new(kinesis(shards, 1, 1).busy(0));
    let iterators = (0..shards).map(|shard| format!("{shard}/0")).collect();
    let mut this = Bare { iterators, ground };
    this.turns(1, Duration::ZERO);
    this
}
