//! A soak test: reads and settles records for a long time, and measures the memory of the process.
//!
//! `cargo run --example soak` takes 20 seconds. The intended use is `cargo run --release --example soak -- --minutes 30
//! --picture soak.svg`. The Kinesis emulator runs in another process, so the measured memory is that of the consumer,
//! and of the producer, which keeps one byte per record. Records arrive at a steady rate. The consumer repeats four
//! phases: steady; disorder, with records given back and dropped; slow; catching up. Meanwhile the program splits and
//! merges shards.
//!
//! The program fails unless every record was settled. It prints the memory over time, and whether it grew between the
//! first and the last third of the run.

use std::{error::Error, io, path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use clap::Parser;
use kinesis_stream::prelude::*;
use kinesis_stream_support::{Harness, chain};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use self::{memory::MemorySampler, phase::Phase, server::Server, tracker::RecordTracker, traffic::Soak};

mod memory;
mod phase;
mod picture;
mod server;
mod tracker;
mod traffic;

const STREAM: &str = "soak";

/// How long the consumer may take to settle the rest once nothing new arrives.
const PATIENCE: Duration = Duration::from_mins(2);

/// Read a stream for a long time, and see whether memory grows.
#[derive(Debug, Parser)]
struct Options {
    /// How long to put records
    #[arg(long, value_name = "MINUTES", default_value_t = 1.0 / 3.0)]
    minutes: f64,
    /// How many records of 1 KiB to put in a second, in steps of 20
    #[arg(long, value_name = "RECORDS", default_value_t = 200)]
    rate: u32,
    /// The initial number of shards
    #[arg(long, value_name = "SHARDS", default_value_t = 4)]
    shards: u32,
    /// Neither split nor merge shards, because each shard that ever existed takes a little memory
    #[arg(long)]
    keep_shards: bool,
    /// Draw the memory over time to this SVG file
    #[arg(long, value_name = "PATH")]
    picture: Option<PathBuf>,
    /// Run the emulator, as the child process
    #[arg(long, hide = true)]
    serve: bool,
}

/// An error that ends the program.
type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("error"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    let options = Options::parse();
    let done = if options.serve { server::serve().map_err(Failure::from) } else { run(&options).await };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {}", chain(&*failure));
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<(), Failure> {
    let length = Duration::try_from_secs_f64(options.minutes * 60.0)?;
    let server = Server::start()?;
    let harness = Harness::at(server.endpoint());
    harness.create_stream(STREAM, options.shards).await;
    let broker = KinesisBroker::new().endpoint(server.endpoint()).test_credentials().connect().await?;
    let stream = KinesisStream::new(STREAM).initial_position(KinesisPosition::horizon());
    let subscription = broker.subscribe(stream).await?;
    let (stats, closer) = (subscription.stats_handle(), subscription.closer());

    let end = Instant::now() + length;
    let soak = Arc::new(Soak::new(options.rate, length));
    let consumer = tokio::spawn(consume(subscription, Arc::clone(&soak)));
    let enough = CancellationToken::new();
    let sampling = tokio::spawn(MemorySampler::start(stats, soak.clock.clone(), length).run(enough.clone()));
    let until = if options.keep_shards { Instant::now() } else { end };
    let resharding = tokio::spawn(traffic::reshard(harness, soak.clock.clone(), until));
    traffic::produce(&broker.publisher(), &soak, end).await?;

    resharding.await?;
    let caught_up = timeout(PATIENCE, soak.all_settled()).await.is_ok();
    enough.cancel();
    let sampler = sampling.await?;
    let report = closer.close().await;
    consumer.await??;
    broker.shutdown().await;

    sampler.print();
    println!("{}", soak.tracker());
    if let Some(path) = &options.picture {
        picture::draw(path, sampler.samples())?;
    }
    if !caught_up || !report.is_clean() {
        return Err(format!("records were lost, or are still open: {report:?}").into());
    }
    println!("{}", sampler.growth());
    Ok(())
}

/// Consumes 64 records at a time, until the subscription is closed.
async fn consume(subscription: Subscription, soak: Arc<Soak>) -> Result<(), KinesisError> {
    subscription.tolerant().try_for_each_concurrent(64, |delivery| treat(delivery, &soak)).await
}

/// Handles a record as the current phase demands.
async fn treat(delivery: Delivery, soak: &Soak) -> Result<(), KinesisError> {
    let number = RecordTracker::number(delivery.payload());
    let chance = number.unwrap_or_default().wrapping_mul(2_654_435_761) % 100;
    match soak.clock.phase() {
        Phase::Steady | Phase::CatchingUp => delivery.ack(),
        Phase::Slow => {
            sleep(Duration::from_millis(600)).await;
            delivery.ack();
        }
        Phase::Disorder => {
            sleep(Duration::from_millis(chance as u64)).await;
            match chance {
                _ if delivery.attempt() > 1 => drop(delivery.commit().await?),
                0..6 => {
                    delivery.nack();
                    return Ok(());
                }
                // Dropped, so it is redelivered, too.
                6..9 => return Ok(()),
                9..40 => drop(delivery.commit().await?),
                _ => delivery.ack(),
            }
        }
    }
    soak.tracker().settle(number);
    Ok(())
}
