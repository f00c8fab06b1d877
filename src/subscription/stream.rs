//! The merged stream of all shards, as the user polls it.
//!
//! The stream looks at three places, in this order: the events (errors, redeliveries, the end), the page whose records
//! it hands out, and the pages that the readers have ready. It registers its waker with all of them before it returns
//! pending.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{
    Stream, StreamExt,
    stream::{FusedStream, SelectAll},
};
use tokio::{sync::mpsc, time::Instant};

use crate::{
    config::redelivery::Wish,
    delivery::Delivery,
    error::{KinesisError, chain::Chain, service::ServiceFailure},
    reading::read_ahead::Pages,
    state::{
        context::SubscriptionContext,
        events::{Event, Redelivery, Returned},
        page::{Page, PageEntry},
        shard::{HandOut, Shard, Shards},
        stats::SubscriptionStats,
        warnings::{Cause, warn_once_of},
    },
    subscription::{close::Closer, seek::Seeker, stats_handle::StatsHandle},
    types::close_report::CloseReport,
    util::timer::Timer,
};

type Item = Result<Delivery, KinesisError>;

/// The records of all shards that this instance reads, merged into one stream. Made by
/// [`ConnectedKinesisBroker::subscribe`](crate::ConnectedKinesisBroker::subscribe).
///
/// - **It yields** a [`Delivery`] or an error. Deliveries keep the order of their shard. Shards are merged page by
///   page: all records of one read come one after another, then the records of another shard that has a page ready.
/// - **An error does not end the stream.** [`KinesisError::class`] says whether the library already handles it.
///   [`tolerant`](Self::tolerant) hides the errors that it handles.
/// - **It ends** once the subscription was closed, once the broker was shut down, after an error of class
///   [`Fatal`](crate::ErrorClass::Fatal), or once everything was read if
///   [`stop_at_tip`](crate::KinesisStream::stop_at_tip) is set. A subscription that currently holds no shard is
///   pending; it has not ended.
///
/// [`batches`](Self::batches) yields many records at a time.
///
/// Each shard is read one page ahead, and reading slows down when the user does. Leases and checkpoints do not depend
/// on the stream being polled.
///
/// Dropping the stream stops reading at once. Settled records are stored as checkpoints, the leases are released, and
/// records in flight are redelivered to the instance that reads the shard next. [`close`](Self::close) waits for
/// records in flight first.
///
/// # Cancel safety
///
/// `next` is cancel safe: a record leaves the subscription only when `next` returns it.
///
/// # Panics
///
/// Polling panics outside of a tokio runtime.
#[must_use = "streams do nothing unless polled"]
pub struct Subscription {
    context: Arc<SubscriptionContext>,
    shards: Arc<Shards>,
    seeker: Seeker,
    /// New shards, from the coordinator.
    opened: mpsc::UnboundedReceiver<Pages>,
    pages: SelectAll<Pages>,
    /// The page whose records are being handed out.
    current: Option<(Arc<Shard>, Page)>,
    /// When to look at the events again, and the timer that wakes the stream then.
    check_events_at: Option<Instant>,
    timer: Timer,
    ended: bool,
}

impl Subscription {
    pub(crate) fn new(
        context: Arc<SubscriptionContext>,
        shards: Arc<Shards>,
        opened: mpsc::UnboundedReceiver<Pages>,
        seeker: Seeker,
    ) -> Self {
        Self {
            context,
            shards,
            seeker,
            opened,
            pages: SelectAll::new(),
            current: None,
            check_events_at: None,
            timer: Timer::default(),
            ended: false,
        }
    }

    /// A snapshot of every shard. It takes one short lock for each.
    #[must_use]
    pub fn stats(&self) -> SubscriptionStats {
        self.stats_handle().snapshot()
    }

    /// A handle that takes [`stats`](Self::stats) from inside a pipeline.
    #[must_use]
    pub fn stats_handle(&self) -> StatsHandle {
        StatsHandle::new(Arc::clone(&self.context), Arc::clone(&self.shards))
    }

    /// A handle that moves the subscription to another position while it runs.
    #[must_use]
    pub fn seeker(&self) -> Seeker {
        self.seeker.clone()
    }

    /// A handle that closes the subscription from inside a pipeline, for example on Ctrl-C.
    #[must_use]
    pub fn closer(&self) -> Closer {
        Closer::new(Arc::clone(&self.context))
    }

    /// Closes a subscription that no pipeline owns: see [`Closer::close`].
    ///
    /// # Cancel safety
    ///
    /// Once this was polled, closing continues without it. A dropped future only loses the report.
    pub async fn close(self) -> CloseReport {
        self.closer().close().await
    }

    pub(crate) fn context(&self) -> &Arc<SubscriptionContext> {
        &self.context
    }

    /// The next value, without the errors for which `hides` returns true.
    ///
    /// A value has some 160 bytes, so this writes it once, to where the caller wants it.
    pub(super) fn poll_item(
        &mut self,
        cx: &mut Context<'_>,
        mut hides: impl FnMut(&KinesisError) -> bool,
    ) -> Poll<Option<Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        loop {
            let now = Instant::now();
            if let event @ Poll::Ready(_) = self.poll_event(now, &mut hides) {
                return event;
            }
            if self.current.is_some() {
                if let record @ Poll::Ready(_) = self.poll_record(now) {
                    return record;
                }
                continue;
            }
            if let Poll::Ready(page) = self.poll_page(cx) {
                self.current = Some(page);
                continue;
            }
            if self.pages.is_empty() && self.context.is_finished() {
                self.context.wind_down(self.context.settings.drain_timeout);
                continue;
            }
            self.context.events.register(cx.waker());
            if !self.context.events.is_empty_handed() {
                continue;
            }
            ready!(self.poll_timer(cx));
        }
    }

    /// The next event that is due: an error, a redelivery or the end.
    fn poll_event(&mut self, now: Instant, hides: &mut impl FnMut(&KinesisError) -> bool) -> Poll<Option<Item>> {
        if self.context.events.has_news() {
            self.check_events_at = Some(now);
        }
        if self.check_events_at.is_none_or(|at| now < at) {
            return Poll::Pending;
        }
        while let Some(event) = self.context.events.take(now) {
            match event {
                Event::Error(error) if hides(&error) => {
                    let what = "hid an error that the library handles";
                    warn_once_of!(
                        self.context.warnings.is_first(Cause::of_error(what, &error)),
                        stream = %self.context.stream, error = %Chain(&error), "{what}"
                    );
                }
                Event::Error(error) => return Poll::Ready(Some(Err(error))),
                Event::Redelivery(redelivery) => {
                    if let Some(item) = self.redeliver(redelivery, now) {
                        return Poll::Ready(Some(item));
                    }
                }
                Event::End => {
                    self.current = None;
                    self.pages.clear();
                    self.ended = true;
                    return Poll::Ready(None);
                }
            }
        }
        self.check_events_at = self.context.events.next_due();
        Poll::Pending
    }

    /// Hands out a record that is due. None if its generation is over, if it has to wait longer, or if it is too old.
    fn redeliver(&self, redelivery: Redelivery, now: Instant) -> Option<Item> {
        let shard = self.shards.get(&redelivery.record().shard)?;
        let old = match &redelivery {
            Redelivery::Again(returned) => self.too_old(&returned.record, now),
            Redelivery::Spent(..) => None,
        };
        let out = match &redelivery {
            Redelivery::Again(returned) if old.is_none() => shard.hand_out_again(returned.ticket, now),
            Redelivery::Again(taken) | Redelivery::Spent(taken, _) => shard.take_up(taken.ticket, now),
        };
        match (out, redelivery) {
            (HandOut::Out(..), Redelivery::Again(returned)) if let Some(becomes) = old => {
                self.pass_over_returned(&shard, returned, becomes);
                None
            }
            (HandOut::Out(_, epoch), Redelivery::Again(returned)) => Some(Ok(Delivery::again(shard, epoch, returned))),
            (HandOut::Out(..), Redelivery::Spent(spent, source)) => Some(Err(self.give_up(&shard, spent, source))),
            (HandOut::NotNow, redelivery) => {
                shard.keep_for_later(redelivery, now);
                None
            }
            (HandOut::Stale, _) => None,
        }
    }

    /// Settles a record whose attempts are spent, and makes the error that carries it.
    fn give_up(&self, shard: &Shard, spent: Returned, source: Option<ServiceFailure>) -> KinesisError {
        let Returned { ticket, shard: shard_id, record, attempts, wish, reason, settlement } = spent;
        shard.settle_spent(ticket, settlement);
        let record = Arc::new(record.into_record(Arc::clone(&self.context.stream), shard_id));
        let (rejected, reason) = (wish == Wish::Reject, reason.to_string().into());
        let error = KinesisError::AttemptsSpent { record, attempts, rejected, reason, source };
        self.context.count_error(&error);
        error
    }

    /// The next record of the current page. Pending if there is none, if none may be handed out now, or if it is too
    /// old.
    fn poll_record(&mut self, now: Instant) -> Poll<Option<Item>> {
        let Some((shard, page)) = &mut self.current else { return Poll::Pending };
        let number = page.peek();
        let out = number.as_ref().map_or(HandOut::Stale, |number| shard.hand_out(page.generation(), number, now));
        let HandOut::Out(ticket, epoch) = out else {
            if let Some((shard, page)) = self.current.take()
                && out == HandOut::NotNow
            {
                shard.set_aside(page);
            }
            return Poll::Pending;
        };
        let Some(entry) = number.and_then(|number| page.take(number)) else { return Poll::Pending };
        let shard = Arc::clone(shard);
        if page.is_empty() {
            self.current = None;
        }
        match entry {
            PageEntry::Plain(record) => match self.too_old(&record, now) {
                None => Poll::Ready(Some(Ok(Delivery::new(shard, ticket, epoch, record, 1)))),
                Some(becomes) => {
                    self.pass_over_new(&shard, ticket, record, becomes);
                    Poll::Pending
                }
            },
            PageEntry::Aggregated { sequence_number, partition_key, data } => {
                shard.settle_spent(ticket, None);
                let (stream, shard_id) = (Arc::clone(&self.context.stream), shard.id.clone());
                let partition_key = partition_key.map(Arc::from);
                let error =
                    KinesisError::AggregatedRecord { stream, shard: shard_id, sequence_number, partition_key, data };
                self.context.count_error(&error);
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    /// The next page of any shard that has one.
    fn poll_page(&mut self, cx: &mut Context<'_>) -> Poll<(Arc<Shard>, Page)> {
        while let Poll::Ready(Some(pages)) = self.opened.poll_recv(cx) {
            self.pages.push(pages);
        }
        match self.pages.poll_next_unpin(cx) {
            Poll::Ready(Some(page)) => Poll::Ready(page),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Waits until it is time to look at the events.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.check_events_at.map_or(Poll::Pending, |at| self.timer.poll(at, cx))
    }
}

impl Stream for Subscription {
    type Item = Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        self.get_mut().poll_item(cx, |_| false)
    }
}

impl FusedStream for Subscription {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.context.wind_down(Duration::ZERO);
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("stream", &self.context.stream).finish_non_exhaustive()
    }
}
