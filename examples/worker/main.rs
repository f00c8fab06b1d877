//! One of several instances of a consumer, with its leases in DynamoDB. Start as many as you like, on any host: each
//! one reads its share of the shards. Kill one, and the others take over its shards.
//!
//! `cargo run --example worker --features dynamodb` needs nothing else. It starts a Kinesis and a DynamoDB emulator in
//! this process, publishes 20 earthquakes a second, and prints the command for a second worker. `--stream`,
//! `--endpoint`, `--dynamodb-endpoint` and `--region` select real services.
//!
//! It prints one JSON object a line: `ready` once it has subscribed, `begun`, `done` and `settled` for each record,
//! `error` for each error of the stream, and `closed` at the end. It shuts down gracefully on SIGTERM and Ctrl-C. The
//! exit code is not 0 after a fatal error, or if closing left something behind.

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use kinesis_stream::prelude::*;
use kinesis_stream_support::chain;
use tokio::{select, sync::Notify, time::sleep};

mod demo;
mod options;
mod output;
mod stop_signal;
mod timings;

use crate::{demo::Demo, options::Options, output::Output, stop_signal::StopSignal};

/// How many records the worker handles at the same time, at most one of each partition key.
const AT_ONCE: usize = 64;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    options::log();
    let output = Output::new(options.owner());
    match run(options, &output).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            output.error(&*failure);
            eprintln!("error: {}", chain(&*failure));
            ExitCode::FAILURE
        }
    }
}

/// An error that ends the program.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Consumes until a stop signal. Returns whether closing left nothing behind.
async fn run(mut options: Options, output: &Output) -> Result<bool, Failure> {
    let mut stop = StopSignal::listen()?;
    let demo = if options.is_demo() { Some(Demo::start(&mut options).await?) } else { None };
    let broker = options.broker(output.owner())?.connect().await?;
    let subscription = select! {
        subscription = broker.subscribe(options.descriptor()) => subscription?,
        () = stop.received() => {
            // This releases the leases taken so far.
            broker.shutdown().await;
            return Ok(true);
        }
    };
    output.ready();

    let (closer, enough) = (subscription.closer(), Notify::new());
    let consuming = consume(subscription, &options, output, &enough);
    let closing = async {
        select! {
            () = stop.received() => {}
            () = enough.notified() => {}
        }
        // This ends the stream, and so `consume`, once all records in flight are done.
        closer.close().await;
        future::pending().await
    };
    let ended = select! {
        ended = consuming => ended,
        ended = closing => ended,
        ended = demo::publish(demo.as_ref()) => ended,
    };
    let report = closer.close().await;
    broker.shutdown().await;
    ended?;
    output.closed(&report);
    Ok(report.is_clean())
}

/// Handles records, each key in order, until the stream ends.
async fn consume(records: Subscription, options: &Options, output: &Output, enough: &Notify) -> Result<(), Failure> {
    let work = options.work();
    let mut done = records.buffer_by_key(AT_ONCE, |delivery| handle(delivery, work, output));
    let mut left = options.limit.unwrap_or(usize::MAX);
    while let Some(outcome) = done.next().await {
        match outcome {
            Ok(()) => left = left.saturating_sub(1),
            Err(error) if error.class() == ErrorClass::Fatal => return Err(error.into()),
            // Either the library deals with it, or a record cannot be read.
            Err(error) => output.error(&error),
        }
        if left == 0 {
            enough.notify_one();
        }
    }
    Ok(())
}

/// Handles a record. A real worker works here; this one only waits and prints.
async fn handle(delivery: Delivery, work: Duration, output: &Output) -> Result<(), KinesisError> {
    let record = Output::record(&delivery);
    output.begun(&record);
    sleep(work).await;
    output.done(&record);
    let commit = delivery.commit().await?;
    output.settled(record, commit);
    Ok(())
}
