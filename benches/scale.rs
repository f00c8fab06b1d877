//! The cost of many idle shards: how long `subscribe` takes, and the CPU time of waiting afterwards.
//!
//! ```sh
//! cargo bench --bench scale
//! cargo bench --bench scale -- --shards 10000 --poll-millis 1000 --seconds 30
//! ```
//!
//! A canned Kinesis answers from another process: its shards are open and empty.
//!
//! - **subscribe**: the time until it returns, with all leases taken and the first iterator of each shard fetched. The
//!   service takes the given milliseconds for each response. The leases are in memory, and open shards are read at the
//!   longest poll interval. The service counts the calls.
//! - **idle**: the CPU time of this process while it reads every shard once per poll interval and finds no records. The
//!   bare loop is a task for each shard that calls GetRecords with the iterator of the previous response, retries off,
//!   and sleeps for the poll interval. A round is one window of each way, one after the other.
//!
//! How to read it: other work on the machine only adds time, so the lowest value of the rounds is the most accurate.
//! The ratio compares the CPU time of one read: lowest by lowest, and the median of the rounds.

use std::{iter, time::Duration};

use aws_sdk_kinesis::{Client, types::ShardIteratorType};
use clap::{Parser, ValueEnum};
use futures::stream;
use kinesis_stream::{ConnectedKinesisBroker, prelude::*};
use kinesis_stream_support::canned::{self, Canned, Process, Tally};
use tokio::{
    runtime,
    task::JoinSet,
    time::{Instant, sleep},
};

use self::cost::{Figures, Result, STREAM, clients, cpu_time};

#[expect(dead_code, reason = "only the other benches print the table of records")]
mod cost;

/// Iterators that the bare loop fetches at the same time.
const CALLS_AT_ONCE: usize = 64;

/// The pause between the start and a window, so that the reads spread out.
const SETTLING: Duration = Duration::from_secs(3);

#[derive(Clone, Parser)]
struct Options {
    #[arg(long, default_value_t = 1000)]
    shards: usize,
    /// How many rounds to measure.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds that the service takes for each response while subscriptions start.
    #[arg(long, num_args = 1.., default_values_t = [0, 10, 50])]
    latency_millis: Vec<u64>,
    /// The poll intervals of idle shards.
    #[arg(long, num_args = 1.., default_values_t = [1000, 200])]
    poll_millis: Vec<u64>,
    /// The length of a window.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// The threads of the runtime.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Measures only waiting in this way, without subscribing first.
    #[arg(long)]
    only: Option<Way>,
    /// `cargo bench` passes this. Without it, one small round only checks that the bench works.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A way to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    Bare,
    Library,
}

fn main() -> Result<()> {
    canned::serve_if_spawned();
    let mut options = Options::parse();
    if !options.bench {
        options =
            Options { shards: 20, rounds: 1, latency_millis: vec![1], poll_millis: vec![200], seconds: 1, ..options };
    }
    let runtime = runtime::Builder::new_multi_thread().worker_threads(options.threads).enable_all().build()?;
    runtime.block_on(async {
        if options.only.is_none() {
            println!("\nsubscribe, {} shards:", options.shards);
            println!("  latency, ms    wall, ms         CPU, ms   ListShards   GetShardIterator   at once");
            println!("             least  median   least  median");
            for millis in options.latency_millis.clone() {
                start_all(&options, Duration::from_millis(millis)).await?;
            }
        }
        println!("\nidle, {} shards:", options.shards);
        println!("                   CPU, ms a second   reads a second      CPU a read, us    to the bare loop's");
        println!("  every, ms          least   median   median           least   median      least   median");
        for millis in options.poll_millis.clone() {
            wait(&options, Duration::from_millis(millis)).await?;
        }
        Ok(())
    })
}

/// The endpoint and both clients.
struct Setup {
    shards: usize,
    process: Process,
    client: Client,
    broker: ConnectedKinesisBroker,
}

impl Setup {
    async fn start(shards: usize, latency: Duration) -> Result<Self> {
        let empty = Canned { shards, records_per_page: 0, record_bytes: 0, latency, ..Canned::default() };
        let process = empty.spawn()?;
        let (client, broker) = clients(process.endpoint()).await?;
        Ok(Self { shards, process, client, broker })
    }

    async fn wait(&mut self, way: Way, poll: Duration, length: Duration) -> Result<Window> {
        match way {
            Way::Bare => {
                let mut tasks = read_all(self, poll).await?;
                let window = Window::pass(&mut self.process, length).await?;
                tasks.shutdown().await;
                Ok(window)
            }
            Way::Library => {
                let subscription = self.broker.subscribe(KinesisStream::new(STREAM).poll_interval(poll)).await?;
                let window = Window::pass(&mut self.process, length).await?;
                subscription.close().await;
                Ok(window)
            }
        }
    }
}

/// The cost of starting a subscription.
struct Start {
    wall: Duration,
    cpu: Duration,
    before: Tally,
    after: Tally,
}

/// Subscribes in every round, and prints the costs.
async fn start_all(options: &Options, latency: Duration) -> Result<()> {
    let mut setup = Setup::start(options.shards, latency).await?;
    let poll = Duration::from_millis(options.poll_millis.iter().copied().max().unwrap_or(1000));
    let mut starts = Vec::new();
    for _ in 0..options.rounds {
        let before = setup.process.tally()?;
        let (began, spent) = (Instant::now(), cpu_time()?);
        let subscription = setup.broker.subscribe(KinesisStream::new(STREAM).poll_interval(poll)).await?;
        let (wall, cpu) = (began.elapsed(), cpu_time()?.saturating_sub(spent));
        starts.push(Start { wall, cpu, before, after: setup.process.tally()? });
        subscription.close().await;
    }
    let wall = Figures::lowest(starts.iter().map(|start| millis(start.wall)));
    let cpu = Figures::lowest(starts.iter().map(|start| millis(start.cpu)));
    let most = |count: fn(&Start) -> usize| starts.iter().map(count).max().unwrap_or_default();
    let listings = most(|start| start.after.listings - start.before.listings);
    let iterators = most(|start| start.after.iterators - start.before.iterators);
    let at_once = most(|start| start.after.iterators_at_once);
    println!(
        "  {:11}{:6.0} {:7.0} {:7.0} {:7.0} {listings:12} {iterators:18} {at_once:9}",
        latency.as_millis(),
        wall.best,
        wall.median,
        cpu.best,
        cpu.median
    );
    Ok(())
}

/// A period without records.
#[derive(Clone, Copy)]
struct Window {
    wall: Duration,
    cpu: Duration,
    reads: u32,
}

impl Window {
    async fn pass(process: &mut Process, length: Duration) -> Result<Self> {
        sleep(SETTLING).await;
        let (before, began, spent) = (process.tally()?, Instant::now(), cpu_time()?);
        sleep(length).await;
        let (wall, cpu) = (began.elapsed(), cpu_time()?.saturating_sub(spent));
        let reads = u32::try_from(process.tally()?.reads - before.reads)?;
        Ok(Self { wall, cpu, reads })
    }

    fn millis_a_second(&self) -> f64 {
        millis(self.cpu) / self.wall.as_secs_f64()
    }

    fn reads_a_second(&self) -> f64 {
        f64::from(self.reads) / self.wall.as_secs_f64()
    }

    fn micros_a_read(&self) -> f64 {
        millis(self.cpu) * 1e3 / f64::from(self.reads)
    }
}

/// Waits in both ways, in turns, and prints the costs.
async fn wait(options: &Options, poll: Duration) -> Result<()> {
    let mut setup = Setup::start(options.shards, Duration::ZERO).await?;
    let length = Duration::from_secs(options.seconds);
    let ways = options.only.map_or_else(|| vec![Way::Bare, Way::Library], |only| vec![only]);
    let mut windows = vec![Vec::new(); ways.len()];
    for _ in 0..options.rounds {
        for (way, windows) in iter::zip(&ways, &mut windows) {
            windows.push(setup.wait(*way, poll, length).await?);
        }
    }
    for (way, measured) in iter::zip(&ways, &windows) {
        print_row(*way, poll, measured, &windows[0]);
    }
    Ok(())
}

/// A task for each shard, once all have their iterators.
async fn read_all(setup: &Setup, poll: Duration) -> Result<JoinSet<()>> {
    let places = (0..setup.shards).map(|shard| {
        let place = setup.client.get_shard_iterator().stream_name(STREAM).shard_id(format!("shardId-{shard:012}"));
        place.shard_iterator_type(ShardIteratorType::Latest).send()
    });
    let opened: Vec<_> = stream::iter(places).buffer_unordered(CALLS_AT_ONCE).try_collect().await?;
    Ok(opened.into_iter().map(|opened| read_shard(setup.client.clone(), opened.shard_iterator, poll)).collect())
}

async fn read_shard(client: Client, mut next: Option<String>, poll: Duration) {
    while let Some(iterator) = next {
        let page = client.get_records().shard_iterator(iterator).limit(1000).send().await;
        next = page.expect("the endpoint answers").next_shard_iterator;
        sleep(poll).await;
    }
}

fn print_row(way: Way, poll: Duration, windows: &[Window], bare: &[Window]) {
    let cpu = Figures::lowest(windows.iter().map(Window::millis_a_second));
    let reads = Figures::lowest(windows.iter().map(Window::reads_a_second));
    let read = Figures::lowest(windows.iter().map(Window::micros_a_read));
    let of_bare = read.over(&Figures::lowest(bare.iter().map(Window::micros_a_read)));
    let (poll, way) = (poll.as_millis(), format!("{way:?}").to_lowercase());
    print!("  {poll:9} {way:8}{:7.0} {:8.0} {:8.0}", cpu.best, cpu.median, reads.median);
    println!(" {:15.1} {:8.1} {:10.2} {:8.2}", read.best, read.median, of_bare.best, of_bare.median);
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
