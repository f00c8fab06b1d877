//! Reading: from the bytes of a page to a record that is acknowledged, and the same by a bare loop over the SDK.

use std::hint::black_box;

use aws_sdk_kinesis::types::ShardIteratorType;
use futures::future::try_join_all;
use kinesis_stream::prelude::*;
use kinesis_stream_support::canned::{Canned, InProcess};
use tokio::time::{Duration, sleep};

use super::setup::{STREAM, Setup, rest};

/// What the service allows for each shard.
const READS_PER_SECOND: u32 = 5;

/// A stream with these numbers of shards, records per page and bytes per record.
pub(crate) fn kinesis(shards: usize, records_per_page: usize, record_bytes: usize) -> InProcess {
    Canned { shards, records_per_page, record_bytes, ..Canned::default() }.in_process()
}

/// A subscription that has delivered a page of each busy shard, and has read the next one.
#[derive(Debug)]
pub(crate) struct Reading {
    deliveries: kinesis_stream::Tolerant,
    setup: Setup,
}

impl Reading {
    pub(crate) fn new(kinesis: InProcess) -> Self {
        Self::at(kinesis, u32::MAX)
    }

    /// At the pace of the service: five pages a second by the paused clock, with all the work that a second brings.
    pub(crate) fn paced(kinesis: InProcess) -> Self {
        Self::at(kinesis, READS_PER_SECOND)
    }

    fn at(kinesis: InProcess, reads_per_second: u32) -> Self {
        let setup = Setup::new(kinesis);
        let stream = KinesisStream::new(STREAM).reads_per_second(reads_per_second);
        let mut this = Self { deliveries: setup.subscribe(stream).tolerant(), setup };
        let a_page_each = this.setup.kinesis.busy_shards() * this.setup.kinesis.records_per_page();
        this.read(a_page_each);
        this
    }

    /// Acknowledges this number of records, one by one, and waits until the next page is read.
    pub(crate) fn read(&mut self, records: usize) {
        let deliveries = &mut self.deliveries;
        self.setup.run(async {
            for _ in 0..records {
                let delivery = deliveries.try_next().await.expect("no error").expect("no end");
                black_box(delivery.payload());
                delivery.ack();
            }
            rest().await;
        });
    }
}

/// A loop over GetRecords for each shard, in separate tasks.
#[derive(Debug)]
pub(crate) struct Bare {
    iterators: Vec<String>,
    setup: Setup,
}

impl Bare {
    pub(crate) fn new(kinesis: InProcess) -> Self {
        let setup = Setup::new(kinesis);
        let shards = 0..setup.kinesis.busy_shards();
        let placed = shards.map(|shard| {
            let place = setup.client.get_shard_iterator().stream_name(STREAM).shard_id(format!("shardId-{shard:012}"));
            place.shard_iterator_type(ShardIteratorType::TrimHorizon).send()
        });
        let placed = setup.run(try_join_all(placed)).expect("the shards exist");
        let iterators = placed.into_iter().filter_map(|placed| placed.shard_iterator).collect();
        let mut this = Self { iterators, setup };
        let a_page_each = this.iterators.len() * this.setup.kinesis.records_per_page();
        this.read(a_page_each);
        this
    }

    /// Reads this number of records, evenly from all shards.
    pub(crate) fn read(&mut self, records: usize) {
        let pages = records / self.iterators.len() / self.setup.kinesis.records_per_page();
        self.turns(u32::try_from(pages).expect("the number of pages fits"), Duration::ZERO);
    }

    /// Reads this number of records, five pages a second from each shard.
    pub(crate) fn read_paced(&mut self, records: usize) {
        let pages = records / self.iterators.len() / self.setup.kinesis.records_per_page();
        let pause = Duration::from_secs(1) / READS_PER_SECOND;
        self.turns(u32::try_from(pages).expect("the number of pages fits"), pause);
    }

    /// Reads each shard `pages` times, with a pause after each read.
    pub(crate) fn turns(&mut self, turns: u32, pause: Duration) {
        let limit = i32::try_from(self.setup.kinesis.records_per_page()).expect("a page size that the service allows");
        let client = &self.setup.client;
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
        let read = self.setup.run(async { try_join_all(iterators.map(shard)).await });
        self.iterators = read.expect("no panic");
    }
}

/// A subscription to empty shards, at the pace of the service and with default settings.
#[derive(Debug)]
pub(crate) struct Idle {
    subscription: Subscription,
    setup: Setup,
}

impl Idle {
    pub(crate) fn new(shards: usize) -> Self {
        let setup = Setup::new(kinesis(shards, 1, 1).busy(0));
        let mut this = Self { subscription: setup.subscribe(KinesisStream::new(STREAM)), setup };
        this.wait(Duration::from_millis(10_500));
        this
    }

    /// Lets this time pass.
    pub(crate) fn wait(&mut self, time: Duration) {
        let subscription = &mut self.subscription;
        self.setup
            .run(async { tokio::time::timeout(time, subscription.next()).await })
            .expect_err("the shards are empty");
    }
}

/// A bare loop for each empty shard, which polls once a second.
pub(crate) fn bare_idle(shards: usize) -> Bare {
    let setup = Setup::new(kinesis(shards, 1, 1).busy(0));
    let iterators = (0..shards).map(|shard| format!("{shard}/0")).collect();
    let mut this = Bare { iterators, setup };
    this.turns(1, Duration::ZERO);
    this
}
