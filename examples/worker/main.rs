//! One of several instances of a consumer, with its leases in DynamoDB: start as many as you like, anywhere, and each
//! reads its share of the shards; kill one, and the others take its shards over.
//!
//! `cargo run --example worker --features dynamodb` needs nothing else: it starts a Kinesis and a DynamoDB in this
//! process, has a few earthquakes a second put into a stream, and says how to start a second worker beside it.
//! `--stream`, `--endpoint`, `--dynamodb-endpoint` and `--region` lead to real ones.
//!
//! What it does it says line by line, as JSON: `begun`, `done` and `settled` for each record, `error` for whatever the
//! stream has to tell, `closed` in the end. It closes in good order on SIGTERM and on Ctrl-C. The exit code is not 0
//! after a fatal error, or if closing left something behind.

use std::{process::ExitCode, time::Duration};

use clap::Parser;
use kinesis_stream::prelude::*;
use kinesis_stream_support::chain;
use tokio::{select, sync::Notify, time::sleep};

mod demo;
mod lines;
mod options;
mod stop;
mod times;

use crate::{demo::Demo, lines::Lines, options::Options, stop::Stop};

/// Records that are worked on at the same time, at most one of each partition key.
const AT_ONCE: usize = 64;

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    options::log();
    let lines = Lines::new(options.owner());
    match run(options, &lines).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            lines.error(&*failure);
            eprintln!("error: {}", chain(&*failure));
            ExitCode::FAILURE
        }
    }
}

/// Whatever ends the program early.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Consumes until it is asked to stop. Whether nothing was left behind.
async fn run(mut options: Options, lines: &Lines) -> Result<bool, Failure> {
    let mut stop = Stop::listen()?;
    let demo = if options.is_demo() { Some(Demo::start(&mut options).await?) } else { None };
    let broker = options.broker(lines.owner())?.connect().await?;
    let subscription = select! {
        subscription = broker.subscribe(options.descriptor()) => subscription?,
        () = stop.asked() => {
            // What was taken so far is let go.
            broker.shutdown().await;
            return Ok(true);
        }
    };
    lines.ready();

    let (closer, enough) = (subscription.closer(), Notify::new());
    let consuming = consume(subscription, &options, lines, &enough);
    let closing = async {
        select! {
            () = stop.asked() => {}
            () = enough.notified() => {}
        }
        // This ends the stream, and so `consume`, once everything in flight is done.
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
    lines.closed(&report);
    Ok(report.is_clean())
}

/// Works on whatever comes, each key in its order, until the stream ends.
async fn consume(records: Subscription, options: &Options, lines: &Lines, enough: &Notify) -> Result<(), Failure> {
    let work = options.work();
    let mut done = records.buffer_by_key(AT_ONCE, |delivery| handle(delivery, work, lines));
    let mut left = options.limit.unwrap_or(usize::MAX);
    while let Some(outcome) = done.next().await {
        match outcome {
            Ok(()) => left = left.saturating_sub(1),
            Err(error) if error.class() == ErrorClass::Fatal => return Err(error.into()),
            // The library deals with it, or it is a record that cannot be read.
            Err(error) => lines.error(&error),
        }
        if left == 0 {
            enough.notify_one();
        }
    }
    Ok(())
}

/// What there is to do for a record: here nothing but to take some time, and to tell of it.
async fn handle(delivery: Delivery, work: Duration, lines: &Lines) -> Result<(), KinesisError> {
    let record = Lines::record(&delivery);
    lines.begun(&record);
    sleep(work).await;
    lines.done(&record);
    let commit = delivery.commit().await?;
    lines.settled(record, commit);
    Ok(())
}
