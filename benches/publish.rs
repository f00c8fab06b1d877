//! The cost of publishing: this library and a bare loop over the SDK that batches by hand put the same records.
//!
//! ```sh
//! cargo bench --bench publish                                                 # the table
//! cargo bench --bench publish -- --only sink --record-bytes 100 --rounds 30   # one row, for a profiler
//! ```
//!
//! A canned Kinesis answers from another process, as fast as it can count. A round puts all records in each of four
//! ways:
//!
//! - **bare**: the SDK's PutRecords with 500 records a call, eight calls at a time, retries off. It keeps no order
//!   within a key, makes no second attempt, and has no result per record;
//! - **sink**: `forward` into a sink with default settings, with ten thousand keys in turn;
//! - **relaxed**: the same, with the order relaxed;
//! - **each**: [`PublishSink::publish`] for every record, with ten thousand calls in flight.
//!
//! CPU time (user plus system) is that of this process alone. Read the table like that of `read`.

use std::{io, iter};

use aws_sdk_kinesis::{Client, primitives::Blob, types::PutRecordsRequestEntry};
use bytes::Bytes;
use clap::{Parser, ValueEnum};
use kinesis_stream::{ConnectedKinesisBroker, prelude::*};
use kinesis_stream_support::canned::{self, Canned, Process};
use tokio::runtime;

use self::cost::{Cost, Result, STREAM, clients, print_table};

mod cost;

/// The defaults of the sink, for the bare loop.
const RECORDS_A_CALL: usize = 500;
const CALLS: usize = 8;

/// Enough keys that no record waits for another of its key.
const KEYS: usize = 10_000;

#[derive(Clone, Parser)]
struct Options {
    /// How many rounds to measure. One more round runs before them, to warm up.
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// The sizes of a record to put.
    #[arg(long, num_args = 1.., default_values_t = [100, 1024])]
    record_bytes: Vec<usize>,
    /// How many records each round puts.
    #[arg(long, default_value_t = 200_000)]
    records: u32,
    /// The threads of the runtime.
    #[arg(long, default_value_t = 2)]
    threads: usize,
    /// Puts only in this way.
    #[arg(long)]
    only: Option<Way>,
    /// `cargo bench` passes this. Without it, one small round only checks that the bench works.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A way to put.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Way {
    Bare,
    Sink,
    Relaxed,
    Each,
}

fn main() -> Result<()> {
    canned::serve_if_spawned();
    let mut options = Options::parse();
    if !options.bench {
        options = Options { rounds: 1, records: 2_000, ..options };
    }
    let runtime = runtime::Builder::new_multi_thread().worker_threads(options.threads).enable_all().build()?;
    for record_bytes in options.record_bytes.clone() {
        runtime.block_on(compare(&options, record_bytes))?;
    }
    Ok(())
}

/// Puts records of one size in every way, in turns, and prints the costs.
async fn compare(options: &Options, record_bytes: usize) -> Result<()> {
    let &Options { records, rounds, .. } = options;
    let setup = Setup::start(records, record_bytes).await?;
    let all = || vec![Way::Bare, Way::Sink, Way::Relaxed, Way::Each];
    let ways = options.only.map_or_else(all, |only| vec![only]);
    let mut costs = vec![Vec::new(); ways.len()];
    for round in 0..=rounds {
        for (way, costs) in iter::zip(&ways, &mut costs) {
            let cost = setup.measure(*way).await?;
            if round > 0 {
                costs.push(cost);
            }
        }
    }
    println!("\n{records} records of {record_bytes} B:");
    print_table(&ways, &costs, records);
    Ok(())
}

/// The endpoint, both clients, and the records.
struct Setup {
    records: u32,
    payload: Bytes,
    keys: Vec<String>,
    client: Client,
    broker: ConnectedKinesisBroker,
    _process: Process,
}

impl Setup {
    async fn start(records: u32, record_bytes: usize) -> Result<Self> {
        let process = Canned::default().spawn()?;
        let (client, broker) = clients(process.endpoint()).await?;
        Ok(Self {
            records,
            payload: vec![7; record_bytes].into(),
            keys: (0..KEYS).map(|key| format!("key-{key:06}")).collect(),
            client,
            broker,
            _process: process,
        })
    }

    /// The keys of all records.
    fn keys(&self) -> impl Iterator<Item = String> {
        self.keys.iter().cycle().take(self.records as usize).cloned()
    }

    fn outgoing(&self) -> impl Iterator<Item = Outgoing> {
        self.keys().map(|key| Outgoing::new(key, self.payload.clone()))
    }

    async fn measure(&self, way: Way) -> Result<Cost> {
        let run = async {
            match way {
                Way::Bare => self.bare().await,
                Way::Sink => self.sink(PublishOrder::ByKey).await,
                Way::Relaxed => self.sink(PublishOrder::Relaxed).await,
                Way::Each => self.each().await,
            }
        };
        let (cost, put) = Cost::of(run).await?;
        if put == u64::from(self.records) {
            Ok(cost)
        } else {
            Err(io::Error::other(format!("there are {} records, but {way:?} put {put}", self.records)).into())
        }
    }

    async fn bare(&self) -> Result<u64> {
        let entries = self.keys().map(|key| {
            let entry = PutRecordsRequestEntry::builder().partition_key(key);
            entry.data(Blob::from_maybe_shared(self.payload.clone())).build()
        });
        stream::iter(entries)
            .chunks(RECORDS_A_CALL)
            .map(|entries| async {
                let entries = entries.into_iter().collect::<Result<Vec<_>, _>>()?;
                let put = self.client.put_records().stream_name(STREAM).set_records(Some(entries)).send().await?;
                Ok(put.records.iter().filter(|entry| entry.sequence_number.is_some()).count() as u64)
            })
            .buffer_unordered(CALLS)
            .try_fold(0, async |sum, put| Ok(sum + put))
            .await
    }

    async fn sink(&self, order: PublishOrder) -> Result<u64> {
        let mut sink = self.broker.publisher().sink(PublishTo::new(STREAM).order(order))?;
        stream::iter(self.outgoing()).map(Ok).forward(&mut sink).await?;
        Ok(sink.stats().published)
    }

    async fn each(&self) -> Result<u64> {
        let sink = self.broker.publisher().sink(STREAM)?;
        let published = stream::iter(self.outgoing()).map(|record| sink.publish(record)).buffered(KEYS);
        Ok(published.try_fold(0, async |sum, _| Ok(sum + 1)).await?)
    }
}
