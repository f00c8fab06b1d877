//! Reads a week of earthquakes from Kinesis and archives them to a file, one JSON object a line.
//!
//! `cargo run --example earthquakes` needs nothing else. It starts a Kinesis emulator in this process, publishes 1,707
//! events to a stream of four shards, reads them as one stream, and checks that every event arrived, in order within
//! its seismic network. `--restart-after N` drops the subscription again and again; `--kill-after N` runs the consumer
//! in a child process, with its leases in a file, and kills that process; `--stream`, `--endpoint` and `--region`
//! select another Kinesis. The exit code is not 0 if a promise was broken.

use std::{fs, process::ExitCode, sync::Arc};

use clap::Parser;
use kinesis_stream::{ConnectedKinesisBroker, prelude::*};
use kinesis_stream_support::{Emulator, chain, unique};
use tokio::{signal, sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

mod archive;
mod consumer;
mod failure;
mod kills;
mod options;
mod producer;
mod progress;
mod quake;
mod restarts;
mod status;
mod summary;
mod tracker;

use crate::{
    archive::Archive,
    failure::Failure,
    options::Options,
    progress::Counts,
    summary::{Consumed, Summary},
    tracker::EventTracker,
};

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    options.log();
    let done = match &options.consume {
        Some(run) => consume(&options, run).await,
        None => run(&options).await.map(|summary| {
            println!("{summary}");
            summary.is_good()
        }),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(failure) => {
            eprintln!("error: {}", chain(&failure));
            ExitCode::FAILURE
        }
    }
}

/// Runs as the child process.
async fn consume(options: &Options, run: &str) -> Result<bool, Failure> {
    let broker = options.broker(None)?.connect().await?;
    let done = kills::consume(&broker, options, run, &interrupted()).await;
    broker.shutdown().await;
    done
}

async fn run(options: &Options) -> Result<Summary, Failure> {
    let emulator = options.is_embedded().then(Emulator::start);
    let counts = Arc::new(Counts::new());
    let tracker = Arc::new(EventTracker::new(Arc::clone(&counts)));
    let updated = Arc::clone(&tracker);
    let archive = Arc::new(Archive::create(&options.out(), move |status| updated.update(status))?);
    let interrupted = interrupted();
    let run =
        Run { options, emulator, id: Arc::from(unique("run")), counts: &counts, tracker: &tracker, archive: &archive };

    let begun = Instant::now();
    let consumed = match options.kill_after {
        Some(kill_after) => run.with_kills(kill_after.get(), &interrupted).await?,
        None => run.in_this_process(&interrupted).await?,
    };
    Ok(Summary {
        networks: summary::networks(&archive.written()?),
        took: begun.elapsed(),
        interrupted: interrupted.is_cancelled(),
        archive,
        tracker,
        counts,
        consumed,
    })
}

/// What both ways to consume share.
struct Run<'a> {
    options: &'a Options,
    emulator: Option<Emulator>,
    /// Marks the records of this run, because the stream may hold others.
    id: Arc<str>,
    counts: &'a Arc<Counts>,
    tracker: &'a EventTracker,
    archive: &'a Arc<Archive>,
}

impl Run<'_> {
    async fn in_this_process(&self, interrupted: &CancellationToken) -> Result<Consumed, Failure> {
        let broker = self.options.broker(self.emulator.as_ref())?.connect().await?;
        let job = restarts::Job {
            broker: &broker,
            options: self.options,
            archive: self.archive,
            tracker: self.tracker,
            run: &self.id,
            interrupted,
        };
        let subscription = job.subscribe().await?;
        let work = future::try_join(self.publish(&broker, interrupted), Box::pin(job.consume(subscription)));
        let done = progress::shown(self.counts, work).await;
        broker.shutdown().await;
        done.map(|((), consumed)| consumed)
    }

    async fn with_kills(&self, kill_after: usize, interrupted: &CancellationToken) -> Result<Consumed, Failure> {
        let broker = self.options.producer(self.emulator.as_ref()).connect().await?;
        let (ready, leases) = (Notify::new(), self.options.leases_of_consumer());
        let job = kills::Job {
            options: self.options,
            endpoint: self.options.endpoint(self.emulator.as_ref()),
            archive: self.archive,
            tracker: self.tracker,
            leases: leases.clone(),
            run: &self.id,
            ready: &ready,
            interrupted,
        };
        let publishing = async {
            interrupted.run_until_cancelled(ready.notified()).await;
            self.publish(&broker, interrupted).await
        };
        let done = progress::shown(self.counts, future::try_join(publishing, job.consume(kill_after))).await;
        broker.shutdown().await;
        if self.options.leases.is_none() {
            // It is no longer needed. If it cannot be removed, it stays among the temporary files.
            let _ = fs::remove_file(leases);
        }
        done.map(|((), consumed)| consumed)
    }

    /// Publishes all events. Returns `Ok` if interrupted.
    async fn publish(&self, broker: &ConnectedKinesisBroker, interrupted: &CancellationToken) -> Result<(), Failure> {
        let publisher = broker.publisher();
        let publishing = producer::publish(&publisher, self.options.stream(), &self.id, self.counts);
        interrupted.run_until_cancelled(publishing).await.unwrap_or(Ok(()))
    }
}

/// A token that Ctrl-C cancels. A second Ctrl-C ends the program at once.
fn interrupted() -> CancellationToken {
    let interrupted = CancellationToken::new();
    let token = interrupted.clone();
    tokio::spawn(async move {
        while signal::ctrl_c().await.is_ok() {
            if token.is_cancelled() {
                std::process::exit(130);
            }
            token.cancel();
        }
    });
    interrupted
}
