//! The cost of reading: this library and a bare loop over the SDK read the same pages in one run.
//!
//! ```sh
//! cargo bench --bench read                                                                # the tables
//! cargo bench --bench read -- --only ack --record-bytes 100 --shards 4 --rounds 30        # one row, for a profiler
//! ```
//!
//! A canned Kinesis answers from another process, as fast as bytes can be copied. A round reads all of its shards to
//! their ends in each of four ways:
//!
//! - **bare**: a task for each shard that calls GetRecords with the iterator of the previous response, retries off;
//! - **ack**: a subscription whose consumer, one task, calls [`Delivery::ack`] on every record;
//! - **commit**: the same with [`Delivery::commit`], 64 at a time, on a store in memory;
//! - **batches**: the same with [`batches`](Subscription::batches) of a page each, with one commit per batch.
//!
//! Each looks at every byte of every record. Reads are not paced. CPU time (user plus system) is that of this process
//! alone.
//!
//! A page holds 1,000 records, but no more than 2 MiB, which is what Kinesis returns from a shard per second: 32
//! records of 64 KiB. Page size and total number of pages (up to rounding) do not depend on the number of shards.
//!
//! How to read it: the columns are the lowest CPU time per record of all rounds, the median, the highest number of
//! records per second, the median, and both as a multiple of the bare loop: best by best, and the median of the rounds.
//! Other work on the machine only adds CPU time, so the lowest value is the most accurate. If the two ratios differ
//! much, the machine was too busy. Records per second also depend on the endpoint, which needs a core for itself; CPU
//! time does not.
//!
//! This is not a criterion bench: criterion measures one function after another by the wall clock. This bench needs the
//! CPU time of whole runs that take turns.

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
    /// How many rounds to measure. One more round runs before them, to warm up.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// The sizes of a record to read.
    #[arg(long, num_args = 1.., default_values_t = [100, 1024, 65536])]
    record_bytes: Vec<usize>,
    /// The numbers of shards to read.
    #[arg(long, num_args = 1.., default_values_t = [1, 4, 64])]
    shards: Vec<usize>,
    /// How many pages all shards have together. Each has at least one.
    #[arg(long, default_value_t = 192)]
    pages: usize,
    /// The threads of the runtime.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Reads only in these ways. The first one is the baseline of the ratios.
    #[arg(long, num_args = 1..)]
    only: Vec<Way>,
    /// After the warm-up, prints the id of this process and waits for a line, so that a profiler can attach.
    #[arg(long)]
    wait: bool,
    /// `cargo bench` passes this. Without it, one small round only checks that the bench works.
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

/// Reads these records in every way, in turns, and prints the costs.
async fn compare(options: &Options, canned: Canned) -> Result<()> {
    let setup = Setup::start(canned).await?;
    let ways = &options.only;
    let mut costs = vec![Vec::new(); ways.len()];
    for round in 0..=options.rounds {
        if options.wait && round == 1 {
            println!("process {} is warm; enter a line to continue", process::id());
            io::stdin().read_line(&mut String::new())?;
        }
        for (way, costs) in iter::zip(ways, &mut costs) {
            let cost = setup.measure(*way).await?;
            if round > 0 {
                costs.push(cost);
            }
        }
    }
    println!("\n{}:", title(&canned));
    print_table(ways, &costs, records(&canned));
    Ok(())
}

/// The endpoint and both clients. Their connections are open after the first round.
struct Setup {
    canned: Canned,
    client: Client,
    broker: ConnectedKinesisBroker,
    _process: Process,
}

impl Setup {
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
            Err(io::Error::other(format!("there are {all} records, but {way:?} read {read}")).into())
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
