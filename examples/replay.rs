//! Rewinds a consumer that has read everything, and reads again what arrived since a moment in between.
//!
//! `cargo run --example replay` needs no AWS account: it publishes earthquakes into a stream of an emulator, in two phases
//! some seconds apart, consumes all of them, seeks to a time between the phases, and reads up to the tip. A bar shows how
//! far it is. In the end it is checked that exactly the second phase came again.

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
/// Without `--stream` and `--endpoint` the stream is one of an emulator in this process.
#[derive(Debug, Parser)]
struct Options {
    /// The seconds between the two phases
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    pause: u64,
    /// The name of a stream that exists. Earthquakes are put into it; records of others are read, too
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Another endpoint than that of AWS; at a plain http:// one, requests are signed with test credentials
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
}

/// Whatever ends the program early.
type Failure = Box<dyn Error + Send + Sync>;

/// Which record it is.
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

    // `stop_at_tip` ends a subscription when it has read everything that there is.
    let quakes = KinesisStream::new(name).initial_position(KinesisPosition::horizon()).stop_at_tip();
    let all = read_to_tip(broker.subscribe(quakes.clone()).await?, first.len() + second.len()).await?;
    println!("{} + {} records published, {} consumed", first.len(), second.len(), all.len());

    // By its checkpoints this consumer is at the tip, and would read nothing. `seek` moves it back.
    let between = between(&all, &first, &second).ok_or("the service did not say when the records arrived")?;
    let quakes = broker.subscribe(quakes).await?;
    quakes.seeker().seek(KinesisPosition::timestamp(between.as_millisecond())).await?;
    let again = read_to_tip(quakes, second.len()).await?;
    println!("{} came again after a seek to {between:.3}", again.len());
    broker.shutdown().await;

    // Records of others are left out.
    let ours = |read: &Read, phase: &HashSet<Place>| phase.iter().filter(|place| read.contains_key(*place)).count();
    if ours(&all, &first) != first.len() || ours(&all, &second) != second.len() {
        return Err("not every record was consumed at first".into());
    }
    if ours(&again, &first) != 0 || ours(&again, &second) != second.len() {
        return Err("what came again is not exactly the second phase".into());
    }
    println!("exactly the second phase came again");
    Ok(())
}

/// What was read, and when it had arrived.
type Read = HashMap<Place, Option<SystemTime>>;

/// Consumes what there is, and shows how far it is, out of so many records that are expected.
async fn read_to_tip(quakes: Subscription, expected: usize) -> Result<Read, Failure> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {msg}")?;
    let bar = ProgressBar::new(u64::try_from(expected)?).with_style(style);
    let stats = quakes.stats_handle();
    let mut read = Read::new();
    let mut quakes = quakes.tolerant();
    while let Some(quake) = quakes.try_next().await? {
        if read.len().is_multiple_of(100) {
            // How far the shard that is furthest behind is from its tip: what to show where nobody knows how many there are.
            let behind = stats.snapshot().shards.into_iter().filter_map(|shard| shard.behind).max();
            bar.set_message(format!("{:.1} s behind", behind.unwrap_or_default().as_secs_f64()));
        }
        bar.inc(1);
        if read.insert(place(&quake), quake.arrived_at()).is_some() {
            return Err(format!("{} came twice", quake.sequence_number()).into());
        }
        quake.ack();
    }
    bar.abandon();
    Ok(read)
}

/// The moment between the phases by the clock of the service, which need not be ours.
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

/// Publishes these events, with their seismic network as the key. Says where they are.
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

/// Region and credentials come from the environment and the profile, unless the endpoint is a local one.
fn broker(endpoint: Option<String>) -> KinesisBroker {
    match endpoint {
        Some(url) if url.starts_with("http://") => KinesisBroker::new().endpoint(url).test_credentials(),
        Some(url) => KinesisBroker::new().endpoint(url),
        None => KinesisBroker::new(),
    }
}
