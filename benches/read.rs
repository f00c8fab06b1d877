//! What reading costs: this library beside a bare loop over the SDK, in one run, on the same pages.
//!
//! ```sh
//! cargo bench --bench read                                                 # the table
//! cargo bench --bench read -- --only ack --record-bytes 100 --rounds 30    # one row, for a profiler
//! ```
//!
//! A canned Kinesis answers from another process, as fast as bytes can be copied. A round reads all of its shards to
//! their ends in each way, one way after the other:
//!
//! - **bare**: a task for each shard that calls GetRecords with the iterator of the answer before, retries off;
//! - **ack**: a subscription whose consumer, one task, calls [`Delivery::ack`] on every record;
//! - **commit**: the same with [`Delivery::commit`], 64 at a time, on a store in memory.
//!
//! Each looks at every byte of every record. Nothing paces the reads. CPU time, user's and system's, is that of this
//! process alone.
//!
//! How to read it: the columns are the least CPU time per record of all rounds, the median, the most records per second,
//! the median, and the CPU time as a multiple of the bare loop's: least by least, and the median of the rounds. Other
//! work on the machine only ever adds, so the least is nearest to the truth; where the two ratios differ much, the
//! machine was too busy to tell. Records per second also tell how fast the endpoint is, which needs a core of its own;
//! CPU time does not.
//!
//! It is no criterion bench, because criterion measures one thing after another by the wall clock, and what is asked
//! here is the CPU time of whole runs, taken in turns.

use std::{io, iter};

use aws_sdk_kinesis::{Client, types::ShardIteratorType};
use clap::{Parser, ValueEnum};
use futures::future::try_join_all;
use kinesis_stream::{ConnectedKinesisBroker, prelude::*};
use kinesis_stream_support::canned::{self, Canned, Process};
use tokio::runtime;

use self::cost::{Cost, Result, STREAM, clients, print_table};

mod cost;

/// Commits that wait for the store at the same time.
const COMMITS: usize = 64;

#[derive(Clone, Parser)]
struct Options {
    /// How often each way reads everything. One round more goes before them, to warm up.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// The sizes of a record to read.
    #[arg(long, num_args = 1.., default_values_t = [100, 1024])]
    record_bytes: Vec<usize>,
    /// How many records a page holds.
    #[arg(long, default_value_t = 1000)]
    records_per_page: usize,
    /// After how many pages a shard ends.
    #[arg(long, default_value_t = 50)]
    pages: usize,
    #[arg(long, default_value_t = 4)]
    shards: usize,
    /// The threads of the runtime.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Reads in this way alone.
    #[arg(long)]
    only: Option<Way>,
    /// Given by `cargo bench`. Without it, one small round shows that the bench still works.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A way to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    Bare,
    Ack,
    Commit,
}

fn main() -> Result<()> {
    canned::serve_if_spawned();
    let mut options = Options::parse();
    if !options.bench {
        options = Options { rounds: 1, pages: 2, ..options };
    }
    let runtime = runtime::Builder::new_multi_thread().worker_threads(options.threads).enable_all().build()?;
    for record_bytes in options.record_bytes.clone() {
        runtime.block_on(compare(&options, record_bytes))?;
    }
    Ok(())
}

/// Reads records of one size in every way, in turns, and prints what it cost.
async fn compare(options: &Options, record_bytes: usize) -> Result<()> {
    let &Options { shards, records_per_page, pages, rounds, .. } = options;
    let ground = Ground::start(Canned { shards, records_per_page, record_bytes, pages: Some(pages) }).await?;
    let ways = options.only.map_or_else(|| vec![Way::Bare, Way::Ack, Way::Commit], |only| vec![only]);
    let mut costs = vec![Vec::new(); ways.len()];
    for round in 0..=rounds {
        for (way, costs) in iter::zip(&ways, &mut costs) {
            let cost = ground.measure(*way).await?;
            if round > 0 {
                costs.push(cost);
            }
        }
    }
    println!("\n{shards} shards, {record_bytes} B a record, {records_per_page} records a page, {pages} pages a shard:");
    print_table(&ways, &costs, ground.records());
    Ok(())
}

/// The endpoint, and a client of either kind, with its connections open after the first round.
struct Ground {
    canned: Canned,
    client: Client,
    broker: ConnectedKinesisBroker,
    _process: Process,
}

impl Ground {
    async fn start(canned: Canned) -> Result<Self> {
        let process = canned.spawn()?;
        let (client, broker) = clients(&process).await?;
        Ok(Self { canned, client, broker, _process: process })
    }

    /// How many records there are to read.
    fn records(&self) -> u32 {
        let Canned { shards, records_per_page, pages, .. } = self.canned;
        u32::try_from(shards * records_per_page * pages.unwrap_or_default()).expect("so many records take too long")
    }

    async fn measure(&self, way: Way) -> Result<Cost> {
        let run = async {
            match way {
                Way::Bare => self.bare().await,
                Way::Ack => self.subscribed(ack).await,
                Way::Commit => self.subscribed(commit).await,
            }
        };
        let (cost, read) = Cost::of(run).await?;
        if read == self.records() {
            Ok(cost)
        } else {
            Err(io::Error::other(format!("{} records are there, {way:?} read {read}", self.records())).into())
        }
    }

    async fn bare(&self) -> Result<u32> {
        let limit = i32::try_from(self.canned.records_per_page)?;
        let shards = (0..self.canned.shards).map(|shard| {
            let client = self.client.clone();
            tokio::spawn(read_shard(client, format!("shardId-{shard:012}"), limit))
        });
        try_join_all(shards).await?.into_iter().sum()
    }

    /// Reads all with a subscription that a task of its own consumes.
    async fn subscribed<F>(&self, consume: fn(Subscription, u32) -> F) -> Result<u32>
    where
        F: Future<Output = Result<u32>> + Send + 'static,
    {
        let stream = KinesisStream::new(STREAM)
            .start_at(KinesisPosition::horizon())
            .read_limit(u32::try_from(self.canned.records_per_page)?)
            .reads_per_second(u32::MAX);
        let subscription = self.broker.subscribe(stream).await?;
        let closer = subscription.closer();
        let read = tokio::spawn(consume(subscription, self.records())).await??;
        closer.close().await;
        Ok(read)
    }
}

async fn read_shard(client: Client, shard: String, limit: i32) -> Result<u32> {
    let place = client.get_shard_iterator().stream_name(STREAM).shard_id(shard);
    let placed = place.shard_iterator_type(ShardIteratorType::TrimHorizon).send().await?;
    let mut next = placed.shard_iterator;
    let mut read = 0;
    while let Some(iterator) = next {
        let page = client.get_records().shard_iterator(iterator).limit(limit).send().await?;
        read += page.records.iter().map(|record| look(record.data.as_ref())).sum::<u32>();
        next = page.next_shard_iterator;
    }
    Ok(read)
}

async fn ack(subscription: Subscription, records: u32) -> Result<u32> {
    let mut deliveries = subscription.tolerant();
    let mut read = 0;
    while read < records
        && let Some(delivery) = deliveries.try_next().await?
    {
        read += look(delivery.payload());
        delivery.ack();
    }
    Ok(read)
}

async fn commit(subscription: Subscription, records: u32) -> Result<u32> {
    let committed = subscription
        .tolerant()
        .take(usize::try_from(records)?)
        .map_ok(async |delivery| {
            let seen = look(delivery.payload());
            delivery.commit().await.map(|_| seen)
        })
        .try_buffer_unordered(COMMITS);
    Ok(committed.try_fold(0, async |read, seen| Ok(read + seen)).await?)
}

/// Reads every byte of a record, and counts it.
fn look(data: &[u8]) -> u32 {
    std::hint::black_box(data.iter().fold(0, |sum, byte| sum ^ byte));
    1
}
