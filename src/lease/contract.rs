//! The promises of a [`LeaseStore`], as a suite of tests that any store can run.
//!
//! It is for authors of a store, behind the cargo feature `contract`: enable the feature in your dev-dependencies and
//! call [`run`] from a test. The suite grows with what the library relies on, so a new minor version may fail a store
//! that passed with an older one.
//!
//! ```
//! use std::sync::Arc;
//!
//! use kinesis_stream::{MemoryLeaseStore, contract};
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(
//! contract::run(Arc::new(MemoryLeaseStore::new()))
//! # );
//! ```

use std::sync::Arc;

use crate::lease::LeaseStore;

mod asks;
mod deletes;
mod lost_answer;
mod row;
mod takes;
mod views;
mod writes;

pub use self::lost_answer::LostAnswer;

/// Checks each promise of a store, on rows of consumers whose names begin with `contract`. The table may hold rows of
/// other consumers, but none of an earlier run.
///
/// Call this on a tokio runtime, preferably one with several threads.
///
/// # Panics
///
/// Panics at the first broken promise, and if the store returns an error.
pub async fn run(store: Arc<dyn LeaseStore>) {
    takes::the_first_take_makes_the_row(&*store).await;
    takes::a_take_keeps_the_checkpoint_and_replaces_the_rest(&*store).await;
    takes::a_take_forgets_the_checkpoint_if_it_says_so(&*store).await;
    takes::a_take_stores_the_time_of_latest_in_a_row_without_a_checkpoint(&*store).await;
    takes::a_take_that_saw_another_state_is_refused_and_shows_the_row(&*store).await;
    takes::epochs_grow_by_one_and_with_takes_alone(&*store).await;
    takes::of_a_hundred_concurrent_takes_one_is_applied(&store).await;

    writes::every_applied_write_moves_the_counter_by_one(&*store).await;
    writes::a_checkpoint_survives_renewals_release_and_take(&*store).await;
    writes::a_checkpoint_is_replaced_whatever_it_was(&*store).await;
    writes::a_release_frees_the_row_and_keeps_everything_else(&*store).await;
    writes::a_fenced_owner_changes_nothing(&*store).await;
    writes::a_write_of_another_owner_or_epoch_is_refused(&*store).await;
    writes::a_write_to_an_absent_row_is_refused_and_makes_none(&*store).await;
    writes::a_late_write_after_the_release_is_refused(&*store).await;

    asks::an_ask_marks_the_row_until_the_next_take(&*store).await;
    asks::the_end_of_a_shard_clears_the_mark(&*store).await;
    asks::an_ask_can_be_withdrawn(&*store).await;
    asks::an_ask_that_saw_another_state_is_refused(&*store).await;

    deletes::a_delete_removes_the_row_and_its_checkpoint(&*store).await;
    deletes::a_delete_that_saw_another_state_is_refused(&*store).await;

    views::leases_are_the_rows_of_one_consumer_and_stream(&*store).await;
    views::leases_are_all_rows_however_many(&*store).await;

    lost_answer::a_write_can_be_retried_after_its_response_was_lost(&store).await;
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;
    use crate::{
        MemoryLeaseStore,
        config::position::Checkpoint,
        lease::{Held, Lease, LeaseKey, Leases, Seen, StoreFuture, Take, Write},
    };

    /// A faulty store: a release overwrites the checkpoint.
    #[derive(Debug, Default)]
    struct Forgetful(MemoryLeaseStore);

    impl LeaseStore for Forgetful {
        fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Leases> {
            self.0.leases(consumer, stream)
        }

        fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
            self.0.take(take)
        }

        fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
            self.0.renew(held)
        }

        fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
            self.0.checkpoint(held, checkpoint)
        }

        fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
            Box::pin(async move {
                self.0.checkpoint(held, &Checkpoint::At("0".into())).await?;
                self.0.release(held).await
            })
        }

        fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write> {
            self.0.ask(key, seen, by)
        }

        fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
            self.0.delete(key, seen)
        }
    }

    #[tokio::test]
    async fn a_store_that_breaks_a_promise_fails() {
        let run = std::panic::AssertUnwindSafe(run(Arc::new(Forgetful::default())));
        assert!(run.catch_unwind().await.is_err());
    }
}
