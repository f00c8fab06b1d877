//! Reading one shard: the loop over GetRecords, and what it does about every answer (R1, R7 to R10).
//!
//! A reader runs ahead of the user by one page: [`Reader::next_page`] goes on by itself through empty answers,
//! throttles, expired iterators and errors until it holds records, and stops there.

use std::{mem, sync::Arc};

use tokio::time::{Duration, Instant, sleep_until, timeout};
use tracing::Span;

use crate::{
    budget::{Forecast, Grant},
    config::position::Origin,
    error::service::ServiceFailure,
    kinesis::{Fetched, ListedShard, Placed, RawRecord, ServiceTime},
    reading::{
        pacing::{Answer, Pace},
        slow_reads::Lag,
        stuck_iterator::Stall,
    },
    state::{
        context::SubscriptionContext,
        page::{Page, Weight},
        shard::{Opening, Over, Shard},
    },
    types::id::SequenceNumber,
};

mod failures;

/// How long a read keeps room for what it may bring: as long as the largest answer takes at the pace of a shard. Few of those that
/// hang would otherwise keep all others from reading.
const KEEPS_ROOM: Duration = Duration::from_secs(5);

/// Taken off the moment at which a shard was opened at LATEST when it is opened anew: the `Date` of an answer has whole
/// seconds, and two hosts of the service may differ a little. It may repeat a record of that second; it loses none.
const CLOCK_SLACK_MILLIS: i64 = 1_000;

/// Where the next read begins.
#[derive(Debug)]
enum Cursor {
    /// A new iterator has to be fetched.
    Lost,
    At(String),
    /// Everything there was is read, and more is not asked for.
    Tip,
    /// The shard has no more records; these are its children, if the service tells them.
    End(Vec<ListedShard>),
}

/// The reader of one shard under one lease.
#[derive(Debug)]
pub(crate) struct Reader {
    context: Arc<SubscriptionContext>,
    shard: Arc<Shard>,
    opening: Opening,
    cursor: Cursor,
    /// Where a new iterator is placed: after the last record that was read, or where the shard was opened.
    resume: Origin,
    pace: Pace,
    failures: u32,
    /// How much the next read may bring.
    forecast: Forecast,
    /// A record was read under this lease, so that its row holds a place.
    marked: bool,
    /// Whether the checkpoint at which it began leads nowhere.
    stall: Stall,
    /// Whether it falls behind because of how few records its reads ask for.
    lag: Lag,
    /// How long the stream keeps its records.
    retention: Option<Duration>,
    /// Says where it reads, to whatever is logged while it does.
    span: Span,
}

/// What a step came to.
enum Step {
    Page(Page),
    /// Go on: what was to be reported or waited for is taken care of.
    Again,
    /// There is nothing to read any more: the reader gave up, or its lease is over.
    Stopped,
}

impl Reader {
    /// A reader that begins at `origin`.
    pub(crate) fn new(shard: Arc<Shard>, opening: Opening, origin: Origin, retention: Option<Duration>) -> Self {
        let context = Arc::clone(&shard.context);
        let (stream, shard_id, epoch) = (&context.stream, &shard.id, opening.epoch);
        let span = tracing::info_span!("read", %stream, shard = %shard_id, epoch);
        let forecast = match origin {
            Origin::Latest => Forecast::AtTip { since: Instant::now(), answer: 0 },
            _ => Forecast::Unknown,
        };
        Self {
            span,
            pace: Pace::new(context.settings.reads_per_second, context.settings.poll_interval),
            context,
            shard,
            opening,
            cursor: Cursor::Lost,
            resume: origin,
            failures: 0,
            forecast,
            marked: false,
            stall: Stall::default(),
            lag: Lag::default(),
            retention,
        }
    }

    /// With its first iterator.
    pub(crate) fn at(self, iterator: String) -> Self {
        Self { cursor: Cursor::At(iterator), ..self }
    }

    pub(crate) fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    pub(crate) fn opening(&self) -> &Opening {
        &self.opening
    }

    /// Fetches the first iterator, once. A failure is reported and counts; the reader then finds its place again at
    /// `moment`, the opening of the subscription, so that LATEST does not move (L5).
    pub(crate) async fn open(&mut self, moment: ServiceTime) {
        let mut placed = self.iterator().await;
        if let Err(failure) = &placed
            && self.refuses_checkpoint(failure)
        {
            self.lose_checkpoint(Some(failure.clone()));
            placed = self.iterator().await;
        }
        let now = placed.as_ref().ok().and_then(|placed| placed.now).unwrap_or(moment);
        if self.resume == Origin::Latest {
            self.resume = since(now);
        }
        self.shard.begins_at(self.resume.clone());
        match placed {
            Ok(placed) => self.cursor = Cursor::At(placed.iterator),
            // One failure is not yet a reason to stop.
            Err(failure) => drop(self.hindered_by(failure)),
        }
    }

    /// Reads until there are records to hand out. None when the shard is at its end, the reader gave up, or its lease
    /// is over; the shard knows which.
    pub(crate) async fn next_page(mut self) -> Option<(Self, Page)> {
        let stop = self.opening.stop.clone();
        stop.run_until_cancelled(async move { self.read_on().await.map(|page| (self, page)) }).await?
    }

    async fn read_on(&mut self) -> Option<Page> {
        loop {
            let iterator = match &mut self.cursor {
                Cursor::End(children) => {
                    self.shard.at_end(self.opening.generation, mem::take(children));
                    return None;
                }
                Cursor::Tip => {
                    self.shard.at_tip(self.opening.generation);
                    return None;
                }
                Cursor::At(iterator) => Some(iterator.clone()),
                Cursor::Lost => None,
            };
            self.turn().await.ok()?;
            let step = match iterator {
                Some(iterator) => self.read(&iterator).await,
                None => self.place().await,
            };
            match step {
                Step::Again => {}
                Step::Page(page) => return Some(page),
                Step::Stopped => return None,
            }
        }
    }

    /// Waits until the next call may be sent: there is room for what it brings, and the pace allows it.
    async fn turn(&self) -> Result<(), Over> {
        self.shard.room(self.opening.generation).await?;
        // The timer has steps of a millisecond: also a moment that has passed would be waited for.
        if let Some(at) = self.pace.next_read().filter(|at| *at > Instant::now()) {
            sleep_until(at).await;
        }
        Ok(())
    }

    /// Fetches a new iterator at the place where reading goes on (R8).
    async fn place(&mut self) -> Step {
        match self.iterator().await {
            Ok(placed) => {
                self.cursor = Cursor::At(placed.iterator);
                Step::Again
            }
            Err(failure) => self.hindered_by(failure),
        }
    }

    async fn iterator(&self) -> Result<Placed, ServiceFailure> {
        self.context.service.place(&self.context.stream, &self.shard.id, &self.resume).await
    }

    /// One GetRecords.
    async fn read(&mut self, iterator: &str) -> Step {
        let mut grant = self.context.budget.admit(self.forecast).await;
        let limit = self.context.read_limit();
        match self.fetch(iterator, limit, &mut grant).await {
            Ok(fetched) => {
                self.watch_lag(&fetched, limit);
                self.received(fetched, limit, grant).await
            }
            Err(failure) => {
                drop(grant);
                self.hindered_by(failure)
            }
        }
    }

    async fn fetch(&self, iterator: &str, limit: u32, grant: &mut Grant) -> Result<Fetched, ServiceFailure> {
        let mut call = self.context.service.read(iterator, limit);
        if let Ok(answer) = timeout(KEEPS_ROOM, &mut call).await {
            return answer;
        }
        grant.late();
        call.await
    }

    /// Warns of a shard that falls behind at the pace of its reads, where these ask for less than they were set to.
    fn watch_lag(&mut self, fetched: &Fetched, limit: u32) {
        let settings = &self.context.settings;
        let is_full = limit < settings.read_limit && fetched.records.len() >= limit as usize;
        let behind = behind(fetched);
        if self.lag.grows(Instant::now(), behind.filter(|_| is_full), settings.reads_per_second) {
            self.context.warn_of_small_reads(&self.shard.id, behind.unwrap_or_default());
        }
    }

    async fn received(&mut self, fetched: Fetched, limit: u32, mut grant: Grant) -> Step {
        let behind = behind(&fetched);
        let Fetched { records, next, children, .. } = fetched;
        self.failures = 0;
        self.shard.deny(false);
        let is_at_tip = behind.map_or(records.is_empty(), |behind| behind.is_zero());
        self.cursor = match next {
            // At the tip of a closed shard, its end is still to be seen.
            Some(_) if is_at_tip && self.context.settings.stop_at_tip && !self.shard.is_closed() => Cursor::Tip,
            Some(iterator) => Cursor::At(iterator),
            None => Cursor::End(children),
        };
        self.shard.count(|counts| {
            counts.reads += 1;
            counts.behind = behind;
        });
        let bytes = records.iter().map(size).sum();
        self.context.budget.learn(self.forecast, bytes);
        self.forecast = self.forecast.after(bytes, is_at_tip, Instant::now());
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            self.pace.answered(Instant::now(), Answer::Empty);
            self.suspect_checkpoint(behind);
            return Step::Again;
        };
        // A full page may have left some where the service does not know, and a closed shard has an end to be seen.
        let at_tip = is_at_tip && records.len() < limit as usize && !self.shard.is_closed();
        self.pace.answered(Instant::now(), Answer::Page { bytes, at_tip });
        grant.ready(bytes);
        self.resume = Origin::After(last.sequence_number.as_str().into());
        let (first, count) = (first.sequence_number.as_str().into(), records.len());
        let page = Page::new(self.opening.generation, records, grant, Weight::new(&self.shard.bytes_held, bytes));
        match self.enter(&first, count).await {
            Ok(()) => Step::Page(page),
            Err(Over) => Step::Stopped,
        }
    }

    /// Makes the books ready for the records of a page, before any of them is handed out (R13).
    async fn enter(&mut self, first: &SequenceNumber, count: usize) -> Result<(), Over> {
        self.shard.fetched(self.opening.generation, count)?;
        if !self.marked {
            self.shard.mark(&self.opening, first).await?;
            self.marked = true;
        }
        Ok(())
    }
}

/// Where a shard that was opened at LATEST at this moment is opened again (R8).
pub(crate) fn since(moment: ServiceTime) -> Origin {
    Origin::Timestamp(moment.0 - CLOCK_SLACK_MILLIS)
}

/// How far an answer is behind the tip of its shard.
fn behind(fetched: &Fetched) -> Option<Duration> {
    fetched.behind.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis)
}

/// What a record weighs: its data and its partition key, as the service counts.
fn size(record: &RawRecord) -> usize {
    record.data.len() + record.partition_key.as_ref().map_or(0, String::len)
}
