//! Compares complete readers of Kinesis: the bare AWS SDK, this library, and `ruststream-kinesis` 0.7.1.
//!
//! ```sh
//! cd benches/peers && cargo run --release                                  # all, about five minutes
//! cargo run --release -- --record-bytes 100 --shards 4 --rounds 20         # one cell of the table
//! cargo run --release -- --handler alone                                   # reading ahead of a slow handler
//! ```
//!
//! A canned Kinesis answers from another process, as fast as bytes can be copied. All readers use the same one. Each
//! round of each reader is a separate process (this program, started again), so that CPU time and peak memory are those
//! of one reader. It reads everything once to warm up, under another stream name, and once more for the figures. The
//! readers take turns.
//!
//! - **bare**: a task for each shard that calls GetRecords with the iterator of the previous response. Retries are off.
//!   It has no leases, no checkpoints, no memory bound and no acknowledgement: the minimum of a reader.
//! - **kinesis-stream**: one subscription with one consumer task that calls `ack()` on every record. It has default
//!   settings, except that pacing is off, it starts at the horizon, and its `read_limit` is a page. The measurement
//!   includes closing, which stores the last checkpoints.
//! - **ruststream-kinesis**: one subscription by its transport, [`subscribe_stream`], with one consumer task that
//!   awaits `ack()` on every message. The bench leaves out its framework of handlers and codecs, which would only add
//!   cost. See [`readers`] for its settings.
//!
//! Each reader looks at every byte of every record, and must see every record.
//!
//! A page holds 1,000 records, but no more than 2 MiB, which is what Kinesis returns from a shard per second: 32
//! records of 64 KiB. Page size and total number of pages do not depend on the number of shards.
//!
//! How to read it: each figure has the best of all rounds, the median, and the best as a multiple of the bare loop and
//! of ruststream-kinesis. Other work on the machine only makes a figure worse. Records per second also depend on the
//! endpoint, which needs a core for itself; CPU time does not. Peak memory is that of the whole process. It includes
//! about 12 MiB that a program with an SDK takes before it reads anything.
//!
//! # The handler
//!
//! A second table is for a handler that takes as long as a read. The endpoint then takes 20 ms for each response. The
//! bench measures a read, and the handler waits that long for each page of 1,000 records of 100 B. The handler waits
//! and does not compute, because the bench compares whether reading and handling overlap: while both wait, no core is
//! busy, so the result does not depend on the number of cores. A handler that computes would overlap as well, on
//! another core. The limit is twice as fast, and 1.96 times with 50 pages, as there is no page to handle during the
//! first read.
//!
//! - **bare** reads and handles in turn, one task for each shard;
//! - **ahead** is this library: `batches_by_shard` of a page each, as many handled at a time as there are shards.
//!
//! [`subscribe_stream`]: ruststream_kinesis::ConnectedKinesisBroker::subscribe_stream

use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use kinesis_stream_support::canned::{self, Canned, Process};

use self::{
    cost::{Cost, Result, print_table},
    process::{Reading, Sample},
    readers::Reader,
    reading::{ending, records, title},
};

#[path = "../../cost/mod.rs"]
mod cost;
mod process;
mod readers;
#[path = "../../reading/mod.rs"]
mod reading;
mod table;

/// The record size in the handler table: small, so that a read consists mostly of waiting.
const HANDLED_BYTES: usize = 100;

/// How many rounds measure how long a read takes.
const READS_TO_MEASURE: usize = 3;

#[derive(Parser)]
struct Options {
    /// How many rounds each reader runs, each in a separate process.
    #[arg(long, default_value_t = 7)]
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
    /// The threads of the runtime of each reader.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Runs only these readers.
    #[arg(long, num_args = 1..)]
    only: Vec<Reader>,
    /// Whether to compare with a handler that takes as long as a read.
    #[arg(long, value_enum, default_value_t = Handler::Also)]
    handler: Handler,
    /// The latency of a read in the handler table, in milliseconds.
    #[arg(long, default_value_t = 20)]
    latency: u64,
    /// How many pages each shard has in the handler table.
    #[arg(long, default_value_t = 50)]
    handled_pages: usize,
    #[command(subcommand)]
    role: Option<Role>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Handler {
    Also,
    Alone,
    Off,
}

#[derive(Subcommand)]
enum Role {
    /// One round of one reader. It prints its cost.
    #[command(hide = true)]
    Read(Reading),
}

fn main() -> Result<()> {
    canned::serve_if_spawned();
    let options = Options::parse();
    if let Some(Role::Read(reading)) = options.role {
        println!("{}", reading.run()?);
        return Ok(());
    }
    if options.handler != Handler::Alone {
        compare_readers(&options)?;
    }
    if options.handler != Handler::Off {
        for shards in [1, 4] {
            compare_handling(&options, shards)?;
        }
    }
    Ok(())
}

/// The table of all sizes, numbers of shards and readers.
fn compare_readers(options: &Options) -> Result<()> {
    let readers = if options.only.is_empty() { Reader::value_variants() } else { &options.only };
    let at_once: Vec<_> = readers.iter().map(|reader| (*reader, Duration::ZERO)).collect();
    table::print_head();
    for &record_bytes in &options.record_bytes {
        for &shards in &options.shards {
            let setup = Setup::start(options, ending(shards, record_bytes, options.pages))?;
            table::print_cell(&setup.canned, readers, &setup.rounds(&at_once, options.rounds)?);
        }
    }
    Ok(())
}

/// Compares reading and handling in turn with reading ahead.
fn compare_handling(options: &Options, shards: usize) -> Result<()> {
    let latency = Duration::from_millis(options.latency);
    let setup =
        Setup::start(options, Canned { latency, ..ending(shards, HANDLED_BYTES, shards * options.handled_pages) })?;
    let reads = setup.rounds(&[(Reader::Bare, Duration::ZERO)], READS_TO_MEASURE)?.concat();
    let all = reads.iter().map(|sample| sample.cost.wall).min().unwrap_or_default();
    let read = all / u32::try_from(options.handled_pages)?;
    let samples = setup.rounds(&[(Reader::Bare, read), (Reader::KinesisStream, read)], options.rounds)?;
    println!("\n{}, a read takes {read:.1?}, a handler as long:", title(&setup.canned));
    let costs = |rounds: &Vec<Sample>| rounds.iter().map(|sample| sample.cost).collect();
    let costs: Vec<Vec<Cost>> = samples.iter().map(costs).collect();
    print_table(&[Handling::Bare, Handling::Ahead], &costs, records(&setup.canned));
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Handling {
    Bare,
    Ahead,
}

/// The endpoint, and the options of reading.
struct Setup {
    canned: Canned,
    threads: usize,
    process: Process,
}

impl Setup {
    fn start(options: &Options, canned: Canned) -> Result<Self> {
        Ok(Self { canned, threads: options.threads, process: canned.spawn()? })
    }

    /// Reads everything `rounds` times with each of these readers, in turns. Each page takes its handling time.
    fn rounds(&self, readers: &[(Reader, Duration)], rounds: usize) -> Result<Vec<Vec<Sample>>> {
        let mut samples = vec![Vec::new(); readers.len()];
        for _ in 0..rounds {
            for (&(reader, handling), samples) in readers.iter().zip(&mut samples) {
                let endpoint = self.process.endpoint().to_owned();
                let reading = Reading { reader, endpoint, canned: self.canned, handling, threads: self.threads };
                samples.push(reading.in_a_process()?);
            }
        }
        Ok(samples)
    }
}
