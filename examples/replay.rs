//! Rewinds a consumer that has read everything to a time in the past, and reads up to the tip again.
//!
//! `cargo run --example replay` needs no AWS account. It publishes earthquakes to an emulator, in two phases a few
//! seconds apart, consumes all of them, seeks to a time between the phases, and reads up to the tip. A bar shows the
//! progress. At the end the program checks that it read exactly the second phase again.

use std::{
    collections::{HashMap, HashSet},
    error::Error,
    io,
    process::ExitCode,
    time::{Duration, SystemTime},
};

use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use kinesis_stream::{Publisher, SequenceNumber, ShardId, prelude::*};
use kinesis_stream_support::{Emulator, chain, earthquakes};
use tokio::time::sleep;
use tracing_subscriber::EnvFilter;

/// Consume a stream of earthquakes, rewind, and consume the second half again.
///
/// Without `--stream` and `--endpoint`, an emulator in this process has the stream.
#[derive(Debug, Parser)]
struct Options {
    /// The seconds between the two phases
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    pause: u64,
    /// The name of an existing stream. It receives the earthquakes; records of other programs are read, too
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// The endpoint, if not that of AWS; a plain http:// endpoint gets test credentials
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
}

/// An error that ends the program.
type Failure = Box<dyn Error + Send + Sync>;

/// Identifies a record.
type Place = (ShardId, SequenceNumber);

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {}", chain(&*failure));
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), Failure> {
    let emulator = (options.stream.is_none() && options.endpoint.is_none()).then(Emulator::start);
    let name = options.stream.as_deref().unwrap_or("earthquakes");
    if let Some(emulator) = &emulator {
        emulator.create_stream(name, 4).await;
    }
    let endpoint = emulator.as_ref().map(|emulator| emulator.endpoint()).or(options.endpoint);
    let broker = broker(endpoint).consumer("replay").connect().await?;

    let half = earthquakes::by_network().count() / 2;
    let first = publish(&broker.publisher(), name, earthquakes::by_network().take(half)).await?;
    sleep(Duration::from_secs(options.pause)).await;
    let second = publish(&broker.publisher(), name, earthquakes::by_network().skip(half)).await?;

    // `stop_at_tip` ends a subscription once it has read everything.
    let quakes = KinesisStream::new(name).initial_position(KinesisPosition::horizon()).stop_at_tip();
    let all = read_to_tip(broker.subscribe(quakes.clone()).await?, first.len() + second.len()).await?;
    println!("{} + {} records published, {} consumed", first.len(), second.len(), all.len());

    // The checkpoints of this consumer are at the tip, so it would read nothing. `seek` moves it back.
    let between = between(&all, &first, &second).ok_or("the service did not say when the records arrived")?;
    let quakes = broker.subscribe(quakes).await?;
    quakes.seeker().seek(KinesisPosition::timestamp(between.as_millisecond())).await?;
    let again = read_to_tip(quakes, second.len()).await?;
    println!("{} read again after a seek to {between:.3}", again.len());
    broker.shutdown().await;

    // Ignore records of other programs.
    let ours = |read: &Read, phase: &HashSet<Place>| phase.iter().filter(|place| read.contains_key(*place)).count();
    if ours(&all, &first) != first.len() || ours(&all, &second) != second.len() {
        return Err("the first pass did not read every record".into());
    }
    if ours(&again, &first) != 0 || ours(&again, &second) != second.len() {
        return Err("the records after the seek are not exactly the second phase".into());
    }
    println!("the consumer read exactly the second phase again");
    Ok(())
}

/// The records that were read, and their arrival times.
type Read = HashMap<Place, Option<SystemTime>>;

/// Consumes up to the tip, and shows the progress. `expected` is the number of records.
async fn read_to_tip(quakes: Subscription, expected: usize) -> Result<Read, Failure> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}")?;
    let bar = ProgressBar::new(u64::try_from(expected)?).with_style(style);
    let stats = quakes.stats_handle();
    let mut read = Read::new();
    let mut quakes = quakes.tolerant();
    while let Some(quake) = quakes.try_next().await? {
        if read.len().is_multiple_of(100) {
            // How far the slowest shard is behind its tip. Show this where the number of records is unknown.
            let behind = stats.snapshot().shards.into_iter().filter_map(|shard| shard.behind).max();
            bar.set_message(format!("{:.1} s behind", behind.unwrap_or_default().as_secs_f64()));
        }
        bar.inc(1);
        if read.insert(place(&quake), quake.arrived_at()).is_some() {
            return Err(format!("{} was delivered twice", quake.sequence_number()).into());
        }
        quake.ack();
    }
    bar.abandon();
    Ok(read)
}

/// A time between the phases, by the clock of the service, which may differ from the local one.
fn between(all: &Read, first: &HashSet<Place>, second: &HashSet<Place>) -> Option<Timestamp> {
    let arrived = |place: &Place| all.get(place).copied().flatten();
    let last = first.iter().filter_map(arrived).max()?;
    let next = second.iter().filter_map(arrived).min()?;
    let middle = last + next.duration_since(last).ok()? / 2;
    middle.try_into().ok()
}

fn place(delivery: &Delivery) -> Place {
    (delivery.shard().clone(), delivery.sequence_number().clone())
}

/// Publishes these events, with their seismic network as the key. Returns the identity of each record.
async fn publish(
    publisher: &Publisher,
    stream: &str,
    events: impl Iterator<Item = (&str, &'static str)>,
) -> Result<HashSet<Place>, KinesisError> {
    let mut places = HashSet::new();
    for (network, event) in events {
        let stored = publisher.publish(stream, Outgoing::new(network, event)).await?;
        places.insert((stored.shard().clone(), stored.sequence_number().clone()));
    }
    Ok(places)
}

/// Region and credentials come from the environment and the profile, except for a local endpoint.
fn broker(endpoint: Option<String>) -> KinesisBroker {
    match endpoint {
        Some(url) if url.starts_with("http://") => KinesisBroker::new().endpoint(url).test_credentials(),
        Some(url) => KinesisBroker::new().endpoint(url),
        None => KinesisBroker::new(),
    }
}
