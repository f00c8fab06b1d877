//! A week of earthquakes through Kinesis and into a file, one JSON object a line.
//!
//! `cargo run --example earthquakes` needs nothing else: it starts a Kinesis in this process, publishes 1,707 events
//! into a stream of four shards, reads them as one stream, and checks that every event arrived, in order within its
//! seismic network. `--restart-after N` drops the subscription again and again on the way; `--stream`, `--endpoint` and
//! `--region` lead to a Kinesis elsewhere. The exit code is not 0 if a promise was broken.

use std::{future::pending, num::NonZeroUsize, process::ExitCode, sync::Arc, time::Duration};

use clap::Parser;
use kinesis_stream::{CloseReport, ConnectedKinesisBroker, ShardStats, StatsHandle, prelude::*};
use kinesis_stream_support::{Emulator, unique};
use tokio::{
    select, signal,
    time::{Instant, sleep},
};
use tokio_util::sync::CancellationToken;

mod archive;
mod failure;
mod options;
mod producer;
mod progress;
mod quake;
mod summary;

use crate::{archive::Archive, failure::Failure, options::Options, progress::Counts, quake::Quake, summary::Summary};

/// When nothing has arrived for so long, what is missing is lost.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    options.log();
    match run(&options).await {
        Ok(summary) => {
            println!("{summary}");
            if summary.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(failure) => {
            eprintln!("error: {failure}");
            ExitCode::FAILURE
        }
    }
}

async fn run(options: &Options) -> Result<Summary, Failure> {
    let emulator = options.is_embedded().then(Emulator::start);
    let broker = options.broker(emulator.as_ref()).connect().await?;
    let counts = Arc::new(Counts::new());
    let archive = Arc::new(Archive::create(&options.out(), Arc::clone(&counts))?);
    let interrupted = interrupted();
    let run = Arc::from(unique("run"));
    let job = Job { broker, options, archive: Arc::clone(&archive), run, interrupted: interrupted.clone() };

    let begun = Instant::now();
    let subscription = job.subscribe().await?;
    let publisher = job.broker.publisher();
    let publishing = producer::publish(&publisher, options.stream(), &job.run, &counts);
    // A producer that is interrupted has done what it was asked to.
    let publishing = async { interrupted.run_until_cancelled(publishing).await.unwrap_or(Ok(())) };
    let done = progress::shown(&counts, future::try_join(publishing, job.consume(subscription))).await;
    let took = begun.elapsed();

    job.broker.shutdown().await;
    let ((), Consumed { report, restarts }) = done?;
    let interrupted = interrupted.is_cancelled();
    Ok(Summary {
        networks: summary::networks(&archive.written()?),
        archive,
        counts,
        report,
        restarts,
        took,
        interrupted,
    })
}

/// What is to be done, and with what.
struct Job<'a> {
    broker: ConnectedKinesisBroker,
    options: &'a Options,
    archive: Arc<Archive>,
    /// Names the records of this run: there may be others in the stream.
    run: Arc<str>,
    interrupted: CancellationToken,
}

/// How a subscription ended.
enum Ended {
    /// In good order.
    Closed(CloseReport),
    /// It was dropped in the middle of its work.
    Dropped,
}

struct Consumed {
    report: CloseReport,
    restarts: usize,
}

impl Job<'_> {
    async fn subscribe(&self) -> Result<Subscription, KinesisError> {
        self.broker.subscribe(self.options.descriptor()).await
    }

    /// Consumes until every event is settled, over as many subscriptions as that takes. The leases stay with the broker,
    /// so each goes on where the one before it had come to.
    async fn consume(&self, mut subscription: Subscription) -> Result<Consumed, Failure> {
        let mut restarts = 0;
        loop {
            match self.archive_all(subscription).await? {
                Ended::Closed(report) => return Ok(Consumed { report, restarts }),
                Ended::Dropped => self.archive.dropped(),
            }
            restarts += 1;
            subscription = self.subscribe().await?;
        }
    }

    /// The pipeline: decode, append, commit.
    async fn archive_all(&self, subscription: Subscription) -> Result<Ended, Failure> {
        let (file, books) = (Arc::clone(&self.archive), Arc::clone(&self.archive));
        let run = Arc::clone(&self.run);
        let (closer, stats) = (subscription.closer(), subscription.stats_handle());
        let pipeline = subscription
            .tolerant()
            // Up to 64 events are worked on at a time, and leave in the order in which they came.
            .map(move |delivery| {
                let run = Arc::clone(&run);
                async move { decode(delivery?, &run) }
            })
            .buffered(64)
            .try_filter_map(future::ok)
            // What is there by now, 64 events at most, is one append. They go one after the other, so that the file has
            // the order of the shards.
            .try_ready_chunks(64)
            .map_err(|failed| failed.1)
            .and_then(move |quakes| Arc::clone(&file).append(quakes))
            .map_ok(|quakes| stream::iter(quakes).map(Ok))
            .try_flatten()
            // Commits that wait together share one write to the lease table.
            .map_ok(move |quake| Arc::clone(&books).settle(quake))
            .try_buffer_unordered(64)
            .try_for_each(future::ok);
        let closing = async {
            select! {
                () = self.archive.complete().then(|()| caught_up(&stats)) => {}
                () = self.archive.idle(PATIENCE) => {}
                () = self.interrupted.cancelled() => {}
            }
            Ok(closer.close().await)
        };
        select! {
            biased;
            ended = future::try_join(pipeline, closing) => ended.map(|((), report)| Ended::Closed(report)),
            () = self.restart(self.options.restart_after) => Ok(Ended::Dropped),
        }
    }

    /// Waits until this subscription has settled its share.
    async fn restart(&self, after: Option<NonZeroUsize>) {
        let Some(after) = after else { return pending().await };
        self.archive.settled_since_start(after.get()).await;
        if self.interrupted.is_cancelled() {
            pending::<()>().await;
        }
    }
}

/// The event in a record; none in a record of another run, which is acknowledged and left alone.
fn decode(delivery: Delivery, run: &str) -> Result<Option<Delivery<Quake>>, Failure> {
    if delivery.headers().get(producer::RUN).is_none_or(|value| value != run) {
        delivery.ack();
        return Ok(None);
    }
    Ok(Some(delivery.try_map(|json| Quake::parse(json)).map_err(Box::new)?))
}

/// Waits until every shard is read up to its tip and everything from it is settled. After a restart it takes that to
/// know whether records come again.
async fn caught_up(stats: &StatsHandle) {
    let done = |shard: &ShardStats| shard.behind == Some(Duration::ZERO) && shard.in_flight == 0;
    loop {
        let now = stats.snapshot();
        if now.bytes_held == 0 && now.shards.iter().all(done) {
            return;
        }
        sleep(Duration::from_millis(20)).await;
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
