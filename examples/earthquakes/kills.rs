//! The consumer in a child process, which this process kills again and again: with `SIGKILL` on Unix, so it cannot
//! clean up.
//!
//! Its leases are in a file, which the next child opens. The child prints the status of each event, one a line, so the
//! tracker survives in this process. When this process closes the child's standard input, the child shuts down
//! gracefully.

use std::{
    env,
    io::{self, Read, Write},
    path::PathBuf,
    process::{ExitStatus, Stdio},
    sync::Arc,
    thread,
};

use kinesis_stream::ConnectedKinesisBroker;
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
    select,
    sync::{Notify, oneshot},
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{
    archive::Archive,
    consumer::{self, PATIENCE, caught_up},
    failure::Failure,
    options::Options,
    status::Status,
    summary::Consumed,
    tracker::EventTracker,
};

/// A consuming job, and what it needs.
pub(crate) struct Job<'a> {
    pub(crate) options: &'a Options,
    /// The Kinesis endpoint of the consumer.
    pub(crate) endpoint: Option<String>,
    pub(crate) archive: &'a Archive,
    pub(crate) tracker: &'a EventTracker,
    pub(crate) leases: PathBuf,
    pub(crate) run: &'a str,
    /// Notified once a consumer has subscribed, so the stream exists.
    pub(crate) ready: &'a Notify,
    pub(crate) interrupted: &'a CancellationToken,
}

impl Job<'_> {
    /// Consumes until every event is settled, with as many processes as that takes. Kills each one once it has settled
    /// `kill_after` events.
    pub(crate) async fn consume(&self, kill_after: usize) -> Result<Consumed, Failure> {
        let mut kills = 0;
        loop {
            let child = self.start().map_err(Failure::Consumer)?;
            match self.follow(child, kill_after).await? {
                None => {}
                Some(status) if status.success() => return Ok(Consumed::exited(kills)),
                // The consumer has printed the reason.
                Some(status) => return Err(Failure::Exited(status)),
            }
            self.tracker.killed(self.archive.written()?.into_iter().map(|quake| quake.id));
            kills += 1;
        }
    }

    fn start(&self) -> io::Result<Child> {
        let mut consumer = Command::new(env::current_exe()?);
        consumer.args(["--consume", self.run, "--stream", self.options.stream()]);
        consumer.arg("--leases").arg(&self.leases).arg("--out").arg(self.archive.path());
        let places = [("--endpoint", self.endpoint.as_ref()), ("--region", self.options.region.as_ref())];
        for (name, value) in places.into_iter().filter_map(|(name, value)| Some((name, value?))) {
            consumer.args([name, value]);
        }
        consumer.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()
    }

    /// Tracks the output of the consumer until it ends. `None` if this process killed it.
    async fn follow(&self, mut consumer: Child, kill_after: usize) -> Result<Option<ExitStatus>, Failure> {
        let mut output = consumer.stdout.take().map(|output| BufReader::new(output).lines());
        let mut input = consumer.stdin.take();
        let done = async {
            select! {
                () = self.tracker.complete() => {}
                () = self.tracker.idle(PATIENCE) => {}
                () = self.interrupted.cancelled() => {}
            }
        };
        let share = self.tracker.settled_since_start(kill_after);
        tokio::pin!(done, share);
        let mut killed = false;
        while let Some(lines) = &mut output {
            select! {
                biased;
                () = &mut share, if !killed && input.is_some() => {
                    consumer.start_kill().map_err(Failure::Consumer)?;
                    killed = true;
                }
                line = lines.next_line() => match line.map_err(Failure::Consumer)? {
                    Some(line) => self.handle_line(&line)?,
                    None => output = None,
                },
                () = &mut done, if input.is_some() => input = None,
            }
        }
        let status = consumer.wait().await.map_err(Failure::Consumer)?;
        Ok((!killed).then_some(status))
    }

    fn handle_line(&self, line: &str) -> Result<(), Failure> {
        let status = line.parse().map_err(Failure::UnknownStatus)?;
        if status == Status::Ready {
            self.ready.notify_one();
        }
        self.tracker.update(status);
        Ok(())
    }
}

/// The main function of the child process.
pub(crate) async fn consume(
    broker: &ConnectedKinesisBroker,
    options: &Options,
    run: &str,
    interrupted: &CancellationToken,
) -> Result<bool, Failure> {
    // If the parent is gone, writing fails; standard input ends then, too, and so does this process.
    let report = |status: Status| drop(writeln!(io::stdout(), "{status}"));
    let archive = Arc::new(Archive::reopen(&options.out(), report)?);
    let subscription = broker.subscribe(options.descriptor()).await?;
    archive.report(Status::Ready);
    let stats = subscription.stats_handle();
    let closing = async {
        select! {
            () = stdin_ends() => {}
            () = interrupted.cancelled() => return,
        }
        // After that time, the parent reports missing events.
        drop(timeout(PATIENCE, caught_up(&stats)).await);
    };
    let report = consumer::archive_all(subscription, &Arc::from(run), &archive, closing).await?;
    if !report.is_clean() {
        eprintln!("closing left something behind: {report:?}");
    }
    Ok(report.is_clean())
}

/// Waits for the end of standard input. The reading thread does not keep the program alive.
async fn stdin_ends() {
    let (reads, ended) = oneshot::channel::<()>();
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        drop(reads);
    });
    let _ = ended.await;
}
