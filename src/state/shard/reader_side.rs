//! The reader's view of the books.

use std::sync::Arc;

use tokio::time::Instant;

use super::{Opening, Over, Shard, ShardCounts};
use crate::{
    config::position::Checkpoint,
    error::{KinesisError, service::StoreError},
    kinesis::ListedShard,
    state::page::Page,
    types::id::SequenceNumber,
};

impl Shard {
    /// Waits until the shard is below its bounds and its lease is good.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: it only looks.
    pub(crate) async fn room(&self, generation: u64) -> Result<(), Over> {
        loop {
            let told = self.room.notified();
            tokio::pin!(told);
            told.as_mut().enable();
            if self.try_room(generation, Instant::now())? {
                return Ok(());
            }
            told.await;
        }
    }

    /// Whether a record may be handed out now.
    pub(crate) fn try_room(&self, generation: u64, now: Instant) -> Result<bool, Over> {
        self.write(|state| {
            let term = state.current(generation).ok_or(Over)?;
            if term.is_leaving() {
                return Err(Over);
            }
            Ok(state.has_room(now, self.context.settings.max_in_flight))
        })
    }

    /// Enters a page that was read, before it goes anywhere.
    pub(crate) fn fetched(&self, generation: u64, records: usize) -> Result<(), Over> {
        self.write(|state| {
            state.current(generation).ok_or(Over)?.fetched(records);
            Ok(())
        })
    }

    /// Enters that the service has no more records for this shard, and which its children are.
    pub(crate) fn at_end(&self, generation: u64, children: Vec<ListedShard>) {
        self.write_and_ring(|state| {
            if let Some(term) = state.current(generation) {
                term.at_end();
                state.children = children;
            }
        });
    }

    /// Whether the shard has an end, by its last listing.
    pub(crate) fn is_closed(&self) -> bool {
        self.write(|state| state.said.closed)
    }

    /// Enters that the shard was read up to its tip, and no more of it will be.
    pub(crate) fn at_tip(&self, generation: u64) {
        self.write(|state| {
            if let Some(term) = state.current(generation) {
                term.at_tip();
            }
        });
        self.context.rounds.notify_one();
    }

    /// Enters whether the service denies that there is such a shard.
    pub(crate) fn deny(&self, denied: bool) {
        self.write(|state| state.said.denied = denied);
    }

    /// Enters that the reader gave up: what is in flight may be settled for the drain time, then the lease goes.
    pub(crate) fn gave_up(&self, generation: u64) {
        let until = Instant::now() + self.context.settings.drain_timeout;
        self.write_and_ring(|state| {
            if let Some(term) = state.current(generation) {
                term.leave(until);
                state.gave_up = true;
                state.aside = None;
            }
        });
        self.room.notify_waiters();
    }

    /// Makes the place where the shard was opened durable, unless its row holds a place already (R13).
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: the keeper stores it whether or not anyone waits.
    pub(crate) async fn mark(&self, opening: &Opening, first: &SequenceNumber) -> Result<(), Over> {
        let progress = self.write_and_ring(|state| {
            let term = state.current(opening.generation).ok_or(Over)?;
            term.want_mark(Checkpoint::At(first.clone()));
            Ok(term.progress())
        })?;
        progress.wait_for(|progress| progress.marked.then_some(())).await.ok_or(Over)
    }

    /// Keeps the rest of a page until there is room again.
    pub(crate) fn set_aside(&self, mut page: Page) {
        page.park();
        self.write(|state| {
            if state.current(page.generation()).is_some_and(|term| !term.is_leaving()) {
                state.aside = Some(page);
            }
        });
    }

    /// Whether the rest of a page waits here.
    pub(crate) fn has_aside(&self) -> bool {
        self.write(|state| state.aside.is_some())
    }

    /// Takes it back.
    pub(crate) fn take_aside(&self) -> Option<Page> {
        let mut page = self.write(|state| state.aside.take())?;
        page.unpark();
        Some(page)
    }

    /// Keeps the counters.
    pub(crate) fn count(&self, step: impl FnOnce(&mut ShardCounts)) {
        self.write(|state| step(&mut state.counts));
    }

    /// Puts a failure of the lease store that concerns this shard into the subscription's stream.
    pub(crate) fn report_store(&self, action: &'static str, source: StoreError) {
        let (stream, shard) = (Arc::clone(&self.context.stream), Some(self.id.clone()));
        self.report(KinesisError::Store { stream, shard, action, source });
    }

    /// Puts an error about this shard into the subscription's stream.
    pub(crate) fn report(&self, error: KinesisError) {
        self.count(|counts| counts.last_error = Some(error.clone()));
        self.context.events.error(Some(self.id.clone()), error);
    }
}
