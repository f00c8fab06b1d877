//! Looks up something for each record, for up to 32 records at once, and keeps the order of each partition key. Retries
//! failed records, and sends those that keep failing to a dead-letter stream.
//!
//! `cargo run --example enrich` needs no AWS account. It publishes 1,707 earthquakes to an emulator; the key is a
//! square of the map, and some of the records are truncated. A slow service that sometimes fails enriches each record.
//! After a failure the program gives the record back: later records of its key wait for the redelivery, and other keys
//! continue. A record that can never be enriched becomes a dead letter, and its key continues. At the end the program
//! checks that every record was enriched exactly once, in the order of its key, or is a dead letter.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    error::Error,
    io,
    pin::pin,
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use kinesis_stream::{DeadLetter, SequenceNumber, ShardId, StatsHandle, prelude::*};
use kinesis_stream_support::{Emulator, chain};
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};
use tracing_subscriber::EnvFilter;

mod producer;
mod service;

use self::service::Service;

/// Enrich a stream of earthquakes, many at once, in the order of each key.
///
/// Without `--stream` and `--endpoint`, an emulator in this process has the streams.
#[derive(Debug, Parser)]
struct Options {
    /// How many records to enrich at once
    #[arg(long, value_name = "N", default_value_t = 32)]
    at_once: usize,
    /// The name of an existing stream. It receives the earthquakes; other records that arrive are enriched, too
    #[arg(long, value_name = "NAME", requires = "dead_letter")]
    stream: Option<String>,
    /// The name of an existing stream for dead letters
    #[arg(long, value_name = "NAME", requires = "stream")]
    dead_letter: Option<String>,
    /// The endpoint, if not that of AWS; a plain http:// endpoint gets test credentials
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
}

/// An error that ends the program.
type Failure = Box<dyn Error + Send + Sync>;

/// Identifies a record.
type Place = (ShardId, SequenceNumber);

/// The records of each key, in order.
type ByKey = BTreeMap<String, Vec<Place>>;

/// The longest time that a run may take, also on AWS.
const PATIENCE: Duration = Duration::from_mins(3);

/// How often a record is delivered at most.
const ATTEMPTS: u32 = 4;

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    // Without a timeout, a lost record would block the program without end.
    match timeout(PATIENCE, run(Options::parse())).await.unwrap_or_else(|late| Err(late.into())) {
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
    let dead_letter = options.dead_letter.as_deref().unwrap_or("earthquakes-dead");
    if let Some(emulator) = &emulator {
        emulator.create_stream(name, 4).await;
        emulator.create_stream(dead_letter, 1).await;
    }
    let endpoint = emulator.as_ref().map(|emulator| emulator.endpoint()).or(options.endpoint);
    let broker = broker(endpoint).consumer("enrich").connect().await?;

    let quakes = KinesisStream::new(name)
        .retry_backoff(Duration::from_millis(200)..=Duration::from_secs(2))
        .max_attempts(ATTEMPTS)
        .dead_letter(dead_letter);
    // The subscription reads every record that is published after `subscribe` returned.
    let quakes = broker.subscribe(quakes).await?;
    let (closer, stats) = (quakes.closer(), quakes.stats_handle());
    let published = producer::publish(&broker.publisher(), name).await?;

    let (service, table) = (Service::default(), Table::default());
    let mut results =
        pin!(quakes.tolerant().buffer_by_key(options.at_once, async |quake| enrich(quake, &service, &table).await));
    let mut open = published.places();
    let mut given_back = 0;
    while !open.is_empty()
        && let Some(result) = results.try_next().await?
    {
        match result {
            Enriched::Done(place) | Enriched::GivenUp(place) => drop(open.remove(&place)),
            Enriched::GivenBack => given_back += 1,
        }
    }
    dead_letters_are_written(&stats, published.truncated.len()).await;
    let report = closer.close().await;

    let letters = KinesisStream::new(dead_letter).initial_position(KinesisPosition::horizon()).stop_at_tip();
    let dead = read_dead_letters(broker.subscribe(letters).await?).await?;
    broker.shutdown().await;

    let rows = table.lock().await;
    let towns: HashSet<&str> = rows.iter().map(|row| row.nearest_town.as_str()).collect();
    println!("{} records published, with {} keys", published.places().len(), published.by_key.len());
    println!("{} rows, near {} towns, up to {} enriched at once", rows.len(), towns.len(), service.most());
    println!("{given_back} given back for a retry, {} dead letters", dead.len());
    if !report.is_clean() {
        return Err(format!("closing left something behind: {report:?}").into());
    }
    published.check(&rows, &dead)?;
    println!("every record was enriched exactly once, in the order of its key, or is a dead letter");
    Ok(())
}

/// The result for a record.
enum Enriched {
    Done(Place),
    GivenBack,
    /// Given back for the last time.
    GivenUp(Place),
}

/// Stands for a table of enriched events.
type Table = Mutex<Vec<Row>>;

/// An enriched event.
#[derive(Debug)]
struct Row {
    key: String,
    place: Place,
    /// The result of the lookup.
    nearest_town: String,
}

/// Enriches one record. `buffer_by_key` starts the next record of its key once this one is settled or spent.
async fn enrich(quake: Delivery, service: &Service, table: &Table) -> Result<Enriched, KinesisError> {
    let place = (quake.shard().clone(), quake.sequence_number().clone());
    match service.nearest_town(quake.payload(), quake.attempt()).await {
        Ok(nearest_town) => {
            let key = quake.partition_key().unwrap_or_default().to_owned();
            table.lock().await.push(Row { key, place: place.clone(), nearest_town });
            quake.commit().await?;
            Ok(Enriched::Done(place))
        }
        Err(failure) => {
            let is_last = quake.attempt() >= ATTEMPTS;
            // After the last attempt, the dead letter states this reason.
            quake.nack_because(failure);
            Ok(if is_last { Enriched::GivenUp(place) } else { Enriched::GivenBack })
        }
    }
}

/// Waits until the library has written `expected` dead letters. It does so in the background.
async fn dead_letters_are_written(stats: &StatsHandle, expected: usize) {
    let written = || stats.snapshot().shards.iter().map(|shard| shard.dead_letters).sum::<u64>();
    while written() < expected as u64 {
        sleep(Duration::from_millis(20)).await;
    }
}

/// Reads all dead letters: the original records, and why they failed.
async fn read_dead_letters(letters: Subscription) -> Result<HashMap<Place, String>, KinesisError> {
    let read = async |delivery: Delivery| {
        let letter = DeadLetter::try_from(&delivery)?;
        let (record, reason) = (letter.record(), letter.reason().to_owned());
        delivery.ack();
        Ok(((record.shard().clone(), record.sequence_number().clone()), reason))
    };
    letters.tolerant().and_then(read).try_collect().await
}

/// Region and credentials come from the environment and the profile, except for a local endpoint.
fn broker(endpoint: Option<String>) -> KinesisBroker {
    match endpoint {
        Some(url) if url.starts_with("http://") => KinesisBroker::new().endpoint(url).test_credentials(),
        Some(url) => KinesisBroker::new().endpoint(url),
        None => KinesisBroker::new(),
    }
}
