//! The memory that reading needs: the bound, a page during parsing, an unsettled delivery.
//!
//! ```sh
//! cargo bench --bench memory                          # all three
//! cargo bench --bench memory -- --only bound          # one of them
//! ```
//!
//! Each part runs in a separate process, against a canned Kinesis in another process:
//!
//! - **bound**: 1,000 shards with pages of the maximum size. The consumer stops, then takes some hundred pages, then
//!   stops again. The bench compares the held bytes that [`stats`](Subscription::stats) reports with the memory of the
//!   process.
//! - **page**: one shard, one page: how much memory parsing it and then holding it takes.
//! - **delivery**: one shard, 10,000 unsettled deliveries of small records.
//!
//! How to read it: heap is the memory requested from the allocator, counted exactly. The memory of the process is the
//! value that the system reports (Linux only). The allocator may keep freed memory, so the process does not shrink all
//! the way.

use std::{
    env, fs,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use clap::{Parser, ValueEnum};
use kinesis_stream::{Acker, StatsHandle, prelude::*};
use kinesis_stream_support::canned::{self, Canned, Process};
use peak_alloc::PeakAlloc;
use tokio::time::{sleep, timeout};
use tokio_util::task::AbortOnDropHandle;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Result<T, E = Failure> = std::result::Result<T, E>;

#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// The size of a record, and how many of them make the largest page.
const LARGE_RECORD: usize = 64 << 10;
const OF_A_PAGE: usize = 160;

#[derive(Clone, Parser)]
struct Options {
    /// One part alone, in this process
    #[arg(long)]
    only: Option<Part>,
    /// The shards of the bound
    #[arg(long, default_value_t = 1000)]
    shards: usize,
    /// How long the consumer stops, in seconds
    #[arg(long, default_value_t = 20)]
    still: u64,
    /// How many pages it takes after that
    #[arg(long, default_value_t = 300)]
    pages: usize,
    /// How many deliveries are unsettled at once
    #[arg(long, default_value_t = 10_000)]
    deliveries: usize,
    /// `cargo bench` passes this. Without it, a small run only checks that the bench works.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    Bound,
    Page,
    Delivery,
}

#[tokio::main]
async fn main() -> Result<()> {
    canned::serve_if_spawned();
    let mut options = Options::parse();
    if !options.bench {
        options = Options { shards: 8, still: 1, pages: 16, deliveries: 2000, ..options };
    }
    match options.only {
        Some(Part::Bound) => bound(&options).await,
        Some(Part::Page) => page().await,
        Some(Part::Delivery) => delivery(&options).await,
        None => Part::value_variants().iter().try_for_each(|part| spawn(*part)),
    }
}

/// Runs a part in a separate process.
fn spawn(part: Part) -> Result<()> {
    let name = format!("{part:?}").to_lowercase();
    let status = Command::new(env::current_exe()?).args(env::args().skip(1)).args(["--only", &name]).status()?;
    if status.success() { Ok(()) } else { Err(format!("{name}: {status}").into()) }
}

/// The endpoint, and a subscription to its stream.
async fn subscribed(
    canned: Canned,
    set: impl FnOnce(KinesisStream) -> KinesisStream,
) -> Result<(Process, Subscription)> {
    let process = canned.spawn()?;
    let broker = KinesisBroker::new().endpoint(process.endpoint()).test_credentials().connect().await?;
    let stream = KinesisStream::new("bench").start_at(KinesisPosition::horizon());
    let subscription = broker.subscribe(set(stream)).await?;
    Ok((process, subscription))
}

async fn bound(options: &Options) -> Result<()> {
    let shards = options.shards;
    println!("\n{shards} shards, pages of 10 MiB, at most 64 MiB held; MiB now and at most:");
    println!("                                        held, stats()        process           heap");
    let canned = Canned { shards, records_per_page: OF_A_PAGE, record_bytes: LARGE_RECORD, ..Canned::default() };
    let watch = Watch::start(None);
    let (_process, mut subscription) = subscribed(canned, |stream| stream).await?;
    let stats = subscription.stats_handle();
    Watch { stats: Some(stats.clone()), ..watch }.print("subscribed");
    let still = Duration::from_secs(options.still);
    let watch = Watch::start(Some(stats.clone()));
    sleep(still).await;
    watch.print(&format!("nothing taken for {} s", options.still));
    let watch = Watch::start(Some(stats.clone()));
    for _ in 0..options.pages * OF_A_PAGE {
        subscription.next().await.ok_or("the stream has ended")??.ack();
    }
    watch.print(&format!("{} pages taken", options.pages));
    let watch = Watch::start(Some(stats.clone()));
    sleep(still).await;
    watch.print(&format!("nothing taken for {} s", options.still));
    subscription.close().await;
    Watch::start(Some(stats)).print("closed");
    Ok(())
}

/// A shard reads one page ahead, so there is one read.
async fn page() -> Result<()> {
    println!("\na page of 10 MiB; MiB now and at most:");
    println!("                                        held, stats()        process           heap");
    let canned = Canned { records_per_page: OF_A_PAGE, record_bytes: LARGE_RECORD, ..Canned::default() };
    // Opens a connection, and loads the client and everything else that the first page needs.
    let (process, mut subscription) = subscribed(Canned { record_bytes: 1, ..canned }, |stream| stream).await?;
    subscription.next().await.ok_or("the stream has ended")??.ack();
    subscription.close().await;
    drop(process);
    let watch = Watch::start(None);
    sleep(Duration::from_millis(500)).await;
    watch.print("before");
    let watch = Watch::start(None);
    let (_process, subscription) = subscribed(canned, |stream| stream).await?;
    sleep(Duration::from_secs(2)).await;
    let stats = subscription.stats_handle();
    Watch { stats: Some(stats), ..watch }.print("read, parsed and held");
    Ok(())
}

async fn delivery(options: &Options) -> Result<()> {
    let count = options.deliveries;
    println!("\n{count} records of 100 B and a key of 10 B in one shard; bytes of heap for each, beyond these:");
    let row = |what: &str, bytes: f64| println!("{what:40}{bytes:8.0}");
    row("unsettled, deliveries kept", unsettled(count, Keep::All).await?);
    row("nacked, waiting for redelivery", unsettled(count, Keep::Nacked).await?);
    row("settled behind an open one", unsettled(count, Keep::First).await?);
    println!("A Delivery itself has {} B, an Acker {} B.", size_of::<Delivery>(), size_of::<Acker>());
    Ok(())
}

/// How the consumer treats its deliveries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Keep {
    All,
    Nacked,
    First,
}

/// The bytes of heap per delivery, for `count` deliveries.
async fn unsettled(count: usize, keep: Keep) -> Result<f64> {
    let canned = Canned { record_bytes: 100, ..Canned::default() };
    let never = Duration::from_hours(24);
    let set =
        |stream: KinesisStream| stream.reads_per_second(u32::MAX).max_in_flight(2 * count).retry_backoff(never..=never);
    let (_process, mut subscription) = subscribed(canned, set).await?;
    let mut kept = Vec::with_capacity(count);
    for _ in 0..canned.records_per_page {
        subscription.next().await.ok_or("the stream has ended")??.ack();
    }
    // Before and after, memory holds one page just delivered, and one page read ahead.
    let settle = || sleep(Duration::from_millis(500));
    settle().await;
    let before = HEAP.current_usage();
    for _ in 0..count {
        let delivery = timeout(Duration::from_secs(10), subscription.next()).await?.ok_or("the stream has ended")??;
        match keep {
            Keep::All => kept.push(delivery),
            Keep::Nacked => delivery.nack(),
            Keep::First if kept.is_empty() => kept.push(delivery),
            Keep::First => delivery.ack(),
        }
    }
    settle().await;
    let grown = HEAP.current_usage().saturating_sub(before);
    let data = if keep == Keep::First { 0.0 } else { 110.0 };
    drop(kept);
    subscription.close().await;
    Ok(f64::from(u32::try_from(grown)?) / f64::from(u32::try_from(count)?) - data)
}

/// Samples the gauge and the memory until it prints them.
struct Watch {
    stats: Option<StatsHandle>,
    most_held: Arc<AtomicUsize>,
    _looking: Option<AbortOnDropHandle<()>>,
}

impl Watch {
    fn start(stats: Option<StatsHandle>) -> Self {
        HEAP.reset_peak_usage();
        // Resets the peak of the process, if the system supports it.
        drop(fs::write("/proc/self/clear_refs", "5"));
        let most_held = Arc::new(AtomicUsize::new(0));
        let looking = stats.clone().map(|stats| tokio::spawn(look(stats, Arc::clone(&most_held))));
        Self { stats, most_held, _looking: looking.map(AbortOnDropHandle::new) }
    }

    fn print(self, what: &str) {
        let held = self.stats.map_or(0, |stats| stats.snapshot().bytes_held);
        let most = self.most_held.load(Ordering::Relaxed).max(held);
        let process = (mebibytes(status("VmRSS:")), mebibytes(status("VmHWM:")));
        let heap = (mebibytes(HEAP.current_usage()), mebibytes(HEAP.peak_usage()));
        let (held, most) = (mebibytes(held), mebibytes(most));
        println!("{what:34}{held:7.1} {most:7.1}  {:7.1} {:7.1}  {:7.1} {:7.1}", process.0, process.1, heap.0, heap.1);
    }
}

async fn look(stats: StatsHandle, most_held: Arc<AtomicUsize>) {
    loop {
        most_held.fetch_max(stats.snapshot().bytes_held, Ordering::Relaxed);
        sleep(Duration::from_millis(10)).await;
    }
}

/// The memory of this process that the system reports under this name, in bytes.
fn status(name: &str) -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
    line.split_whitespace().next().and_then(|kibibytes| kibibytes.parse().ok()).unwrap_or(0_usize) << 10
}

fn mebibytes(bytes: usize) -> f64 {
    f64::from(u32::try_from(bytes >> 10).unwrap_or(u32::MAX)) / 1024.0
}
