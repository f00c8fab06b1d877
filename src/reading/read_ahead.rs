//! One shard as a stream of pages.
//!
//! **One page ahead, one task per page.** While the user works through one page, a task reads the next one: through
//! empty responses, throttles and errors, until it holds records. An idle shard's iterator therefore stays fresh
//! however slow the user is (R8).

use std::{panic::resume_unwind, pin::Pin, sync::Arc};

use futures::stream::{Stream, unfold};
use tokio::{select, time::Instant};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    reading::reader::Reader,
    state::{
        page::Page,
        shard::{GenerationOver, Shard},
    },
};

/// The pages of a shard in order, each with the shard. The stream ends when the shard is at its end or its tip, its
/// reader gave up, or its generation is over.
///
/// It is `Sync`, so that futures that borrow a subscription can move to other threads.
pub(crate) type Pages = Pin<Box<dyn Stream<Item = (Arc<Shard>, Page)> + Send + Sync>>;

/// Starts reading at once, and yields each page when the shard has room for its records.
pub(crate) fn pages(reader: Reader) -> Pages {
    Box::pin(unfold(ReadAhead::start(reader), step))
}

/// The read that runs while the user works through a page. Dropping this aborts the read.
struct ReadAhead {
    shard: Arc<Shard>,
    generation: u64,
    next: NextPage,
}

/// The page after the one that the user works through.
enum NextPage {
    Reading(AbortOnDropHandle<Option<(Reader, Page)>>),
    Ready(Box<(Reader, Page)>),
    /// The shard has no more pages, or its reader gave up.
    None,
}

impl ReadAhead {
    fn start(reader: Reader) -> Self {
        Self {
            shard: Arc::clone(reader.shard()),
            generation: reader.opening().generation,
            next: NextPage::Reading(AbortOnDropHandle::new(tokio::spawn(reader.next_page()))),
        }
    }

    /// Waits until the next page is read, or there is none.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe: a page that was read stays here.
    async fn arrival(&mut self) {
        if let NextPage::Reading(task) = &mut self.next {
            self.next = match task.await {
                Ok(Some(read)) => NextPage::Ready(Box::new(read)),
                Err(failed) if failed.is_panic() => resume_unwind(failed.into_panic()),
                Ok(None) | Err(_) => NextPage::None,
            };
        }
    }

    /// Waits until the rest of the previous page can be delivered. A page that is read meanwhile has to wait behind it,
    /// so it is parked; otherwise it would keep other shards from reading.
    async fn room_for_the_rest(&mut self) -> Result<(), GenerationOver> {
        let shard = Arc::clone(&self.shard);
        select! {
            biased;
            room = shard.room(self.generation) => return room,
            () = self.arrival() => {}
        }
        if let NextPage::Ready(read) = &mut self.next {
            read.1.park();
        }
        shard.room(self.generation).await
    }
}

/// The next page: the rest of the previous one if it was set aside, or the one that was read ahead.
async fn step(mut ahead: ReadAhead) -> Option<((Arc<Shard>, Page), ReadAhead)> {
    let shard = Arc::clone(&ahead.shard);
    if shard.has_aside() {
        ahead.room_for_the_rest().await.ok()?;
        let page = shard.take_aside()?;
        return Some(((shard, page), ahead));
    }
    ahead.arrival().await;
    let NextPage::Ready(read) = ahead.next else { return None };
    let (reader, mut page) = *read;
    if !shard.try_room(ahead.generation, Instant::now()).ok()? {
        page.park();
        shard.room(ahead.generation).await.ok()?;
    }
    page.unpark();
    Some(((shard, page), ReadAhead::start(reader)))
}
