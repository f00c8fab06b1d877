//! Prints a stream as it arrives.
//!
//! `cargo run --example tail -- --demo` reads earthquakes from an emulator in this process;
//! `cargo run --example tail -- --stream NAME` reads a real stream. It keeps no checkpoint: dropping a record
//! acknowledges it, and the next run starts at `--from`.

use std::{
    error::Error,
    io::{self, ErrorKind, Write},
    iter,
    process::ExitCode,
    time::Duration,
};

use clap::Parser;
use jiff::Timestamp;
use kinesis_stream::{Publisher, prelude::*};
use kinesis_stream_support::{Emulator, chain, earthquakes};
use tokio::{select, signal, time::sleep};
use tracing_subscriber::EnvFilter;

/// Print a Kinesis stream as it arrives: time, shard, partition key, headers, payload.
#[derive(Debug, Parser)]
struct Options {
    /// The name of the stream
    #[arg(long, value_name = "NAME", required_unless_present = "demo")]
    stream: Option<String>,
    /// Where to start: latest, horizon, a time as in 2026-02-01T12:00:00Z, or Unix milliseconds
    #[arg(long, value_name = "POSITION", default_value = "latest", value_parser = position)]
    from: KinesisPosition,
    /// Stop after N records
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// The endpoint, if not that of AWS; a plain http:// endpoint gets test credentials
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// The AWS region
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
    /// Read a stream of earthquakes from an emulator in this process
    #[arg(long, conflicts_with_all = ["stream", "endpoint", "region"])]
    demo: bool,
}

/// An error that ends the program.
type Failure = Box<dyn Error + Send + Sync>;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr).init();
    match run(options).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}", chain(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn run(options: Options) -> Result<(), Failure> {
    let emulator = options.demo.then(Emulator::start);
    let mut broker = KinesisBroker::new();
    if let Some(endpoint) = emulator.as_ref().map(|emulator| emulator.endpoint()).or(options.endpoint) {
        if endpoint.starts_with("http://") {
            broker = broker.test_credentials();
        }
        broker = broker.endpoint(endpoint);
    }
    if let Some(region) = options.region {
        broker = broker.region(region);
    }
    let broker = broker.connect().await?;

    let name = options.stream.unwrap_or_else(|| "earthquakes".to_owned());
    let mut stream = KinesisStream::new(&name).start_at(options.from).ack_on_drop();
    if options.demo {
        stream = stream.create_if_missing(4);
    }
    let subscription = broker.subscribe(stream).await?;
    let closer = subscription.closer();
    let printing = subscription
        .tolerant()
        .take(options.limit.unwrap_or(usize::MAX))
        .map_err(Failure::from)
        // This drops the delivery, which acknowledges it.
        .try_for_each(|delivery| future::ready(print(&delivery).map_err(Failure::from)));
    let closing = async {
        signal::ctrl_c().await?;
        closer.close().await;
        Ok(())
    };
    let ended = select! {
        ended = printing => ended,
        ended = closing => ended,
        ended = trickle(broker.publisher(), &name), if options.demo => ended,
    };
    broker.shutdown().await;
    match ended {
        Err(failure) if is_closed_pipe(&failure) => Ok(()),
        ended => ended,
    }
}

/// Whether the reader of the output closed the pipe, as in `tail | head`.
fn is_closed_pipe(failure: &Failure) -> bool {
    failure.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// Publishes ten earthquakes a second, in an endless loop.
async fn trickle(publisher: Publisher, stream: &str) -> Result<(), Failure> {
    for (network, event) in iter::repeat_with(earthquakes::by_network).flatten() {
        publisher.publish(stream, Outgoing::new(network, event)).await?;
        sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Parses a position of the command line.
fn position(text: &str) -> Result<KinesisPosition, String> {
    match text {
        "latest" => Ok(KinesisPosition::latest()),
        "horizon" => Ok(KinesisPosition::horizon()),
        _ => {
            let millis = text.parse().or_else(|_| text.parse().map(Timestamp::as_millisecond));
            millis.map(KinesisPosition::timestamp).map_err(|error| error.to_string())
        }
    }
}

/// Prints a record as one line.
fn print(delivery: &Delivery) -> io::Result<()> {
    let time = delivery.arrived_at().and_then(|time| Timestamp::try_from(time).ok());
    let mut words = vec![
        time.map_or_else(|| "-".to_owned(), |time| format!("{time:.3}")),
        delivery.shard().to_string(),
        delivery.partition_key().unwrap_or("-").to_owned(),
    ];
    words.extend(delivery.headers().iter().map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(value))));
    words.push(String::from_utf8_lossy(delivery.payload()).into_owned());
    // A payload may hold control characters, which a terminal would obey.
    let harmless = words.join("  ").replace(char::is_control, "\u{fffd}");
    writeln!(io::stdout(), "{harmless}")
}
