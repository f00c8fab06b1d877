//! Shows the progress of the job: a bar if stdout is a terminal, otherwise a line a second.

use std::{
    fmt,
    io::{IsTerminal, stdout},
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tokio::{
    select,
    time::{Instant, interval},
};

use crate::quake;

/// The counters of a run.
#[derive(Debug)]
pub(crate) struct Counts {
    begun: Instant,
    published: AtomicUsize,
    settled: AtomicUsize,
}

impl Counts {
    pub(crate) fn new() -> Self {
        Self { begun: Instant::now(), published: AtomicUsize::new(0), settled: AtomicUsize::new(0) }
    }

    pub(crate) fn published(&self) {
        self.published.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_settled(&self, settled: usize) {
        self.settled.store(settled, Ordering::Relaxed);
    }

    pub(crate) fn all_published(&self) -> usize {
        self.published.load(Ordering::Relaxed)
    }

    fn settled(&self) -> usize {
        self.settled.load(Ordering::Relaxed)
    }
}

/// The rate so far, and the records in flight.
impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settled = self.settled();
        let (published, millis) = (self.all_published(), self.begun.elapsed().as_millis().max(1));
        let (rate, open) = (settled as u128 * 1_000 / millis, published.saturating_sub(settled));
        write!(f, "{rate} records/s; {published} published, {settled} settled, {open} in flight")
    }
}

/// Runs the job to its end, and shows its progress.
pub(crate) async fn shown<T: Send>(counts: &Counts, job: impl Future<Output = T> + Send) -> T {
    let terminal = stdout().is_terminal();
    let bar = bar(terminal);
    let mut ticks = interval(if terminal { Duration::from_millis(100) } else { Duration::from_secs(1) });
    ticks.tick().await;
    tokio::pin!(job);
    let done = loop {
        select! {
            done = &mut job => break done,
            _ = ticks.tick() => show(counts, &bar),
        }
    };
    show(counts, &bar);
    bar.abandon();
    done
}

fn bar(terminal: bool) -> ProgressBar {
    let target = if terminal { ProgressDrawTarget::stdout() } else { ProgressDrawTarget::hidden() };
    let all = u64::try_from(quake::all()).unwrap_or_default();
    let style = ProgressStyle::with_template("{bar:20} {msg}");
    ProgressBar::with_draw_target(Some(all), target).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn show(counts: &Counts, bar: &ProgressBar) {
    if bar.is_hidden() {
        println!("{counts}");
    } else {
        bar.set_position(u64::try_from(counts.settled()).unwrap_or_default());
        bar.set_message(counts.to_string());
    }
}
