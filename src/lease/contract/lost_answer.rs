//! A store whose answers get lost, and the promise that makes it bearable.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::row::{self, ONE, Row, TWO, after};
use crate::{
    config::position::Checkpoint,
    error::service::StoreError,
    lease::{Held, Lease, LeaseKey, LeaseStore, Seen, StoreFuture, Take, Write},
};

/// A store that answers one of its writes with an error although it applied it: a connection that broke a moment too
/// late. Intended for tests of what repeats a write.
#[derive(Debug)]
pub struct LostAnswer {
    store: Arc<dyn LeaseStore>,
    writes: AtomicUsize,
    lost: usize,
}

impl LostAnswer {
    /// This store, with the answer of the `lost`-th write lost; the first is 1.
    pub fn new(store: Arc<dyn LeaseStore>, lost: usize) -> Self {
        Self { store, writes: AtomicUsize::new(0), lost }
    }

    fn pass<'a, T: Send + 'a>(&'a self, write: StoreFuture<'a, T>) -> StoreFuture<'a, T> {
        Box::pin(async move {
            let answer = write.await?;
            if self.writes.fetch_add(1, Ordering::Relaxed) + 1 == self.lost {
                return Err(StoreError::new("the write was applied, but its answer was lost"));
            }
            Ok(answer)
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

/// The life of a lease, told once for each write whose answer can be lost: it always ends in the same row.
pub(super) async fn a_write_can_be_repeated_after_its_answer_was_lost(store: &Arc<dyn LeaseStore>) {
    for lost in 1..=5 {
        let flaky = LostAnswer::new(Arc::clone(store), lost);
        let lease = Row::new(&flaky, &format!("lost answer {lost}"));
        let take = row::take(&lease.key, ONE, None);
        let held = match repeated(|| flaky.take(&take)).await {
            Write::Applied(taken) | Write::Refused(Some(taken)) if taken.owner.as_deref() == Some(ONE) => {
                lease.held(ONE, taken.epoch)
            }
            other => panic!("a repeated take is refused with the row that it made itself, not answered {other:?}"),
        };
        let (begin, settled) = (Checkpoint::At("5".into()), after("5"));
        assert_eq!(repeated(|| flaky.checkpoint(&held, &begin)).await, Write::Applied(()));
        assert_eq!(repeated(|| flaky.renew(&held)).await, Write::Applied(()));
        assert_eq!(repeated(|| flaky.checkpoint(&held, &settled)).await, Write::Applied(()));
        repeated(|| flaky.release(&held)).await;

        let end = lease.lease().await;
        let expected =
            Lease { owner: None, checkpoint: Some(settled), counter: end.counter, ..row::first(&lease.key, ONE) };
        assert_eq!(end, expected, "with the answer of write {lost} lost");
        assert_eq!(lease.taken(TWO).await.epoch, 2);
    }
}

async fn repeated<'a, T>(call: impl Fn() -> StoreFuture<'a, T> + Send) -> T
where
    T: Send + 'a,
{
    match call().await {
        Ok(answer) => answer,
        Err(_) => call().await.expect("the second answer arrives"),
    }
}
