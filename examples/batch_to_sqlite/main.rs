//! Batches into a SQLite table, where each record has its effect exactly once, also if the consumer is killed on the way.
//!
//! `cargo run --features embedded --example batch_to_sqlite -- --kill-after 100` proves it: 1,707 earthquakes go into a
//! stream, the consumer is a process of its own and is killed with `SIGKILL` whenever it has inserted 100 rows, and in the
//! end every record is in the table once, in the order of its key. Without `--kill-after` the consumer runs in this
//! process, undisturbed.
//!
//! A record that was read is delivered *at least* once. Three things make that *exactly* once in the table:
//!
//! 1. a row is found by shard and sequence number, and one that is there already is left alone (`table.rs`);
//! 2. a batch is one transaction, so none of it is in the table, or all of it is;
//! 3. the batch is settled when the transaction is on the disk, never before. Whoever dies between the two gets it again.

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

/// Put earthquakes into a stream and from there into a SQLite table, each exactly once.
///
/// Without `--stream` and `--endpoint` the stream is one of an emulator in this process.
#[derive(Debug, Parser)]
struct Options {
    /// Consume in a process of its own, kill it whenever it has inserted so many rows, and start another
    #[arg(long, value_name = "N")]
    kill_after: Option<NonZeroUsize>,
    /// The database; the leases go beside it [default: a file for the time of the run]
    #[arg(long, value_name = "FILE")]
    db: Option<PathBuf>,
    /// The name of a stream that exists. Earthquakes are put into it; all of its records go into the table
    #[arg(long, value_name = "NAME")]
    stream: Option<String>,
    /// Another endpoint than that of AWS; at a plain http:// one, requests are signed with test credentials
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// Consume what there is, as the process that gets killed
    #[arg(long, hide = true, requires = "db", requires = "stream")]
    consume: bool,
}

/// Whatever ends the program early.
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

/// The consumer: everything that there is, into the table. It tells how many rows each batch has added.
async fn consume(options: &Options, inserted: impl Fn(usize)) -> Result<(), Failure> {
    let db = options.db();
    let mut table = Table::open(&db)?;
    // With the same id every time, a consumer takes over at once from the one that was killed before it.
    let leases = EmbeddedLeaseStore::open(leases(&db))?;
    let broker = options.broker().consumer("sqlite").owner_id("sqlite").lease_store(leases).connect().await?;

    // `stop_at_tip` ends it when it has read everything; a service leaves that out.
    let quakes = KinesisStream::new(options.stream()).initial_position(KinesisPosition::horizon()).stop_at_tip();
    let mut batches = broker.subscribe(quakes).await?.tolerant().batches(100)?;
    // One after the other: SQLite has one writer, and the rows get the order of the shards. Meanwhile the next batch is read.
    while let Some(batch) = batches.try_next().await? {
        // SQLite blocks.
        inserted(block_in_place(|| table.insert(&batch))?);
        batch.commit().await?;
    }
    broker.shutdown().await;
    Ok(())
}

/// Publishes, has it consumed, and checks what is in the table then.
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
    let (rows, again) = (table.rows()?, table.came_again()?);
    println!("{} records published, {} rows, {kills} kills", published.len(), rows.len());
    println!("{again} records came again and were ignored");
    if options.db.is_none() {
        drop(table);
        fs::remove_file(leases(&options.db()))?;
        fs::remove_file(options.db())?;
    }
    check(published, rows)?;
    println!("every record is in the table exactly once, in the order of its key");
    Ok(())
}

/// Publishes every event with its seismic network as the key, one after the other, which is what gives a key its order.
async fn publish(publisher: &Publisher, stream: &str) -> Result<Vec<Row>, KinesisError> {
    let mut rows = Vec::new();
    for (network, event) in earthquakes::by_network() {
        let stored = publisher.publish(stream, Outgoing::new(network, event)).await?;
        let (shard, sequence_number) = (stored.shard().to_string(), stored.sequence_number().to_string());
        rows.push(Row { shard, sequence_number, key: network.to_owned() });
    }
    Ok(rows)
}

/// Whether the table holds, of each key, exactly what was published, in this order. Records of others are left out.
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
        Some((key, _)) => Err(format!("the rows of {key} are not what was published, in its order").into()),
        None => Ok(()),
    }
}

/// Where the leases are: beside the database.
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

    /// Region and credentials come from the environment and the profile, unless the endpoint is a local one.
    fn broker(&self) -> KinesisBroker {
        match &self.endpoint {
            Some(url) if url.starts_with("http://") => KinesisBroker::new().endpoint(url).test_credentials(),
            Some(url) => KinesisBroker::new().endpoint(url),
            None => KinesisBroker::new(),
        }
    }
}
