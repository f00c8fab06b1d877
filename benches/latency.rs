//! The latency from put to delivery, and the number of reads that it costs.
//!
//! ```sh
//! cargo bench --bench latency                                              # the table
//! cargo bench --bench latency -- --intervals 200 --seconds 20              # one interval
//! ```
//!
//! An emulator in this process has one stream per rate: now and then, 20 records per second and shard, 500 records per
//! second and shard. The bench puts the records at random times. All consumers read the same records at the same time,
//! each with every interval: this library, and a bare loop over the SDK. The bare loop reads again at once after a page
//! with records, and sleeps for the interval after an empty page. GetRecords answers after 10 ms, about like the
//! service.
//!
//! How to read it: a latency starts just before the put, and ends when the consumer has the record. The reads are those
//! of one consumer on one shard per second; all consumers of a shard share five. The bare loop has no limit: where it
//! makes more reads than that, the service would throttle it.

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

/// For each rate: the average number of records per shard and second, the number of shards, and the label.
const RATES: [(f64, u32, &str); 3] = [(0.4, 8, "now and then"), (20.0, 2, "20 a second"), (500.0, 1, "500 a second")];

/// How often to check that every record was read, and how long to wait for that after the last put.
const GLANCE: Duration = Duration::from_millis(10);
const PATIENCE: Duration = Duration::from_mins(1);

#[derive(Clone, Parser)]
struct Options {
    /// How long to put records
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// The intervals at which consumers poll, in milliseconds
    #[arg(long, num_args = 1.., default_values_t = [1000, 200])]
    intervals: Vec<u64>,
    /// How long GetRecords takes, in milliseconds
    #[arg(long, default_value_t = 10)]
    call: u64,
    /// `cargo bench` passes this. Without it, a short run only checks that the bench works.
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

/// Puts at this rate, lets every consumer read, and returns a row for each consumer.
async fn compare(
    emulator: &Emulator,
    options: &Options,
    (rate, shards, name): (f64, u32, &str),
) -> Result<Vec<String>> {
    let stream = name.replace(' ', "-");
    emulator.create_stream(&stream, shards).await;
    let setup =
        Arc::new(Setup { emulator: emulator.clone(), stream, start: Instant::now(), over: CancellationToken::new() });
    let mut consumers = Vec::new();
    for millis in &options.intervals {
        let interval = Duration::from_millis(*millis);
        let (here, there) = (Count::default(), Count::default());
        consumers.push((
            millis,
            "this library",
            Arc::clone(&setup).library(interval, Count::clone(&here)).await?,
            here,
        ));
        consumers.push((millis, "bare loop", Arc::clone(&setup).bare(interval, Count::clone(&there)).await?, there));
    }
    let began = Instant::now();
    let put = setup.put_all(rate, Duration::from_secs_f64(options.seconds)).await?;
    let all_are_read = async {
        while consumers.iter().any(|(.., count)| count.load(Ordering::Relaxed) < put) {
            sleep(GLANCE).await;
        }
    };
    // The check below names a consumer that missed records.
    drop(timeout(PATIENCE, all_are_read).await);
    setup.over.cancel();
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

/// A stream, and the start of the clock.
struct Setup {
    emulator: Emulator,
    stream: String,
    start: Instant,
    /// Cancelled once every record was put and read.
    over: CancellationToken,
}

/// How many records a consumer has read so far.
type Count = Arc<AtomicUsize>;

/// The measurements of a consumer.
#[derive(Debug, Default)]
struct Seen {
    count: Count,
    latencies: Vec<Duration>,
    reads: u64,
}

type Consumer = JoinHandle<Result<Seen>>;

impl Setup {
    /// Puts into every shard for this time. Returns the number of records.
    async fn put_all(&self, rate: f64, time: Duration) -> Result<usize> {
        let shards = self.emulator.shards(&self.stream).await;
        let puts = shards.iter().map(|shard| self.put(shard.hash_keys.0, rate, time));
        Ok(try_join_all(puts).await?.into_iter().sum())
    }

    /// Puts at random times. Each record holds the time of its put.
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

    /// The latency of a record.
    fn latency(&self, data: &[u8]) -> Result<Duration> {
        let put = Duration::from_nanos(u64::from_be_bytes(data.try_into()?));
        Ok(self.start.elapsed().saturating_sub(put))
    }

    /// A subscription, read by a separate task.
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
    setup: Arc<Setup>,
    client: Client,
    mut next: Option<String>,
    interval: Duration,
    mut seen: Seen,
) -> Result<Seen> {
    while let Some(iterator) = next {
        let page = client.get_records().shard_iterator(iterator).send().await?;
        seen.reads += 1;
        for record in &page.records {
            seen.push(setup.latency(record.data.as_ref())?);
        }
        let pause = if page.records.is_empty() { interval } else { Duration::ZERO };
        next = page.next_shard_iterator;
        if setup.over.is_cancelled() || setup.over.run_until_cancelled(sleep(pause)).await.is_none() {
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

    /// Formats the latencies, and the reads per second and shard.
    fn figures(mut self, time: f64) -> String {
        self.latencies.sort_unstable();
        let last = self.latencies.len().saturating_sub(1);
        let at = |percent: usize| self.latencies.get(last * percent / 100).copied().unwrap_or_default().as_millis();
        let reads = f64::from(u32::try_from(self.reads).unwrap_or(u32::MAX)) / time;
        format!("{:6} {:6} {:6} {:6} {reads:12.1}", at(50), at(90), at(99), at(100))
    }
}

/// A random pause in seconds until the next record, for this average rate.
fn pause(rate: f64) -> f64 {
    // Each `RandomState` has different keys, so this is a random number.
    let chance = u32::try_from(RandomState::new().hash_one(()) >> 32).unwrap_or_default();
    -((f64::from(chance) + 1.0) / (f64::from(u32::MAX) + 1.0)).ln() / rate
}
