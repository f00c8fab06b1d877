//! Looks something up for each record, for up to 32 at once, and keeps the order of each partition key. What fails comes
//! again, and what keeps failing becomes a dead letter.
//!
//! `cargo run --example enrich` needs no AWS account: 1,707 earthquakes go into a stream of an emulator, with the square of
//! the map in which they were as the key, and some of them are cut off in the middle. Each is enriched by a service that
//! takes its time and fails at times: then the record is given back and comes again, and later ones of its key wait for it,
//! while those of other keys go on. One that cannot be enriched goes to another stream, and its key goes on. In the end it is
//! checked that every record was enriched exactly once, in the order of its key, or is a dead letter.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    error::Error,
    io,
    pin::pin,
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use kinesis_stream::{SequenceNumber, ShardId, StatsHandle, prelude::*};
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
/// Without `--stream` and `--endpoint` the streams are those of an emulator in this process.
#[derive(Debug, Parser)]
struct Options {
    /// How many records are worked on at once
    #[arg(long, value_name = "N", default_value_t = 32)]
    at_once: usize,
    /// The name of a stream that exists. Earthquakes are put into it; what else arrives meanwhile is worked on, too
    #[arg(long, value_name = "NAME", requires = "dead_letter")]
    stream: Option<String>,
    /// The name of a stream that exists, for what cannot be enriched
    #[arg(long, value_name = "NAME", requires = "stream")]
    dead_letter: Option<String>,
    /// Another endpoint than that of AWS; at a plain http:// one, requests are signed with test credentials
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
}

/// Whatever ends the program early.
type Failure = Box<dyn Error + Send + Sync>;

/// Which record it is.
type Place = (ShardId, SequenceNumber);

/// The records of each key, in order.
type ByKey = BTreeMap<String, Vec<Place>>;

/// By then it is done, also on AWS.
const PATIENCE: Duration = Duration::from_mins(3);

/// How often a record is tried.
const ATTEMPTS: u32 = 4;

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    // A record that got lost would be waited for without an end.
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
    // What is published once `subscribe` has returned is read.
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
    dead_letters_are_written(&stats, published.spoilt.len()).await;
    let report = closer.close().await;

    let letters = KinesisStream::new(dead_letter).initial_position(KinesisPosition::horizon()).stop_at_tip();
    let dead = read_dead_letters(broker.subscribe(letters).await?).await?;
    broker.shutdown().await;

    let rows = table.lock().await;
    let towns: HashSet<&str> = rows.iter().map(|row| row.nearest_town.as_str()).collect();
    println!("{} records published, with {} keys", published.places().len(), published.by_key.len());
    println!("{} rows, near {} towns, up to {} worked on at once", rows.len(), towns.len(), service.most());
    println!("{given_back} given back to come again, {} dead letters", dead.len());
    if !report.is_clean() {
        return Err(format!("closing left something behind: {report:?}").into());
    }
    published.check(&rows, &dead)?;
    println!("every record was enriched exactly once, in the order of its key, or is a dead letter");
    Ok(())
}

/// What became of a record.
enum Enriched {
    Done(Place),
    GivenBack,
    /// For the last time.
    GivenUp(Place),
}

/// Stands for the table to which enriched events go.
type Table = Mutex<Vec<Row>>;

/// An enriched event.
#[derive(Debug)]
struct Row {
    key: String,
    place: Place,
    /// What was looked up.
    nearest_town: String,
}

/// One record. `buffer_by_key` has the next one of its key wait until this is done, or has been given up.
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
            // If this was the last time, the dead letter says why.
            quake.nack_because(failure);
            Ok(if is_last { Enriched::GivenUp(place) } else { Enriched::GivenBack })
        }
    }
}

/// Waits until so many dead letters are written, which the library does by itself.
async fn dead_letters_are_written(stats: &StatsHandle, expected: usize) {
    let written = || stats.snapshot().shards.iter().map(|shard| shard.dead_letters).sum::<u64>();
    while written() < expected as u64 {
        sleep(Duration::from_millis(20)).await;
    }
}

/// The dead letters that there are: which records they were, and why they were given up.
async fn read_dead_letters(letters: Subscription) -> Result<HashMap<Place, String>, KinesisError> {
    let read = async |letter: Delivery| {
        let header = |name: &str| {
            let text = letter.headers().get(&format!("kinesis-dead-letter-{name}"));
            text.map(|text| String::from_utf8_lossy(text).into_owned()).unwrap_or_default()
        };
        let (shard, number, reason) = (header("shard"), header("sequence-number"), header("reason"));
        letter.ack();
        Ok(((ShardId::from(shard), SequenceNumber::from(number)), reason))
    };
    letters.tolerant().and_then(read).try_collect().await
}

/// Region and credentials come from the environment and the profile, unless the endpoint is a local one.
fn broker(endpoint: Option<String>) -> KinesisBroker {
    match endpoint {
        Some(url) if url.starts_with("http://") => KinesisBroker::new().endpoint(url).test_credentials(),
        Some(url) => KinesisBroker::new().endpoint(url),
        None => KinesisBroker::new(),
    }
}
