//! Looks something up for each record, for up to 32 at once, and keeps the order of each partition key.
//!
//! `cargo run --example enrich` needs no AWS account: 1,707 earthquakes go into a stream of an emulator, with the square of
//! the map in which they were as the key. Each is enriched by a service that takes its time, and fails at times: then the
//! record is given back and comes again, and later ones of its key wait for it, while those of other keys go on. In the
//! end it is checked that every record was enriched exactly once, in the order of its key.

use std::{
    collections::{BTreeMap, HashSet},
    error::Error,
    io,
    pin::pin,
    process::ExitCode,
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use clap::Parser;
use kinesis_stream::{Publisher, SequenceNumber, ShardId, prelude::*};
use kinesis_stream_support::{Emulator, earthquakes};
use serde_json::Value;
use tokio::{sync::Mutex, time::sleep};
use tracing_subscriber::EnvFilter;

/// Enrich a stream of earthquakes, many at once, in the order of each key.
///
/// Without `--stream` and `--endpoint` the stream is one of an emulator in this process.
#[derive(Debug, Parser)]
struct Options {
    /// How many records are worked on at once
    #[arg(long, value_name = "N", default_value_t = 32)]
    at_once: usize,
    /// The name of a stream that exists. Earthquakes are put into it; what else arrives meanwhile is left alone
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

/// The records of each key, in order.
type ByKey = BTreeMap<String, Vec<Place>>;

#[tokio::main]
async fn main() -> ExitCode {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    match run(Options::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {failure}");
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
    let broker = broker(endpoint).consumer("enrich").connect().await?;

    // What is published once `subscribe` has returned is read.
    let quakes = broker.subscribe(KinesisStream::new(name)).await?;
    let closer = quakes.closer();
    let published = publish(&broker.publisher(), name).await?;

    let (service, table) = (Service::default(), Table::default());
    let mut results =
        pin!(quakes.tolerant().buffer_by_key(options.at_once, async |quake| enrich(quake, &service, &table).await));
    let mut open: HashSet<Place> = published.values().flatten().cloned().collect();
    let mut given_back = 0;
    while !open.is_empty()
        && let Some(result) = results.try_next().await?
    {
        match result {
            Enriched::Done(place) => drop(open.remove(&place)),
            Enriched::GivenBack => given_back += 1,
        }
    }
    let report = closer.close().await;
    broker.shutdown().await;

    let rows = table.lock().await;
    let towns: HashSet<&str> = rows.iter().map(|row| row.nearest_town.as_str()).collect();
    println!("{} records published, with {} keys", published.values().flatten().count(), published.len());
    println!("{} rows, near {} towns, up to {} worked on at once", rows.len(), towns.len(), service.most());
    println!("{given_back} given back, to come again");
    if !report.is_clean() {
        return Err(format!("closing left something behind: {report:?}").into());
    }
    check(&published, &rows)?;
    println!("every record was enriched exactly once, in the order of its key");
    Ok(())
}

/// What became of a record.
enum Enriched {
    Done(Place),
    GivenBack,
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

/// One record. `buffer_by_key` has the next one of its key wait until this is done.
async fn enrich(quake: Delivery, service: &Service, table: &Table) -> Result<Enriched, KinesisError> {
    let Ok(nearest_town) = service.nearest_town(quake.payload(), quake.attempt()).await else {
        // It comes again after a second, and its key waits for it.
        quake.nack();
        return Ok(Enriched::GivenBack);
    };
    let key = quake.partition_key().unwrap_or_default().to_owned();
    let place = (quake.shard().clone(), quake.sequence_number().clone());
    table.lock().await.push(Row { key, place: place.clone(), nearest_town });
    quake.commit().await?;
    Ok(Enriched::Done(place))
}

/// Stands for a service elsewhere.
#[derive(Debug, Default)]
struct Service {
    running: AtomicUsize,
    most: AtomicUsize,
}

/// The service has too much to do at the moment.
#[derive(Debug)]
struct Busy;

impl Service {
    /// Takes 1 to 10 ms, and fails for a few of the events, the first time.
    async fn nearest_town(&self, event: &[u8], attempt: u32) -> Result<String, Busy> {
        self.most.fetch_max(self.running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
        let event: Value = serde_json::from_slice(event).unwrap_or_default();
        let time = event["time"].as_u64().unwrap_or_default();
        sleep(Duration::from_millis(1 + time / 10 % 10)).await;
        self.running.fetch_sub(1, Ordering::Relaxed);
        if time.is_multiple_of(53) && attempt == 1 {
            return Err(Busy);
        }
        let place = event["place"].as_str().unwrap_or_default();
        Ok(place.rsplit(" of ").next().unwrap_or_default().to_owned())
    }

    fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
}

/// Publishes every event, one after the other, which is what gives a key its order. Says where they are.
async fn publish(publisher: &Publisher, stream: &str) -> Result<ByKey, Failure> {
    let mut by_key = ByKey::new();
    for (_, event) in earthquakes::by_network() {
        let json: Value = serde_json::from_str(event)?;
        let key =
            format!("{:.0} {:.0}", json["lat"].as_f64().unwrap_or_default(), json["lon"].as_f64().unwrap_or_default());
        let stored = publisher.publish(stream, Outgoing::new(key.clone(), event)).await?;
        by_key.entry(key).or_default().push((stored.shard().clone(), stored.sequence_number().clone()));
    }
    Ok(by_key)
}

/// Whether the rows of each key are what was published, in its order. Records of others are left out.
fn check(published: &ByKey, rows: &[Row]) -> Result<(), Failure> {
    let ours: HashSet<&Place> = published.values().flatten().collect();
    let mut enriched = ByKey::new();
    for row in rows.iter().filter(|row| ours.contains(&row.place)) {
        enriched.entry(row.key.clone()).or_default().push(row.place.clone());
    }
    if enriched != *published {
        return Err("not every record was enriched exactly once, in the order of its key".into());
    }
    Ok(())
}

/// Region and credentials come from the environment and the profile, unless the endpoint is a local one.
fn broker(endpoint: Option<String>) -> KinesisBroker {
    match endpoint {
        Some(url) if url.starts_with("http://") => KinesisBroker::new().endpoint(url).test_credentials(),
        Some(url) => KinesisBroker::new().endpoint(url),
        None => KinesisBroker::new(),
    }
}
