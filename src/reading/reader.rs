//! Reading one shard: the loop over GetRecords, and how it handles each response (R1, R7 to R10).
//!
//! A reader runs ahead of the user by one page: [`Reader::next_page`] continues through empty responses, throttles,
//! expired iterators and errors until it holds records, and stops there.
//!
//! **The reader retries GetRecords itself;** nothing below it does. It has to pace reads by the shard's limits and has
//! to know about each failed attempt.
//!
//! **A failure can ask for a look at the stream.** A refused position, a shard that the service does not find and an
//! expired iterator make the next listing check the stream's creation time as well (see
//! `coordination/coordinator/listing.rs`).

use std::{mem, sync::Arc};

use tokio::time::{Duration, Instant, sleep_until, timeout};
use tracing::{Instrument, Span};

use crate::{
    budget::{Forecast, Grant, RECORD_OVERHEAD},
    config::position::Origin,
    error::{service::ServiceFailure, work::Work},
    kinesis::{Fetched, ListedShard, Placed, RawRecord, ServiceTime},
    reading::{
        giving_up::FailedCalls,
        pacing::{Pace, ReadOutcome},
        refused_position::RefusedPosition,
        slow_reads::SlowReads,
        stuck_iterator::StuckIterator,
    },
    state::{
        context::SubscriptionContext,
        page::{HeldBytes, Page},
        shard::{GenerationOver, Shard, ShardOpening},
    },
    types::id::SequenceNumber,
};

mod failures;

/// After how long a read is late: as long as the largest response takes at a shard's byte rate. A few reads that hang
/// must not keep all others from reading.
const LATE_AFTER: Duration = Duration::from_secs(5);

/// Subtracted from the time at which a shard was opened at LATEST when it is reopened: the `Date` of a response has
/// whole seconds, and the clocks of two hosts of the service may differ. Reopening may repeat a record of that second;
/// it loses none.
const CLOCK_SLACK_MILLIS: i64 = 1_000;

/// Where the next read starts.
#[derive(Debug)]
enum Cursor {
    /// Nowhere: a new iterator has to be fetched.
    Lost,
    At(String),
    /// The tip is reached, and reading stops there.
    Tip,
    /// The shard has no more records. Its children, if the service names them.
    End(Vec<ListedShard>),
}

/// The reader of one shard under one lease.
#[derive(Debug)]
pub(crate) struct Reader {
    context: Arc<SubscriptionContext>,
    shard: Arc<Shard>,
    opening: ShardOpening,
    cursor: Cursor,
    /// Where a new iterator starts: after the last record that was read, or where the shard was opened.
    resume: Origin,
    pace: Pace,
    failed_calls: FailedCalls,
    /// Reads in a row whose iterator had expired.
    expired: u32,
    /// How many bytes the next read may bring.
    forecast: Forecast,
    /// A record was read under this lease, so its row holds a checkpoint.
    has_checkpoint: bool,
    /// A record was read since the iterator was placed. Until then, the position may lead nowhere.
    read_since_placed: bool,
    /// Detects a place that the service does not accept.
    refused_position: RefusedPosition,
    /// Detects a checkpoint that leads nowhere.
    stuck_iterator: StuckIterator,
    /// Detects that the shard lags because its reads ask for few records.
    slow_reads: SlowReads,
    /// Adds consumer, stream, shard and epoch to each log line of this reader.
    span: Span,
}

/// The outcome of one call.
enum ReadStep {
    Page(Page),
    /// No page yet: read again.
    Again,
    /// Nothing more to read: the reader gave up, or its generation is over.
    Stopped,
}

impl Reader {
    /// A reader that starts at `origin`.
    pub(crate) fn new(shard: Arc<Shard>, opening: ShardOpening, origin: Origin) -> Self {
        let context = Arc::clone(&shard.context);
        // At the level of errors, so that it is there for each line that is logged.
        let span = tracing::error_span!(
            "read", consumer = %context.consumer, stream = %context.stream, shard = %shard.id, epoch = opening.epoch
        );
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
            failed_calls: FailedCalls::default(),
            expired: 0,
            forecast,
            has_checkpoint: false,
            read_since_placed: false,
            refused_position: RefusedPosition::default(),
            stuck_iterator: StuckIterator::default(),
            slow_reads: SlowReads::default(),
        }
    }

    /// The same reader with its first iterator.
    pub(crate) fn at(self, iterator: String) -> Self {
        Self { cursor: Cursor::At(iterator), ..self }
    }

    pub(crate) fn shard(&self) -> &Arc<Shard> {
        &self.shard
    }

    pub(crate) fn opening(&self) -> &ShardOpening {
        &self.opening
    }

    /// Fetches the first iterator, once. A failure is reported and counts. Afterwards the reader retries at
    /// `subscribed_at`, the time at which the subscription was opened, so that LATEST does not move (L5).
    pub(crate) async fn open(&mut self, subscribed_at: ServiceTime) {
        let span = self.span.clone();
        self.open_at(subscribed_at).instrument(span).await;
    }

    /// Leaves the first iterator to [`next_page`](Self::next_page). The tip stays where it was at this time.
    pub(crate) fn open_later(&mut self, opened_at: ServiceTime) {
        if self.resume == Origin::Latest {
            self.resume = since(opened_at);
        }
        self.shard.set_first_opening(self.resume.clone());
    }

    async fn open_at(&mut self, subscribed_at: ServiceTime) {
        let sent_at = Instant::now();
        self.shard.count(|counts| counts.asked(sent_at));
        let placed = self.iterator().await;
        self.open_later(placed.as_ref().ok().and_then(|placed| placed.now).unwrap_or(subscribed_at));
        match placed {
            Ok(placed) => self.cursor = Cursor::At(placed.iterator),
            // One failure is no reason to stop.
            Err(failure) => drop(self.handle_failure(failure, sent_at)),
        }
    }

    /// Reads until there are records to deliver. None if the shard is at its end or its tip, the reader gave up, or its
    /// generation is over; the shard knows which.
    pub(crate) async fn next_page(mut self) -> Option<(Self, Page)> {
        let (stop, span) = (self.opening.stop.clone(), self.span.clone());
        let page = async move { self.read_until_page().await.map(|page| (self, page)) };
        stop.run_until_cancelled(page).instrument(span).await?
    }

    async fn read_until_page(&mut self) -> Option<Page> {
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
            self.wait_for_turn().await.ok()?;
            let step = match iterator {
                Some(iterator) => self.read(&iterator).await,
                None => self.fetch_iterator().await,
            };
            match step {
                ReadStep::Again => {}
                ReadStep::Page(page) => return Some(page),
                ReadStep::Stopped => return None,
            }
        }
    }

    /// Waits until the next call may be sent: the shard has room for its records, and the pace allows it.
    async fn wait_for_turn(&self) -> Result<(), GenerationOver> {
        self.shard.room(self.opening.generation).await?;
        // The timer has steps of a millisecond and would wait even for a time that has passed.
        if let Some(at) = self.pace.next_read().filter(|at| *at > Instant::now()) {
            sleep_until(at).await;
        }
        Ok(())
    }

    /// Fetches a new iterator at the place where reading continues (R8).
    async fn fetch_iterator(&mut self) -> ReadStep {
        let sent_at = Instant::now();
        self.shard.count(|counts| counts.asked(sent_at));
        match self.iterator().await {
            Ok(placed) => {
                self.cursor = Cursor::At(placed.iterator);
                self.read_since_placed = false;
                self.refused_position = RefusedPosition::default();
                self.stuck_iterator = StuckIterator::default();
                ReadStep::Again
            }
            Err(failure) => self.handle_failure(failure, sent_at),
        }
    }

    async fn iterator(&self) -> Result<Placed, ServiceFailure> {
        let placed = self.context.service.place(&self.context.stream, &self.shard.id, &self.resume).await?;
        if let Some(told) = placed.now {
            self.context.service_clock.note(told.0, Instant::now());
        }
        Ok(placed)
    }

    /// Makes one GetRecords call.
    async fn read(&mut self, iterator: &str) -> ReadStep {
        let mut grant = self.context.budget.admit(self.forecast).await;
        let (limit, sent_at) = (self.context.read_limit(), Instant::now());
        self.shard.count(|counts| counts.asked(sent_at));
        let response = self.fetch(iterator, limit, &mut grant).await;
        self.context.meter.read(sent_at.elapsed(), response.is_ok());
        match response {
            Ok(fetched) => {
                self.check_slow_reads(&fetched, limit);
                self.received(fetched, limit, grant).await
            }
            Err(failure) => {
                drop(grant);
                self.handle_failure(failure, sent_at)
            }
        }
    }

    async fn fetch(&self, iterator: &str, limit: u32, grant: &mut Grant) -> Result<Fetched, ServiceFailure> {
        let mut call = self.context.service.read(iterator, limit);
        if let Ok(response) = timeout(LATE_AFTER, &mut call).await {
            return response;
        }
        grant.late();
        call.await
    }

    /// Warns of a shard that falls behind at the full pace of its reads, if these ask for fewer records than the
    /// setting allows.
    fn check_slow_reads(&mut self, fetched: &Fetched, limit: u32) {
        let settings = &self.context.settings;
        let is_full = limit < settings.read_limit && fetched.records.len() >= limit as usize;
        let behind = behind(fetched);
        if self.slow_reads.falls_behind(Instant::now(), behind.filter(|_| is_full), settings.reads_per_second) {
            self.context.warn_of_small_reads(&self.shard.id, behind.unwrap_or_default());
        }
    }

    async fn received(&mut self, fetched: Fetched, limit: u32, mut grant: Grant) -> ReadStep {
        let behind = behind(&fetched);
        let Fetched { records, next, children, .. } = fetched;
        (self.failed_calls, self.expired) = (FailedCalls::default(), 0);
        self.context.read_health.good_read();
        self.context.succeeded(Work::ReadShards);
        self.shard.set_not_found(false);
        let is_closed = self.shard.view().is_closed();
        let is_at_tip = behind.map_or(records.is_empty(), |behind| behind.is_zero());
        self.cursor = match next {
            // At the tip of a closed shard, the reader still has to see its end.
            Some(_) if is_at_tip && self.context.settings.stop_at_tip && !is_closed => Cursor::Tip,
            Some(iterator) => Cursor::At(iterator),
            None => Cursor::End(children),
        };
        let bytes = records.iter().map(size).sum();
        self.shard.count(|counts| counts.answered(Instant::now(), records.len(), bytes, behind));
        let held_bytes = bytes + records.len() * RECORD_OVERHEAD;
        self.context.budget.learn(self.forecast, held_bytes);
        self.forecast = self.forecast.after(held_bytes, is_at_tip, Instant::now());
        let (Some(first), Some(last)) = (records.first(), records.last()) else {
            let outcome = if is_at_tip { ReadOutcome::Empty } else { ReadOutcome::Gap };
            self.pace.read_done(Instant::now(), outcome);
            self.suspect_position(behind).await;
            return ReadStep::Again;
        };
        // A full page may have left records behind where the service does not say how far behind it is, and the reader
        // still has to see the end of a closed shard.
        let at_tip = is_at_tip && records.len() < limit as usize && !is_closed;
        self.pace.read_done(Instant::now(), ReadOutcome::Page { bytes, at_tip });
        grant.ready(held_bytes);
        self.resume = Origin::After(last.sequence_number.as_str().into());
        self.read_since_placed = true;
        let (first, count) = (first.sequence_number.as_str().into(), records.len());
        let held = HeldBytes::new(&self.shard.bytes_held, held_bytes);
        let page = Page::new(self.opening.generation, records, grant, held);
        match self.prepare(&first, count).await {
            Ok(()) => ReadStep::Page(page),
            Err(GenerationOver) => ReadStep::Stopped,
        }
    }

    /// Prepares the shard for the records of a page, before any of them is delivered (R13).
    async fn prepare(&mut self, first: &SequenceNumber, count: usize) -> Result<(), GenerationOver> {
        self.shard.fetched(self.opening.generation, count)?;
        if !self.has_checkpoint {
            self.shard.store_opening(&self.opening, first).await?;
            self.has_checkpoint = true;
        }
        Ok(())
    }
}

/// Where a shard is reopened that was opened at LATEST at this time (R8).
pub(crate) fn since(opened_at: ServiceTime) -> Origin {
    Origin::Timestamp(opened_at.0 - CLOCK_SLACK_MILLIS)
}

/// How far a response is behind the tip of its shard.
fn behind(fetched: &Fetched) -> Option<Duration> {
    fetched.behind.and_then(|millis| u64::try_from(millis).ok()).map(Duration::from_millis)
}

/// The size of a record as the service counts it: its data and its partition key.
fn size(record: &RawRecord) -> usize {
    record.data.len() + record.partition_key.as_ref().map_or(0, String::len)
}
