//! Two consumers of one stream, in one process. Each one sees every record, and has separate leases and checkpoints.
//!
//! `cargo run --example fan_out` needs no AWS account. It publishes 1,707 earthquakes to an emulator. The consumer
//! `archive` writes all of them to a file, in batches. The consumer `alerts` checks each record, and raises an alert
//! for each strong earthquake. Neither waits for the other. At the end the program checks that both saw every record
//! once.

use std::{
    collections::{HashMap, HashSet},
    env,
    error::Error,
    fs, io,
    path::PathBuf,
    process::{self, ExitCode},
    time::Duration,
};

use clap::Parser;
use kinesis_stream::{MemoryLeaseStore, Publisher, SequenceNumber, ShardId, prelude::*};
use kinesis_stream_support::{Emulator, chain, earthquakes};
use serde_json::Value;
use tokio::{fs::File, io::AsyncWriteExt, time::sleep};
use tracing_subscriber::EnvFilter;

/// Read a stream of earthquakes with two consumers at once.
///
/// Without `--stream` and `--endpoint`, an emulator in this process has the stream.
#[derive(Debug, Parser)]
struct Options {
    /// The smallest magnitude that raises an alert
    #[arg(long, value_name = "MAGNITUDE", default_value_t = 5.0)]
    strong: f64,
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

    // A consumer is a name, and one store can hold the leases of many. Two programs can do the same with a store that
    // both can reach.
    let leases = MemoryLeaseStore::new();
    let archive_broker = broker(endpoint.as_deref()).consumer("archive").lease_store(leases.clone()).connect().await?;
    let alerts_broker = broker(endpoint.as_deref()).consumer("alerts").lease_store(leases).connect().await?;
    let published = publish(&archive_broker.publisher(), name).await?;

    // `stop_at_tip` ends both streams once they have read everything. A service leaves that out.
    let quakes = KinesisStream::new(name).initial_position(KinesisPosition::horizon()).stop_at_tip();
    let file = env::temp_dir().join(format!("earthquakes-{}.ndjson", process::id()));
    let archive = archive(archive_broker.subscribe(quakes.clone()).await?, file.clone());
    let alerts = alert(alerts_broker.subscribe(quakes).await?, options.strong);
    let (archived, looked_at) = future::try_join(archive, alerts).await?;
    archive_broker.shutdown().await;
    alerts_broker.shutdown().await;

    let lines = fs::read_to_string(&file)?.lines().count();
    fs::remove_file(file)?;
    let alerts = looked_at.iter().filter(|(_, raised)| *raised).count();
    println!("{} records published", published.len());
    println!("archive: {lines} lines in the file");
    println!("alerts: {} looked at, {alerts} of magnitude {} or more", looked_at.len(), options.strong);
    if lines != archived.len() || !is_each_once(&published, archived.iter()) {
        return Err("the archive does not hold every record exactly once".into());
    }
    if !is_each_once(&published, looked_at.iter().map(|(place, _)| place)) {
        return Err("the alerts did not see every record exactly once".into());
    }
    let is_strong = |event: &str| magnitude(event.as_bytes()).is_some_and(|magnitude| magnitude >= options.strong);
    if looked_at.iter().any(|(place, raised)| published.get(place).is_some_and(|event| is_strong(event) != *raised)) {
        return Err("the alerts are not those of the strong earthquakes".into());
    }
    println!("both saw every record exactly once");
    Ok(())
}

/// Writes all records to a file, in batches. Returns which ones.
async fn archive(quakes: Subscription, path: PathBuf) -> Result<Vec<Place>, Failure> {
    let mut file = File::create(path).await?;
    let mut archived = Vec::new();
    let mut batches = quakes.tolerant().batches(500)?;
    while let Some(batch) = batches.try_next().await? {
        let lines: Vec<&[u8]> = batch.payloads().flat_map(|quake| [quake.as_ref(), b"\n"]).collect();
        file.write_all(&lines.concat()).await?;
        // Settle records only after they are on the disk.
        file.sync_data().await?;
        archived.extend(batch.iter().map(place));
        batch.commit().await?;
    }
    Ok(archived)
}

/// Raises an alert for each strong earthquake, sixteen at a time. Returns each record, and whether it raised an alert.
async fn alert(quakes: Subscription, strong: f64) -> Result<Vec<(Place, bool)>, Failure> {
    let look = async |quake: Delivery| {
        let place = place(&quake);
        let Some(magnitude) = magnitude(quake.payload()).filter(|magnitude| *magnitude >= strong) else {
            // A redelivery would do no harm, so the checkpoint can wait for the next write.
            quake.ack();
            return Ok((place, false));
        };
        raise(magnitude).await;
        // Wait until the checkpoint is stored, so that a restart does not raise the alert again.
        quake.commit().await?;
        Ok((place, true))
    };
    let looked_at = quakes.tolerant().map_ok(look).try_buffer_unordered(16).try_collect().await;
    looked_at.map_err(|error: KinesisError| error.into())
}

/// Stands for a slow call.
async fn raise(_magnitude: f64) {
    sleep(Duration::from_millis(20)).await;
}

/// The magnitude of an earthquake; `None` for any other record.
fn magnitude(json: &[u8]) -> Option<f64> {
    serde_json::from_slice::<Value>(json).ok()?["mag"].as_f64()
}

fn place(delivery: &Delivery) -> Place {
    (delivery.shard().clone(), delivery.sequence_number().clone())
}

/// Publishes every event, with its seismic network as the key. Returns the identity of each record.
async fn publish(publisher: &Publisher, stream: &str) -> Result<HashMap<Place, &'static str>, KinesisError> {
    let mut events = HashMap::new();
    for (network, event) in earthquakes::by_network() {
        let stored = publisher.publish(stream, Outgoing::new(network, event)).await?;
        events.insert((stored.shard().clone(), stored.sequence_number().clone()), event);
    }
    Ok(events)
}

/// Whether each published record was seen exactly once. Ignores records of other programs.
fn is_each_once<'a>(published: &HashMap<Place, &str>, seen: impl Iterator<Item = &'a Place>) -> bool {
    let ours: Vec<&Place> = seen.filter(|place| published.contains_key(*place)).collect();
    ours.len() == published.len() && ours.iter().collect::<HashSet<_>>().len() == published.len()
}

/// Region and credentials come from the environment and the profile, except for a local endpoint.
fn broker(endpoint: Option<&str>) -> KinesisBroker {
    match endpoint {
        Some(url) if url.starts_with("http://") => KinesisBroker::new().endpoint(url).test_credentials(),
        Some(url) => KinesisBroker::new().endpoint(url),
        None => KinesisBroker::new(),
    }
}
