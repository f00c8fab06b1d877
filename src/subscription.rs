//! The merged stream of all shards, as the user polls it.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use futures::{Stream, StreamExt, stream::SelectAll};
use tokio::{sync::mpsc, time::Instant};

use crate::{
    delivery::Delivery,
    error::{ErrorClass, KinesisError, service::ServiceFailure},
    reading::read_ahead::Pages,
    state::{
        context::SubscriptionContext,
        events::{Event, Redelivery, Returned},
        page::{Page, PageEntry},
        shard::{HandOut, Shard, Shards},
        stats::SubscriptionStats,
    },
    subscription::{close::Closer, seek::Seeker, stats_handle::StatsHandle},
    types::close_report::CloseReport,
    util::timer::Timer,
};

pub(crate) mod batch;
pub(crate) mod batch_builder;
pub(crate) mod batches;
pub(crate) mod buffer_by;
pub(crate) mod close;
pub(crate) mod descriptor;
pub(crate) mod key_queues;
pub(crate) mod seek;
pub(crate) mod start;
pub(crate) mod stats_handle;

type Item = Result<Delivery, KinesisError>;

/// The records of all shards that this instance holds, as one stream. Made by
/// [`ConnectedKinesisBroker::subscribe`](crate::ConnectedKinesisBroker::subscribe).
///
/// - **An item** is a [`Delivery`], in the order of its shard, or an error. Shards are merged page by page: the records
///   of one read come one after the other, then those of whichever shard is ready.
/// - **An error** is news, not the end: [`KinesisError::class`] says whether the library deals with it already.
///   [`tolerant`](Self::tolerant) leaves out the ones that it does deal with.
/// - **The end** comes when the subscription was closed, the broker was shut down, after an error of class
///   [`Fatal`](ErrorClass::Fatal), or when everything was read, if [`stop_at_tip`](crate::KinesisStream::stop_at_tip) asks
///   for that. A subscription that holds no shard at the moment is pending, not ended.
///
/// [`batches`](Self::batches) hands out many records at a time.
///
/// Reading runs ahead by one page for each shard and slows down with the user. Neither leases nor checkpoints depend on
/// the stream being polled.
///
/// Dropping it stops reading at once: what is settled is stored, leases are released, and what is still in flight comes
/// again elsewhere. [`close`](Self::close) waits for what is in flight first.
///
/// # Cancel safety
///
/// `next` is cancel safe: a record leaves the subscription only with the item.
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
    /// When to look into the inbox again, and what wakes us then.
    look_at: Option<Instant>,
    timer: Timer,
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
            look_at: None,
            timer: Timer::default(),
        }
    }

    /// Leaves out errors that the library is dealing with ([`ErrorClass::Transient`]), after logging them, so that a
    /// `try_` pipeline ends only on what matters.
    pub fn tolerant(self) -> Tolerant {
        Tolerant { subscription: self }
    }

    /// How every shard is doing at this moment. Costs a short lock for each.
    #[must_use]
    pub fn stats(&self) -> SubscriptionStats {
        self.stats_handle().snapshot()
    }

    /// Reaches [`stats`](Self::stats) from inside a pipeline.
    #[must_use]
    pub fn stats_handle(&self) -> StatsHandle {
        StatsHandle::new(Arc::clone(&self.context), Arc::clone(&self.shards))
    }

    /// A handle that moves the subscription to another position while it runs.
    #[must_use]
    pub fn seeker(&self) -> Seeker {
        self.seeker.clone()
    }

    /// A handle that closes the subscription from inside a pipeline, on Ctrl-C for one.
    #[must_use]
    pub fn closer(&self) -> Closer {
        Closer::new(Arc::clone(&self.context))
    }

    /// Closes a subscription that is in nobody's pipeline: see [`Closer::close`].
    ///
    /// # Cancel safety
    ///
    /// Closing goes on by itself once this was polled; the report is lost.
    pub async fn close(self) -> CloseReport {
        self.closer().close().await
    }

    pub(crate) fn context(&self) -> &SubscriptionContext {
        &self.context
    }

    /// The next item, apart from those that `tolerance` leaves out.
    ///
    /// An item is some 160 bytes, so it is written once, to where the caller wants it.
    pub(crate) fn poll_item(&mut self, cx: &mut Context<'_>, tolerance: Tolerance) -> Poll<Option<Item>> {
        loop {
            let now = Instant::now();
            if let letter @ Poll::Ready(_) = self.poll_letter(now, tolerance) {
                return letter;
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
            ready!(self.poll_alarm(cx));
        }
    }

    /// What the inbox holds that is due: an item, or the end.
    fn poll_letter(&mut self, now: Instant, tolerance: Tolerance) -> Poll<Option<Item>> {
        if self.context.events.has_news() {
            self.look_at = Some(now);
        }
        if self.look_at.is_none_or(|at| now < at) {
            return Poll::Pending;
        }
        while let Some(letter) = self.context.events.take(now) {
            match letter {
                Event::Error(error) if tolerance.covers(&error) => {
                    tracing::warn!(stream = %self.context.stream, %error, "an error that is being dealt with");
                }
                Event::Error(error) => return Poll::Ready(Some(Err(error))),
                Event::Redelivery(due) => {
                    if let Some(item) = self.bring(due, now) {
                        return Poll::Ready(Some(item));
                    }
                }
                Event::End => {
                    self.current = None;
                    self.pages.clear();
                    return Poll::Ready(None);
                }
            }
        }
        self.look_at = self.context.events.next_due();
        Poll::Pending
    }

    /// A record whose moment has come, unless it no longer counts or has to wait.
    fn bring(&self, due: Redelivery, now: Instant) -> Option<Item> {
        let shard = self.shards.get(&due.record().shard)?;
        let out = match &due {
            Redelivery::Again(returned) => shard.hand_out_again(returned.ticket, now),
            Redelivery::Spent(spent, _) => shard.take_up(spent.ticket, now),
        };
        match (out, due) {
            (HandOut::Out(_, epoch), Redelivery::Again(returned)) => Some(Ok(Delivery::again(shard, epoch, returned))),
            (HandOut::Out(..), Redelivery::Spent(spent, source)) => Some(Err(self.give_up(&shard, spent, source))),
            (HandOut::NotNow, due) => {
                shard.keep_for_later(due, now);
                None
            }
            (HandOut::Stale, _) => None,
        }
    }

    /// Settles a record whose attempts are spent, as the error that hands it out.
    fn give_up(&self, shard: &Shard, spent: Returned, source: Option<ServiceFailure>) -> KinesisError {
        let Returned { ticket, shard: shard_id, record, attempts, reason, settlement } = spent;
        shard.settle_spent(ticket, settlement);
        let record = Arc::new(record.into_record(Arc::clone(&self.context.stream), shard_id));
        KinesisError::AttemptsSpent { record, attempts, reason: reason.to_string().into(), source }
    }

    /// The next record of the current page. Pending if there is none, or none may go out now.
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
            PageEntry::Plain(record) => Poll::Ready(Some(Ok(Delivery::new(shard, ticket, epoch, record, 1)))),
            PageEntry::Aggregated { sequence_number, partition_key, data } => {
                shard.ack(&[ticket]);
                let (stream, shard_id) = (Arc::clone(&self.context.stream), shard.id.clone());
                let partition_key = partition_key.map(Arc::from);
                let error =
                    KinesisError::AggregatedRecord { stream, shard: shard_id, sequence_number, partition_key, data };
                Poll::Ready(Some(Err(error)))
            }
        }
    }

    /// The next page of whichever shard has one.
    fn poll_page(&mut self, cx: &mut Context<'_>) -> Poll<(Arc<Shard>, Page)> {
        while let Poll::Ready(Some(pages)) = self.opened.poll_recv(cx) {
            self.pages.push(pages);
        }
        match self.pages.poll_next_unpin(cx) {
            Poll::Ready(Some(page)) => Poll::Ready(page),
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }

    /// Waits for the moment to look into the inbox.
    fn poll_alarm(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.look_at.map_or(Poll::Pending, |at| self.timer.poll(at, cx))
    }
}

impl Stream for Subscription {
    type Item = Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        self.get_mut().poll_item(cx, Tolerance::None)
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

/// Which errors are left out.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Tolerance {
    None,
    Transient,
}

impl Tolerance {
    fn covers(self, error: &KinesisError) -> bool {
        matches!(self, Self::Transient) && error.class() == ErrorClass::Transient
    }
}

/// A subscription without the errors that the library deals with by itself: see [`Subscription::tolerant`].
///
/// Items and end are those of the [`Subscription`]; the only errors left are of the classes
/// [`Record`](ErrorClass::Record) and [`Fatal`](ErrorClass::Fatal).
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct Tolerant {
    subscription: Subscription,
}

impl Tolerant {
    /// The subscription inside, for its handles.
    pub fn get_ref(&self) -> &Subscription {
        &self.subscription
    }

    /// The subscription, with all its errors again.
    pub fn into_inner(self) -> Subscription {
        self.subscription
    }
}

impl Stream for Tolerant {
    type Item = Item;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Item>> {
        self.get_mut().subscription.poll_item(cx, Tolerance::Transient)
    }
}
