//! Writes batches to a SQLite table. Each record has its effect exactly once, even if the consumer is killed.
//!
//! `cargo run --features embedded --example batch_to_sqlite -- --kill-after 100` proves it. It publishes 1,707
//! earthquakes and runs the consumer in a child process, which it kills with `SIGKILL` whenever that has inserted 100
//! rows. At the end it checks that every record is in the table once, in the order of its key. Without `--kill-after`
//! the consumer runs undisturbed in this process.
//!
//! The library delivers each record *at least* once. Three rules make that *exactly* once in the table:
//!
//! 1. Shard and sequence number identify a row, and an insert leaves an existing row alone (`table.rs`).
//! 2. A batch is one transaction, so the table holds all of it or none.
//! 3. The consumer settles a batch only after the transaction is on the disk. If it dies in between, the batch is
//!    redelivered.

use std::{
    collections::{BTreeMap, HashSet},
    env,
    error::Error,
    fs, io,
    num::NonZeroUsize,
    path::{Path, PathBuf},
    process::{self, ExitCode},
};

use clap::Parser;
use kinesis_stream::{EmbeddedLeaseStore, Publisher, prelude::*};
use kinesis_stream_support::{Emulator, chain, earthquakes};
use tokio::task::block_in_place;
use tracing_subscriber::EnvFilter;

mod kills;
mod table;

use self::table::{Row, Table};

/// Publish earthquakes, and copy the stream to a SQLite table, each record exactly once.
///
/// Without `--stream` and `--endpoint`, an emulator in this process has the stream.
#[derive(Debug, Parser)]
struct Options {
    /// Consume in a child process, kill it after N inserted rows, and start another
    #[arg(long, value_name = "N")]
    kill_after: Option<NonZeroUsize>,
    /// The database; the lease file is next to it [default: a temporary file]
    #[arg(long, value_name = "FILE")]
    db: Option<PathBuf>,
    /// The name of an existing stream. It receives the earthquakes; all of its records are copied to the table
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// The endpoint, if not that of AWS; a plain http:// endpoint gets test credentials
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// Consume all records, as the child process
    #[arg(long, hide = true, requires = "db", requires = "stream")]
    consume: bool,
}

/// An error that ends the program.
type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    let done = if options.consume { consume(&options, |rows| println!("{rows}")).await } else { run(options).await };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("error: {}", chain(&*failure));
            ExitCode::FAILURE
        }
    }
}

/// The consumer: copies all records to the table. Reports how many rows each batch added.
async fn consume(options: &Options, inserted: impl Fn(usize)) -> Result<(), Failure> {
    let db = options.db();
    let mut table = Table::open(&db)?;
    // With a fixed id, a restarted consumer gets the leases of the killed one at once.
    let leases = EmbeddedLeaseStore::open(leases(&db))?;
    let broker = options.broker().consumer("sqlite").owner_id("sqlite").lease_store(leases).connect().await?;

    // `stop_at_tip` ends the stream once it has read everything. A service leaves that out.
    let quakes = KinesisStream::new(options.stream()).initial_position(KinesisPosition::horizon()).stop_at_tip();
    let mut batches = broker.subscribe(quakes).await?.tolerant().batches(100)?;
    // One batch at a time: SQLite has one writer, and the rows keep the order of the shards. The library reads ahead.
    while let Some(batch) = batches.try_next().await? {
        // SQLite blocks the thread.
        inserted(block_in_place(|| table.insert(&batch))?);
        batch.commit().await?;
    }
    broker.shutdown().await;
    Ok(())
}

/// Publishes the records, consumes them, and checks the table.
async fn run(mut options: Options) -> Result<(), Failure> {
    let emulator = (options.stream.is_none() && options.endpoint.is_none()).then(Emulator::start);
    if let Some(emulator) = &emulator {
        emulator.create_stream(options.stream(), 4).await;
        options.endpoint = Some(emulator.endpoint());
    }
    let broker = options.broker().connect().await?;
    let published = publish(&broker.publisher(), options.stream()).await?;
    broker.shutdown().await;

    let kills = match options.kill_after {
        Some(kill_after) => kills::consume(&options, kill_after.get()).await?,
        None => consume(&options, |_| ()).await.map(|()| 0)?,
    };

    let table = Table::open(&options.db())?;
    let (rows, repeats) = (table.rows()?, table.repeats()?);
    println!("{} records published, {} rows, {kills} kills", published.len(), rows.len());
    println!("{repeats} redelivered records were ignored");
    if options.db.is_none() {
        drop(table);
        fs::remove_file(leases(&options.db()))?;
        fs::remove_file(options.db())?;
    }
    check(published, rows)?;
    println!("every record is in the table exactly once, in the order of its key");
    Ok(())
}

/// Publishes every event with its seismic network as the key, one after the other, so each key has an order.
async fn publish(publisher: &Publisher, stream: &str) -> Result<Vec<Row>, KinesisError> {
    let mut rows = Vec::new();
    for (network, event) in earthquakes::by_network() {
        let stored = publisher.publish(stream, Outgoing::new(network, event)).await?;
        let (shard, sequence_number) = (stored.shard().to_string(), stored.sequence_number().to_string());
        rows.push(Row { shard, sequence_number, key: network.to_owned() });
    }
    Ok(rows)
}

/// Checks that the table holds exactly the published records of each key, in order. Ignores records of other programs.
fn check(published: Vec<Row>, mut rows: Vec<Row>) -> Result<(), Failure> {
    let by_key = |rows: Vec<Row>| {
        let mut keys: BTreeMap<String, Vec<Row>> = BTreeMap::new();
        for row in rows {
            keys.entry(row.key.clone()).or_default().push(row);
        }
        keys
    };
    let ours: HashSet<Row> = published.iter().cloned().collect();
    rows.retain(|row| ours.contains(row));
    let (published, rows) = (by_key(published), by_key(rows));
    match published.iter().find(|(key, wanted)| rows.get(*key) != Some(*wanted)) {
        Some((key, _)) => Err(format!("the rows of {key} are not the published records, in order").into()),
        None => Ok(()),
    }
}

/// The lease file, next to the database.
fn leases(db: &Path) -> PathBuf {
    db.with_extension("redb")
}

impl Options {
    fn stream(&self) -> &str {
        self.stream.as_deref().unwrap_or("earthquakes")
    }

    fn db(&self) -> PathBuf {
        let default = || env::temp_dir().join(format!("earthquakes-{}.sqlite", process::id()));
        self.db.clone().unwrap_or_else(default)
    }

    /// Region and credentials come from the environment and the profile, except for a local endpoint.
    fn broker(&self) -> KinesisBroker {
        match &self.endpoint {
            Some(url) if url.starts_with("http://") => KinesisBroker::new().endpoint(url).test_credentials(),
            Some(url) => KinesisBroker::new().endpoint(url),
            None => KinesisBroker::new(),
        }
    }
}
