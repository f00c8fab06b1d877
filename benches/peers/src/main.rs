//! Whole readers of Kinesis, compared: the bare AWS SDK, this library, and `ruststream-kinesis` 0.7.1.
//!
//! ```sh
//! cd benches/peers && cargo run --release                                  # all, about five minutes
//! cargo run --release -- --record-bytes 100 --shards 4 --rounds 20         # one cell of the table
//! cargo run --release -- --handler alone                                   # reading ahead of a slow handler
//! ```
//!
//! A canned Kinesis answers from another process, as fast as bytes can be copied, and it is the same for all. Each round of each
//! reader is a process of its own, this program started once more, so that CPU time and peak memory are that reader's alone.
//! It reads everything once to warm up, under another name of the stream, and once more for the figures. The readers take turns.
//!
//! - **bare**: a task for each shard that calls GetRecords with the iterator of the answer before. Retries are off. It has no
//!   leases, no checkpoints, no bound of memory and no acknowledgement: the least that a reader can be.
//! - **kinesis-stream**: one subscription, whose one consumer, a task, calls `ack()` on every record. Its settings are their
//!   defaults, but for the pace, which is off, the start at the horizon, and a `read_limit` of a page. Closing it, which stores the
//!   last checkpoints, is part of the measure.
//! - **ruststream-kinesis**: one subscription by its transport, [`subscribe_stream`], whose one consumer, a task, awaits `ack()`
//!   on every message. Its framework of handlers and codecs is left out, since it would only add to it. See [`readers`] for what
//!   was set.
//!
//! Each looks at every byte of every record, and is held to see as many records as there are.
//!
//! A page holds 1,000 records, but no more than 2 MiB, which is what Kinesis gives of a shard in a second: 32 records of
//! 64 KiB. It is the same at each number of shards, and so is the number of pages in all.
//!
//! How to read it: of each figure there is the best of all rounds, the median, and the best as a multiple of the bare loop's and of
//! ruststream-kinesis's. Other work on the machine only ever makes a figure worse. Records per second also tell how fast the
//! endpoint is, which needs a core of its own; CPU time does not. Peak memory is that of the process: what a program with an SDK
//! takes before it reads anything, some 12 MiB, is in it.
//!
//! # The handler
//!
//! A second table is of a handler that takes as long as a read. The endpoint then takes 20 ms for each answer, a read is
//! measured, and the handler waits as long for each page of 1,000 records of 100 B. Waiting, and not computing, because what
//! is compared is whether reading and handling overlap: while both wait, no core is short, also where the endpoint has none for
//! itself, so the figure is of the order in which things are done. A handler that computes would overlap as well, on
//! another core. Twice as fast is the most that there can be, and 1.96 times with 50 pages, as nothing is handled during the
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

/// The size of a record that is handled: small, so that a read is waiting for the most part.
const HANDLED_BYTES: usize = 100;

/// How often everything is read to see how long a read takes.
const READS_TO_MEASURE: usize = 3;

#[derive(Parser)]
struct Options {
    /// How often each reader reads everything, in a process of its own each time.
    #[arg(long, default_value_t = 7)]
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
    /// The threads of the runtime of each reader.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// These readers alone.
    #[arg(long, num_args = 1..)]
    only: Vec<Reader>,
    /// Whether to compare with a handler that takes as long as a read.
    #[arg(long, value_enum, default_value_t = Handler::Also)]
    handler: Handler,
    /// What a read takes then, beyond its work, in milliseconds.
    #[arg(long, default_value_t = 20)]
    latency: u64,
    /// How many pages each shard has then.
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
    /// One round of one reader. It prints what it cost.
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
            let ground = Ground::start(options, ending(shards, record_bytes, options.pages))?;
            table::print_cell(&ground.canned, readers, &ground.rounds(&at_once, options.rounds)?);
        }
    }
    Ok(())
}

/// How long reading and handling take in turn, and how long with reading ahead.
fn compare_handling(options: &Options, shards: usize) -> Result<()> {
    let latency = Duration::from_millis(options.latency);
    let ground =
        Ground::start(options, Canned { latency, ..ending(shards, HANDLED_BYTES, shards * options.handled_pages) })?;
    let reads = ground.rounds(&[(Reader::Bare, Duration::ZERO)], READS_TO_MEASURE)?.concat();
    let all = reads.iter().map(|sample| sample.cost.wall).min().unwrap_or_default();
    let read = all / u32::try_from(options.handled_pages)?;
    let samples = ground.rounds(&[(Reader::Bare, read), (Reader::KinesisStream, read)], options.rounds)?;
    println!("\n{}, a read takes {read:.1?}, a handler as long:", title(&ground.canned));
    let costs = |rounds: &Vec<Sample>| rounds.iter().map(|sample| sample.cost).collect();
    let costs: Vec<Vec<Cost>> = samples.iter().map(costs).collect();
    print_table(&[Handling::Bare, Handling::Ahead], &costs, records(&ground.canned));
    Ok(())
}

#[derive(Clone, Copy, Debug)]
enum Handling {
    Bare,
    Ahead,
}

/// The endpoint, and how it is read.
struct Ground {
    canned: Canned,
    threads: usize,
    process: Process,
}

impl Ground {
    fn start(options: &Options, canned: Canned) -> Result<Self> {
        Ok(Self { canned, threads: options.threads, process: canned.spawn()? })
    }

    /// Reads everything so many times with each of these readers, in turns, with so long to handle each page.
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
