//! A week of earthquakes through Kinesis and into a file, one JSON object a line.
//!
//! `cargo run --example earthquakes` needs nothing else: it starts a Kinesis in this process, publishes 1,707 events
//! into a stream of four shards, reads them as one stream, and checks that every event arrived, in order within its
//! seismic network. `--restart-after N` drops the subscription again and again on the way; `--kill-after N` has the
//! consumer in a process of its own, with its leases in a file, and kills that process; `--stream`, `--endpoint` and
//! `--region` lead to a Kinesis elsewhere. The exit code is not 0 if a promise was broken.

use std::{fs, process::ExitCode, sync::Arc};

use clap::Parser;
use kinesis_stream::{ConnectedKinesisBroker, prelude::*};
use kinesis_stream_support::{Emulator, chain, unique};
use tokio::{signal, sync::Notify, time::Instant};
use tokio_util::sync::CancellationToken;

mod archive;
mod books;
mod consumer;
mod failure;
mod kills;
mod news;
mod options;
mod producer;
mod progress;
mod quake;
mod restarts;
mod summary;

use crate::{
    archive::Archive,
    books::Books,
    failure::Failure,
    options::Options,
    progress::Counts,
    summary::{Consumed, Summary},
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

/// The consumer that gets killed.
async fn consume(options: &Options, run: &str) -> Result<bool, Failure> {
    let broker = options.broker(None)?.connect().await?;
    let done = kills::consume(&broker, options, run, &interrupted()).await;
    broker.shutdown().await;
    done
}

async fn run(options: &Options) -> Result<Summary, Failure> {
    let emulator = options.is_embedded().then(Emulator::start);
    let counts = Arc::new(Counts::new());
    let books = Arc::new(Books::new(Arc::clone(&counts)));
    let entered = Arc::clone(&books);
    let archive = Arc::new(Archive::create(&options.out(), move |news| entered.enter(news))?);
    let interrupted = interrupted();
    let run =
        Run { options, emulator, id: Arc::from(unique("run")), counts: &counts, books: &books, archive: &archive };

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
        books,
        counts,
        consumed,
    })
}

/// What both ways to run it have in common.
struct Run<'a> {
    options: &'a Options,
    emulator: Option<Emulator>,
    /// Names the records of this run: there may be others in the stream.
    id: Arc<str>,
    counts: &'a Arc<Counts>,
    books: &'a Books,
    archive: &'a Arc<Archive>,
}

impl Run<'_> {
    async fn in_this_process(&self, interrupted: &CancellationToken) -> Result<Consumed, Failure> {
        let broker = self.options.broker(self.emulator.as_ref())?.connect().await?;
        let job = restarts::Job {
            broker: &broker,
            options: self.options,
            archive: self.archive,
            books: self.books,
            run: &self.id,
            interrupted,
        };
        let subscription = job.subscribe().await?;
        let work = future::try_join(self.publish(&broker, interrupted), job.consume(subscription));
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
            books: self.books,
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
            // It is of no more use, and if it cannot be removed it lies among other temporary files.
            let _ = fs::remove_file(leases);
        }
        done.map(|((), consumed)| consumed)
    }

    /// A producer that is interrupted has done what it was asked to.
    async fn publish(&self, broker: &ConnectedKinesisBroker, interrupted: &CancellationToken) -> Result<(), Failure> {
        let publisher = broker.publisher();
        let publishing = producer::publish(&publisher, self.options.stream(), &self.id, self.counts);
        interrupted.run_until_cancelled(publishing).await.unwrap_or(Ok(()))
    }
}

/// Cancelled by Ctrl-C. A second one ends the program at once.
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
