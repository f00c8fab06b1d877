//! The steps of the reader and its pages.

use std::sync::Arc;

use tokio::time::Instant;

use crate::{
    config::position::{Checkpoint, Origin},
    error::{KinesisError, service::StoreError},
    kinesis::ListedShard,
    state::{
        page::Page,
        shard::{
            counts::ShardCounts,
            inner::{GenerationOver, Shard, ShardOpening},
        },
    },
    types::id::SequenceNumber,
};

impl Shard {
    /// Waits until the bounds and the lease allow one more delivery.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it changes nothing.
    pub(crate) async fn room(&self, generation: u64) -> Result<(), GenerationOver> {
        loop {
            let changed = self.room.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if self.try_room(generation, Instant::now())? {
                return Ok(());
            }
            changed.await;
        }
    }

    /// Whether a record may be delivered now.
    pub(crate) fn try_room(&self, generation: u64, now: Instant) -> Result<bool, GenerationOver> {
        self.write(|inner| {
            self.notice_suspension(inner, now);
            let term = inner.current(generation).ok_or(GenerationOver)?;
            if term.is_leaving() {
                return Err(GenerationOver);
            }
            Ok(inner.has_room(now, self.context.settings.max_in_flight))
        })
    }

    /// Counts the records of a page as unread, before the stream gets the page.
    pub(crate) fn fetched(&self, generation: u64, records: usize) -> Result<(), GenerationOver> {
        self.write(|inner| {
            inner.current(generation).ok_or(GenerationOver)?.fetched(records);
            Ok(())
        })
    }

    /// Notes that the service has no more records of this shard, and its children.
    pub(crate) fn at_end(&self, generation: u64, children: Vec<ListedShard>) {
        self.write_and_wake(|inner| {
            if let Some(term) = inner.current(generation) {
                term.at_end();
                inner.children = children;
            }
        });
    }

    /// Notes that the shard was read up to its tip and reading stops there.
    pub(crate) fn at_tip(&self, generation: u64) {
        self.write(|inner| {
            if let Some(term) = inner.current(generation) {
                term.at_tip();
            }
        });
        self.context.wakeups.pass_now();
    }

    /// Notes whether the service says that the shard does not exist.
    pub(crate) fn set_not_found(&self, is_not_found: bool) {
        self.write(|inner| inner.service.is_not_found = is_not_found);
    }

    /// Notes that the reader gave up: deliveries in flight may be settled during the drain time, then the lease is
    /// released.
    pub(crate) fn gave_up(&self, generation: u64) {
        let until = Instant::now() + self.context.settings.drain_timeout;
        self.write_and_wake(|inner| {
            if let Some(term) = inner.current(generation) {
                term.leave(until);
                inner.gave_up = true;
                inner.aside = None;
            }
        });
        self.context.read_health.gave_up(Instant::now());
        self.room.notify_waiters();
    }

    /// Notes that the position of the reader is lost, and that it continues at this one. The row is to hold that, so that
    /// the next reader does not lose the old position once more (H7).
    pub(crate) fn restarts_at(&self, generation: u64, origin: &Origin) {
        self.write_and_wake(|inner| {
            let handed_out = inner.tracker.handed_out();
            let Some((term, place)) = inner.current(generation).zip(origin.as_checkpoint()) else { return };
            term.restart_at(place, handed_out);
            inner.first_opening = Some(inner.opened_at(origin.clone()));
        });
    }

    /// Waits until the lease row holds a checkpoint: the existing one, or the first record as the place of opening
    /// (R13).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the renewer stores the checkpoint even if this future is dropped.
    pub(crate) async fn store_opening(
        &self,
        opening: &ShardOpening,
        first: &SequenceNumber,
    ) -> Result<(), GenerationOver> {
        let progress = self.write_and_wake(|inner| {
            let term = inner.current(opening.generation).ok_or(GenerationOver)?;
            term.want_opening(Checkpoint::At(first.clone()));
            Ok(term.progress())
        })?;
        progress.wait_for(|stored| stored.has_checkpoint.then_some(())).await.ok_or(GenerationOver)
    }

    /// Sets the rest of a page aside until it can be delivered.
    pub(crate) fn set_aside(&self, mut page: Page) {
        page.park();
        self.write(|inner| {
            if inner.current(page.generation()).is_some_and(|term| !term.is_leaving()) {
                inner.aside = Some(page);
            }
        });
    }

    /// Whether the rest of a page is set aside.
    pub(crate) fn has_aside(&self) -> bool {
        self.write(|inner| inner.aside.is_some())
    }

    /// Takes the page that was set aside.
    pub(crate) fn take_aside(&self) -> Option<Page> {
        let mut page = self.write(|inner| inner.aside.take())?;
        page.unpark();
        Some(page)
    }

    /// Changes the counters.
    pub(crate) fn count(&self, step: impl FnOnce(&mut ShardCounts)) {
        self.write(|inner| step(&mut inner.counts));
    }

    /// Yields a failure of the lease store that concerns this shard.
    pub(crate) fn report_store(&self, action: &'static str, source: StoreError) {
        let (stream, shard) = (Arc::clone(&self.context.stream), Some(self.id.clone()));
        self.report(KinesisError::Store { stream, shard, action, source });
    }

    /// Yields an error about this shard.
    pub(crate) fn report(&self, error: KinesisError) {
        self.count(|counts| counts.last_error = Some((error.clone(), Instant::now())));
        self.context.report(Some(self.id.clone()), error);
    }
}
