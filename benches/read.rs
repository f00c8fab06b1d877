//! What reading costs: this library beside a bare loop over the SDK, in one run, on the same pages.
//!
//! ```sh
//! cargo bench --bench read                                                                # the tables
//! cargo bench --bench read -- --only ack --record-bytes 100 --shards 4 --rounds 30        # one row, for a profiler
//! ```
//!
//! A canned Kinesis answers from another process, as fast as bytes can be copied. A round reads all of its shards to
//! their ends in each way, one way after the other:
//!
//! - **bare**: a task for each shard that calls GetRecords with the iterator of the answer before, retries off;
//! - **ack**: a subscription whose consumer, one task, calls [`Delivery::ack`] on every record;
//! - **commit**: the same with [`Delivery::commit`], 64 at a time, on a store in memory;
//! - **batches**: the same with [`batches`](Subscription::batches) of a page each, committed as one, one after the other.
//!
//! Each looks at every byte of every record. Nothing paces the reads. CPU time, user's and system's, is that of this
//! process alone.
//!
//! A page holds 1,000 records, but no more than 2 MiB, which is what Kinesis gives of a shard in a second: 32 records of
//! 64 KiB. It is the same at each number of shards, and so is the number of pages in all, up to rounding.
//!
//! How to read it: the columns are the least CPU time per record of all rounds, the median, the most records per second,
//! the median, and both as a multiple of the bare loop's: best by best, and the median of the rounds. Other work on the
//! machine only ever adds, so the least is nearest to the truth; where the two ratios differ much, the machine was too busy
//! to tell. Records per second also tell how fast the endpoint is, which needs a core of its own; CPU time does not.
//!
//! It is no criterion bench, because criterion measures one thing after another by the wall clock, and what is asked
//! here is the CPU time of whole runs, taken in turns.

use std::{io, iter, process};

use aws_sdk_kinesis::Client;
use clap::{Parser, ValueEnum};
use kinesis_stream::{ConnectedKinesisBroker, prelude::*};
use kinesis_stream_support::canned::{self, Canned, Process};
use tokio::{runtime, time::Duration};

use self::{
    cost::{Cost, Result, STREAM, clients, print_table},
    reading::{ack, bare, ending, look, records, subscribed, title},
};

mod cost;
mod reading;

/// Commits that wait for the store at the same time.
const COMMITS: usize = 64;

#[derive(Clone, Parser)]
struct Options {
    /// How often each way reads everything. One round more goes before them, to warm up.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// The sizes of a record to read.
    #[arg(long, num_args = 1.., default_values_t = [100, 1024, 65536])]
    record_bytes: Vec<usize>,
    /// The numbers of shards to read.
    #[arg(long, num_args = 1.., default_values_t = [1, 4, 64])]
    shards: Vec<usize>,
    /// How many pages all shards have together; each has one at least.
    #[arg(long, default_value_t = 192)]
    pages: usize,
    /// The threads of the runtime.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Reads in these ways alone. The first one stands for the bare loop in the ratios.
    #[arg(long, num_args = 1..)]
    only: Vec<Way>,
    /// Once warm, tells the number of this process and waits for a line, so that a profiler can be attached to it.
    #[arg(long)]
    wait: bool,
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
    Batches,
}

fn main() -> Result<()> {
    canned::serve_if_spawned();
    let mut options = Options::parse();
    if !options.bench {
        options = Options { rounds: 1, pages: 4, shards: vec![1, 4], ..options };
    }
    if options.only.is_empty() {
        options.only = Way::value_variants().to_vec();
    }
    let runtime = runtime::Builder::new_multi_thread().worker_threads(options.threads).enable_all().build()?;
    for &record_bytes in &options.record_bytes {
        for &shards in &options.shards {
            runtime.block_on(compare(&options, ending(shards, record_bytes, options.pages)))?;
        }
    }
    Ok(())
}

/// Reads these records in every way, in turns, and prints what it cost.
async fn compare(options: &Options, canned: Canned) -> Result<()> {
    let ground = Ground::start(canned).await?;
    let ways = &options.only;
    let mut costs = vec![Vec::new(); ways.len()];
    for round in 0..=options.rounds {
        if options.wait && round == 1 {
            println!("process {} is warm; a line lets it go on", process::id());
            io::stdin().read_line(&mut String::new())?;
        }
        for (way, costs) in iter::zip(ways, &mut costs) {
            let cost = ground.measure(*way).await?;
            if round > 0 {
                costs.push(cost);
            }
        }
    }
    println!("\n{}:", title(&canned));
    print_table(ways, &costs, records(&canned));
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
        let (client, broker) = clients(process.endpoint()).await?;
        Ok(Self { canned, client, broker, _process: process })
    }

    async fn measure(&self, way: Way) -> Result<Cost> {
        let Self { canned, client, broker, .. } = self;
        let all = records(canned);
        let run = async {
            match way {
                Way::Bare => bare(client, STREAM, canned, Duration::ZERO).await,
                Way::Ack => subscribed(broker, STREAM, canned, |subscription| ack(subscription, all)).await,
                Way::Commit => subscribed(broker, STREAM, canned, |subscription| commit(subscription, all)).await,
                Way::Batches => {
                    let size = canned.records_per_page;
                    subscribed(broker, STREAM, canned, |subscription| batches(subscription, size, all)).await
                }
            }
        };
        let (cost, read) = Cost::of(run).await?;
        if read == all {
            Ok(cost)
        } else {
            Err(io::Error::other(format!("{all} records are there, {way:?} read {read}")).into())
        }
    }
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

async fn batches(subscription: Subscription, size: usize, records: u32) -> Result<u32> {
    let mut batches = subscription.tolerant().batches(size)?;
    let mut read = 0;
    while read < records
        && let Some(batch) = batches.try_next().await?
    {
        read += batch.payloads().map(|payload| look(payload)).sum::<u32>();
        batch.commit().await?;
    }
    Ok(read)
}
