//! How long a record takes from its put to its delivery, and how many reads that costs.
//!
//! ```sh
//! cargo bench --bench latency                                              # the table
//! cargo bench --bench latency -- --intervals 200 --seconds 20              # one interval
//! ```
//!
//! An emulator in this process has a stream for each rate, into which records are put at random moments: now and then, 20 a
//! second and shard, 500 a second and shard. All consumers read the same records at the same time: this library, and a bare
//! loop over the SDK that reads on at once after records and sleeps for the interval after none, each with every interval.
//! GetRecords answers after 10 ms, about as the service does.
//!
//! How to read it: a latency begins just before the record is put, and ends when the consumer has it. The reads are those of
//! one consumer on one shard in a second; all consumers of a shard share five. The bare loop keeps no limit, so where its
//! reads are more than that, the service would throttle it.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use aws_sdk_kinesis::{Client, primitives::Blob, types::ShardIteratorType};
use clap::Parser;
use futures::future::try_join_all;
use kinesis_stream::prelude::*;
use kinesis_stream_support::{Emulator, Op};
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep, sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Result<T, E = Failure> = std::result::Result<T, E>;

/// Records of each shard in a second on average, the shards, and what that is called.
const RATES: [(f64, u32, &str); 3] = [(0.4, 8, "now and then"), (20.0, 2, "20 a second"), (500.0, 1, "500 a second")];

/// How often to look whether all was read, and for how long at most once all was put.
const GLANCE: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Clone, Parser)]
struct Options {
    /// How long records are put
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// The intervals at which consumers poll, in milliseconds
    #[arg(long, num_args = 1.., default_values_t = [1000, 200])]
    intervals: Vec<u64>,
    /// How long GetRecords takes, in milliseconds
    #[arg(long, default_value_t = 10)]
    call: u64,
    /// Given by `cargo bench`. Without it, a short run shows that the bench still works.
    #[arg(long, hide = true)]
    bench: bool,
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut options = Options::parse();
    if !options.bench {
        options = Options { seconds: 1.0, intervals: vec![50], ..options };
    }
    let emulator = Emulator::start();
    emulator.faults().on(Op::GetRecords).delay(Duration::from_millis(options.call));
    println!("\nGetRecords answers after {} ms; {} s of records\n", options.call, options.seconds);
    println!("                                        put to delivered, ms      reads a second");
    println!("records of a shard  poll, ms            p50    p90    p99    max    and shard");
    let rates = RATES.map(|rate| compare(&emulator, &options, rate));
    for row in try_join_all(rates).await?.concat() {
        println!("{row}");
    }
    Ok(())
}

/// Puts at this rate, lets every consumer read that, and writes a row for each.
async fn compare(
    emulator: &Emulator,
    options: &Options,
    (rate, shards, name): (f64, u32, &str),
) -> Result<Vec<String>> {
    let stream = name.replace(' ', "-");
    emulator.create_stream(&stream, shards).await;
    let ground =
        Arc::new(Ground { emulator: emulator.clone(), stream, start: Instant::now(), over: CancellationToken::new() });
    let mut consumers = Vec::new();
    for millis in &options.intervals {
        let interval = Duration::from_millis(*millis);
        let (here, there) = (Count::default(), Count::default());
        consumers.push((
            millis,
            "this library",
            Arc::clone(&ground).library(interval, Count::clone(&here)).await?,
            here,
        ));
        consumers.push((millis, "bare loop", Arc::clone(&ground).bare(interval, Count::clone(&there)).await?, there));
    }
    let began = Instant::now();
    let put = ground.put_all(rate, Duration::from_secs_f64(options.seconds)).await?;
    let all_are_read = async {
        while consumers.iter().any(|(.., count)| count.load(Ordering::Relaxed) < put) {
            sleep(GLANCE).await;
        }
    };
    // Whoever lacks some then is named below.
    drop(timeout(PATIENCE, all_are_read).await);
    ground.over.cancel();
    let time = began.elapsed().as_secs_f64() * f64::from(shards);
    let mut rows = Vec::new();
    for (millis, way, consumer, _) in consumers {
        let seen = consumer.await??;
        if seen.latencies.len() != put {
            return Err(format!("{put} records were put, {way} at {millis} ms read {}", seen.latencies.len()).into());
        }
        rows.push(format!("{name:14} {millis:13}  {way:12} {}", seen.figures(time)));
    }
    Ok(rows)
}

/// A stream, and the moment from which times are counted.
struct Ground {
    emulator: Emulator,
    stream: String,
    start: Instant,
    /// Everything was put and read.
    over: CancellationToken,
}

/// How many records a consumer saw so far.
type Count = Arc<AtomicUsize>;

/// What a consumer saw.
#[derive(Debug, Default)]
struct Seen {
    count: Count,
    latencies: Vec<Duration>,
    reads: u64,
}

type Consumer = JoinHandle<Result<Seen>>;

impl Ground {
    /// Puts into every shard for so long, and says how many records that were.
    async fn put_all(&self, rate: f64, time: Duration) -> Result<usize> {
        let shards = self.emulator.shards(&self.stream).await;
        let puts = shards.iter().map(|shard| self.put(shard.hash_keys.0, rate, time));
        Ok(try_join_all(puts).await?.into_iter().sum())
    }

    /// Puts at random moments. Each record says when that was.
    async fn put(&self, hash_key: u128, rate: f64, time: Duration) -> Result<usize> {
        let client = self.emulator.client();
        let (mut at, end) = (Instant::now(), Instant::now() + time);
        for put in 0.. {
            at += Duration::from_secs_f64(pause(rate));
            if at > end {
                return Ok(put);
            }
            sleep_until(at).await;
            let now = u64::try_from(self.start.elapsed().as_nanos())?;
            let record = client.put_record().stream_name(&self.stream).partition_key("key");
            record.explicit_hash_key(hash_key.to_string()).data(Blob::new(now.to_be_bytes())).send().await?;
        }
        Ok(0)
    }

    /// How long it took a record to get here.
    fn latency(&self, data: &[u8]) -> Result<Duration> {
        let put = Duration::from_nanos(u64::from_be_bytes(data.try_into()?));
        Ok(self.start.elapsed().saturating_sub(put))
    }

    /// A subscription, read by a task of its own.
    async fn library(self: Arc<Self>, interval: Duration, count: Count) -> Result<Consumer> {
        let broker = KinesisBroker::new().endpoint(self.emulator.endpoint()).test_credentials().connect().await?;
        let subscription = broker.subscribe(KinesisStream::new(&self.stream).poll_interval(interval)).await?;
        Ok(tokio::spawn(async move {
            let stats = subscription.stats_handle();
            let mut records = subscription.tolerant();
            let mut seen = Seen { count, ..Seen::default() };
            while let Some(Some(record)) = self.over.run_until_cancelled(records.next()).await {
                let record = record?;
                seen.push(self.latency(record.payload())?);
                record.ack();
            }
            seen.reads = stats.snapshot().shards.iter().map(|shard| shard.reads).sum();
            drop(broker);
            Ok(seen)
        }))
    }

    /// A bare loop for each shard.
    async fn bare(self: Arc<Self>, interval: Duration, count: Count) -> Result<Consumer> {
        let mut loops = Vec::new();
        for shard in self.emulator.shards(&self.stream).await {
            let client = self.emulator.client();
            let place = client.get_shard_iterator().stream_name(&self.stream).shard_id(shard.id);
            let placed = place.shard_iterator_type(ShardIteratorType::Latest).send().await?.shard_iterator;
            let seen = Seen { count: Arc::clone(&count), ..Seen::default() };
            loops.push(read_shard(Arc::clone(&self), client, placed, interval, seen));
        }
        Ok(tokio::spawn(async move {
            let mut seen = Seen::default();
            for of_shard in try_join_all(loops).await? {
                seen.latencies.extend(of_shard.latencies);
                seen.reads += of_shard.reads;
            }
            Ok(seen)
        }))
    }
}

async fn read_shard(
    ground: Arc<Ground>,
    client: Client,
    mut next: Option<String>,
    interval: Duration,
    mut seen: Seen,
) -> Result<Seen> {
    while let Some(iterator) = next {
        let page = client.get_records().shard_iterator(iterator).send().await?;
        seen.reads += 1;
        for record in &page.records {
            seen.push(ground.latency(record.data.as_ref())?);
        }
        let pause = if page.records.is_empty() { interval } else { Duration::ZERO };
        next = page.next_shard_iterator;
        if ground.over.is_cancelled() || ground.over.run_until_cancelled(sleep(pause)).await.is_none() {
            break;
        }
    }
    Ok(seen)
}

impl Seen {
    fn push(&mut self, latency: Duration) {
        self.latencies.push(latency);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Latencies, and reads in so many seconds of shards.
    fn figures(mut self, time: f64) -> String {
        self.latencies.sort_unstable();
        let last = self.latencies.len().saturating_sub(1);
        let at = |percent: usize| self.latencies.get(last * percent / 100).copied().unwrap_or_default().as_millis();
        let reads = f64::from(u32::try_from(self.reads).unwrap_or(u32::MAX)) / time;
        format!("{:6} {:6} {:6} {:6} {reads:12.1}", at(50), at(90), at(99), at(100))
    }
}

/// Seconds to the next of records that come at random, at this rate.
fn pause(rate: f64) -> f64 {
    // Each has keys of its own, so this is a number by chance.
    let chance = u32::try_from(RandomState::new().hash_one(()) >> 32).unwrap_or_default();
    -((f64::from(chance) + 1.0) / (f64::from(u32::MAX) + 1.0)).ln() / rate
}
