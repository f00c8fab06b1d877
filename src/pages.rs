//! One shard as a stream of pages: while the user works through one, the next is being read.

use std::{panic::resume_unwind, pin::Pin, sync::Arc};

use futures::stream::{Stream, unfold};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

use crate::{ledger::Ledger, page::Page, reader::Reader};

/// Pages in the order of their shard, each with the books into which its records are entered. It ends when the shard
/// is at its end, its reader gave up, or its lease is over.
///
/// It is `Sync`, so that futures that borrow a subscription may go to other threads.
pub(crate) type Pages = Pin<Box<dyn Stream<Item = (Arc<Ledger>, Page)> + Send + Sync>>;

/// Begins to read at once, and hands pages over as the shard has room for their records.
pub(crate) fn pages(reader: Reader) -> Pages {
    Box::pin(unfold(ReadAhead::start(reader), step))
}

/// The read that runs while a page is worked through. It goes with whoever holds this.
struct ReadAhead {
    ledger: Arc<Ledger>,
    generation: u64,
    task: AbortOnDropHandle<Option<(Reader, Page)>>,
}

impl ReadAhead {
    fn start(reader: Reader) -> Self {
        let span = reader.span().clone();
        Self {
            ledger: Arc::clone(reader.ledger()),
            generation: reader.opening().generation,
            task: AbortOnDropHandle::new(tokio::spawn(reader.next_page().instrument(span))),
        }
    }
}

/// The next page: the rest of the last one, if it was set aside, or the one that was read ahead.
async fn step(mut ahead: ReadAhead) -> Option<((Arc<Ledger>, Page), ReadAhead)> {
    let ledger = Arc::clone(&ahead.ledger);
    if ledger.has_aside() {
        ledger.room(ahead.generation).await.ok()?;
        let page = ledger.take_aside()?;
        return Some(((ledger, page), ahead));
    }
    let (reader, mut page) = match (&mut ahead.task).await {
        Ok(read) => read?,
        Err(failed) if failed.is_panic() => resume_unwind(failed.into_panic()),
        Err(_) => return None,
    };
    if !ledger.try_room(ahead.generation, Instant::now()).ok()? {
        page.park();
        ledger.room(ahead.generation).await.ok()?;
        page.unpark();
    }
    Some(((ledger, page), ReadAhead::start(reader)))
}
