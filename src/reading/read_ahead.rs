//! One shard as a stream of pages: while the user works through one, the next is being read.

use std::{panic::resume_unwind, pin::Pin, sync::Arc};

use futures::stream::{Stream, unfold};
use tokio::{select, time::Instant};
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::{
    reading::reader::Reader,
    state::{
        page::Page,
        shard::{Over, Shard},
    },
};

/// Pages in the order of their shard, each with the books into which its records are entered. It ends when the shard
/// is at its end, its reader gave up, or its lease is over.
///
/// It is `Sync`, so that futures that borrow a subscription may go to other threads.
pub(crate) type Pages = Pin<Box<dyn Stream<Item = (Arc<Shard>, Page)> + Send + Sync>>;

/// Begins to read at once, and hands pages over as the shard has room for their records.
pub(crate) fn pages(reader: Reader) -> Pages {
    Box::pin(unfold(ReadAhead::start(reader), step))
}

/// The read that runs while a page is worked through. It goes with whoever holds this.
struct ReadAhead {
    shard: Arc<Shard>,
    generation: u64,
    next: Next,
}

/// What comes after the page that is worked through.
enum Next {
    Coming(AbortOnDropHandle<Option<(Reader, Page)>>),
    There(Box<(Reader, Page)>),
    Nothing,
}

impl ReadAhead {
    fn start(reader: Reader) -> Self {
        let span = reader.span().clone();
        Self {
            shard: Arc::clone(reader.shard()),
            generation: reader.opening().generation,
            next: Next::Coming(AbortOnDropHandle::new(tokio::spawn(reader.next_page().instrument(span)))),
        }
    }

    /// Waits for what comes next.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a page that came stays here.
    async fn arrival(&mut self) {
        if let Next::Coming(task) = &mut self.next {
            self.next = match task.await {
                Ok(Some(read)) => Next::There(Box::new(read)),
                Err(failed) if failed.is_panic() => resume_unwind(failed.into_panic()),
                Ok(None) | Err(_) => Next::Nothing,
            };
        }
    }

    /// Waits until the rest of the page before can be handed out. What is read meanwhile cannot go out before it, so it
    /// is parked, or it would keep other shards from reading.
    async fn room_for_the_rest(&mut self) -> Result<(), Over> {
        let shard = Arc::clone(&self.shard);
        select! {
            biased;
            room = shard.room(self.generation) => return room,
            () = self.arrival() => {}
        }
        if let Next::There(read) = &mut self.next {
            read.1.park();
        }
        shard.room(self.generation).await
    }
}

/// The next page: the rest of the last one, if it was set aside, or the one that was read ahead.
async fn step(mut ahead: ReadAhead) -> Option<((Arc<Shard>, Page), ReadAhead)> {
    let shard = Arc::clone(&ahead.shard);
    if shard.has_aside() {
        ahead.room_for_the_rest().await.ok()?;
        let page = shard.take_aside()?;
        return Some(((shard, page), ahead));
    }
    ahead.arrival().await;
    let Next::There(read) = ahead.next else { return None };
    let (reader, mut page) = *read;
    if !shard.try_room(ahead.generation, Instant::now()).ok()? {
        page.park();
        shard.room(ahead.generation).await.ok()?;
    }
    page.unpark();
    Some(((shard, page), ReadAhead::start(reader)))
}
