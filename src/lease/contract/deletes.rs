//! Promises of [`LeaseStore::delete`].

use super::row::{ONE, TWO, TestRow, after, first};
use crate::lease::{LeaseStore, Seen, Write};

pub(super) async fn a_delete_removes_the_row_and_its_checkpoint(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "a delete");
    let held = row.taken(ONE).await;
    row.checkpoint(&held, &after("5")).await;
    row.release(&held).await;
    assert_eq!(row.delete(row.lease().await.seen()).await, Write::Applied(()));
    assert_eq!(row.read().await, None);
    row.refuses(&held).await;
    assert_eq!(row.take(TWO, None).await, Write::Applied(first(&row.key, TWO)), "the next take makes a new row");
}

pub(super) async fn a_delete_that_saw_another_state_is_refused(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "an outdated delete");
    assert_eq!(row.delete(Seen { epoch: 1, counter: 1 }).await, Write::Refused(None));
    let held = row.taken(ONE).await;
    let outdated = row.lease().await.seen();
    row.renew(&held).await;
    let lease = row.lease().await;
    assert_eq!(row.delete(outdated).await, Write::Refused(Some(lease.clone())));
    assert_eq!(row.read().await, Some(lease), "a refused delete changes nothing");
}
