//! The consumer in a process of its own, which is killed again and again: `SIGKILL` on Unix, so it can tidy up nothing.
//!
//! Its leases are in a file, which the next one opens. What it wrote and settled it says line by line, so that the books
//! are kept where nobody is killed; and it closes in good order once nothing comes from here any more.

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
    books::Books,
    consumer::{self, PATIENCE, caught_up},
    failure::Failure,
    news::News,
    options::Options,
    summary::Consumed,
};

/// What is to be done, and with what.
pub(crate) struct Job<'a> {
    pub(crate) options: &'a Options,
    /// Where the consumer is to find Kinesis.
    pub(crate) endpoint: Option<String>,
    pub(crate) archive: &'a Archive,
    pub(crate) books: &'a Books,
    pub(crate) leases: PathBuf,
    pub(crate) run: &'a str,
    /// Rung when a consumer is there, and the stream with it.
    pub(crate) ready: &'a Notify,
    pub(crate) interrupted: &'a CancellationToken,
}

impl Job<'_> {
    /// Consumes until every event is settled, over as many processes as that takes, each killed once it has settled so
    /// many events.
    pub(crate) async fn consume(&self, kill_after: usize) -> Result<Consumed, Failure> {
        let mut kills = 0;
        loop {
            let child = self.start().map_err(Failure::Consumer)?;
            match self.follow(child, kill_after).await? {
                None => {}
                Some(status) if status.success() => return Ok(Consumed::exited(kills)),
                // It has said why.
                Some(status) => return Err(Failure::Exited(status)),
            }
            self.books.killed(self.archive.written()?.into_iter().map(|quake| quake.id));
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

    /// Enters what the consumer says until it is gone. None, if it was killed from here.
    async fn follow(&self, mut consumer: Child, kill_after: usize) -> Result<Option<ExitStatus>, Failure> {
        let mut words = consumer.stdout.take().map(|words| BufReader::new(words).lines());
        let mut wanted = consumer.stdin.take();
        let done = async {
            select! {
                () = self.books.complete() => {}
                () = self.books.idle(PATIENCE) => {}
                () = self.interrupted.cancelled() => {}
            }
        };
        let share = self.books.settled_since_start(kill_after);
        tokio::pin!(done, share);
        let mut killed = false;
        while let Some(lines) = &mut words {
            select! {
                biased;
                () = &mut share, if !killed && wanted.is_some() => {
                    consumer.start_kill().map_err(Failure::Consumer)?;
                    killed = true;
                }
                line = lines.next_line() => match line.map_err(Failure::Consumer)? {
                    Some(line) => self.hear(&line)?,
                    None => words = None,
                },
                () = &mut done, if wanted.is_some() => wanted = None,
            }
        }
        let status = consumer.wait().await.map_err(Failure::Consumer)?;
        Ok((!killed).then_some(status))
    }

    fn hear(&self, line: &str) -> Result<(), Failure> {
        let news = line.parse().map_err(Failure::Unheard)?;
        if news == News::Ready {
            self.ready.notify_one();
        }
        self.books.enter(news);
        Ok(())
    }
}

/// What the process is that gets killed.
pub(crate) async fn consume(
    broker: &ConnectedKinesisBroker,
    options: &Options,
    run: &str,
    interrupted: &CancellationToken,
) -> Result<bool, Failure> {
    // Whoever listens may be gone; then nothing comes from there either, and this ends.
    let tell = |news: News| drop(writeln!(io::stdout(), "{news}"));
    let archive = Arc::new(Archive::go_on(&options.out(), tell)?);
    let subscription = broker.subscribe(options.descriptor()).await?;
    archive.tell(News::Ready);
    let stats = subscription.stats_handle();
    let closing = async {
        select! {
            () = stdin_ends() => {}
            () = interrupted.cancelled() => return,
        }
        // What is late by then is left to whoever counts.
        drop(timeout(PATIENCE, caught_up(&stats)).await);
    };
    let report = consumer::archive_all(subscription, &Arc::from(run), &archive, closing).await?;
    if !report.is_clean() {
        eprintln!("closing left something behind: {report:?}");
    }
    Ok(report.is_clean())
}

/// Waits for the end of the input. The thread that reads it holds nothing up if the program ends before.
async fn stdin_ends() {
    let (reads, ended) = oneshot::channel::<()>();
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        drop(reads);
    });
    let _ = ended.await;
}
