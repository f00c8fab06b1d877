//! A store that loses a response, and the promise that a retry is then harmless.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::row::{self, ONE, TWO, TestRow, after};
use crate::{
    config::position::Checkpoint,
    error::service::StoreError,
    lease::{Held, Lease, LeaseKey, LeaseStore, Seen, StoreFuture, Take, Write},
};

/// A store that returns an error for one write although it applied it, as when a connection breaks after the request.
/// Use it to test code that retries writes.
#[derive(Debug)]
pub struct LostAnswer {
    store: Arc<dyn LeaseStore>,
    writes: AtomicUsize,
    lost: usize,
}

impl LostAnswer {
    /// Wraps this store, and loses the response of the `lost`-th write. The first write is 1.
    pub fn new(store: Arc<dyn LeaseStore>, lost: usize) -> Self {
        Self { store, writes: AtomicUsize::new(0), lost }
    }

    fn pass<'a, T: Send + 'a>(&'a self, write: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let response = write.await?;
            if self.writes.fetch_add(1, Ordering::Relaxed) + 1 == self.lost {
                return Err(StoreError::new("the write was applied, but its response was lost"));
            }
            Ok(response)
        })
    }
}

impl LeaseStore for LostAnswer {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Vec<Lease>> {
        self.store.leases(consumer, stream)
    }

    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
        self.pass(self.store.take(take))
    }

    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.pass(self.store.renew(held))
    }

    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
        self.pass(self.store.checkpoint(held, checkpoint))
    }

    fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.pass(self.store.release(held))
    }

    fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write> {
        self.pass(self.store.ask(key, seen, by))
    }

    fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        self.pass(self.store.delete(key, seen))
    }
}

/// Runs the life of a lease once for each write whose response can be lost. It always ends in the same row.
pub(super) async fn a_write_can_be_retried_after_its_response_was_lost(store: &Arc<dyn LeaseStore>) {
    for lost in 1..=5 {
        let flaky = LostAnswer::new(Arc::clone(store), lost);
        let lease = TestRow::new(&flaky, &format!("lost answer {lost}"));
        let take = row::take(&lease.key, ONE, None);
        let held = match repeated(|| flaky.take(&take)).await {
            Write::Applied(taken) | Write::Refused(Some(taken)) if taken.owner.as_deref() == Some(ONE) => {
                lease.held(ONE, taken.epoch)
            }
            other => panic!("a repeated take is refused with the row that it made, not with {other:?}"),
        };
        let (begin, settled) = (Checkpoint::At("5".into()), after("5"));
        assert_eq!(repeated(|| flaky.checkpoint(&held, &begin)).await, Write::Applied(()));
        assert_eq!(repeated(|| flaky.renew(&held)).await, Write::Applied(()));
        assert_eq!(repeated(|| flaky.checkpoint(&held, &settled)).await, Write::Applied(()));
        repeated(|| flaky.release(&held)).await;

        let end = lease.lease().await;
        let expected =
            Lease { owner: None, checkpoint: Some(settled), counter: end.counter, ..row::first(&lease.key, ONE) };
        assert_eq!(end, expected, "with the response of write {lost} lost");
        assert_eq!(lease.taken(TWO).await.epoch, 2);
    }
}

async fn repeated<'a, T>(call: impl Fn() -> StoreFuture<'a, T> + Send) -> T
where
    T: Send + 'a,
{
    match call().await {
        Ok(response) => response,
        Err(_) => call().await.expect("the second response arrives"),
    }
}
