//! Promises of [`LeaseStore::ask`].

use super::row::{ONE, TWO, TestRow, after};
use crate::{
    config::position::Checkpoint,
    lease::{Lease, LeaseStore, Seen, Write},
};

pub(super) async fn an_ask_marks_the_row_until_the_next_take(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "an ask");
    let held = row.taken(ONE).await;
    let before = row.lease().await;
    assert_eq!(row.ask(before.seen(), TWO).await, Write::Applied(()));
    let marked = Lease { counter: before.counter + 1, wanted_by: Some(TWO.into()), ..before };
    assert_eq!(row.lease().await, marked);

    row.renew(&held).await;
    row.checkpoint(&held, &after("5")).await;
    row.release(&held).await;
    assert_eq!(row.lease().await.wanted_by.as_deref(), Some(TWO), "the holder's writes keep the mark");
    row.taken(TWO).await;
    assert_eq!(row.lease().await.wanted_by, None);
}

pub(super) async fn the_end_of_a_shard_clears_the_mark(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "an ended shard");
    let held = row.taken(ONE).await;
    row.ask(row.lease().await.seen(), TWO).await;
    row.checkpoint(&held, &Checkpoint::ShardEnd).await;
    assert_eq!(row.lease().await.wanted_by, None);
}

pub(super) async fn an_ask_can_be_withdrawn(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "a withdrawn ask");
    let held = row.taken(ONE).await;
    row.ask(row.lease().await.seen(), TWO).await;
    let marked = row.lease().await;
    let withdrawn = row.withdraw_ask(marked.seen()).await;
    if withdrawn == Write::Refused(None) {
        // The store leaves it out.
        assert_eq!(row.lease().await, marked, "a refused write changes nothing");
        return;
    }
    assert_eq!(withdrawn, Write::Applied(()));
    let lease = Lease { counter: marked.counter + 1, wanted_by: None, ..marked.clone() };
    assert_eq!(row.lease().await, lease);
    assert_eq!(row.withdraw_ask(marked.seen()).await, Write::Refused(Some(lease)));
    assert_eq!(row.renew(&held).await, Write::Applied(()), "the holder keeps its lease");
}

pub(super) async fn an_ask_that_saw_another_state_is_refused(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "an outdated ask");
    assert_eq!(row.ask(Seen { epoch: 1, counter: 1 }, TWO).await, Write::Refused(None));
    assert_eq!(row.read().await, None, "a refused ask makes no row");

    let held = row.taken(ONE).await;
    let outdated = row.lease().await.seen();
    row.renew(&held).await;
    let lease = row.lease().await;
    assert_eq!(row.ask(outdated, TWO).await, Write::Refused(Some(lease.clone())));
    assert_eq!(row.read().await, Some(lease), "a refused ask changes nothing");
}
