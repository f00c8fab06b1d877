//! Cancelled calls that arrive anyway.

use kinesis_stream::{Checkpoint, DynamoDbLeaseStore, Held, LeaseStore, Write};
use kinesis_stream_support::{Faults, Op};

use crate::lease_table::{LeaseTable, after, key, lease, taken};

/// Sends a checkpoint that the network delays, and cancels the call.
async fn cancel_checkpoint(store: &DynamoDbLeaseStore, faults: &Faults, one: &Held, checkpoint: Checkpoint) {
    let before = faults.count(Op::UpdateItem);
    let (store, one) = (store.clone(), one.clone());
    let call = tokio::spawn(async move { store.checkpoint(&one, &checkpoint).await });
    faults.called(Op::UpdateItem, before + 1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
}

// A3
#[tokio::test]
async fn a_cancelled_checkpoint_does_not_overwrite_a_later_one() {
    let table = LeaseTable::new().await;
    let faults = Faults::default();
    let store = table.through(&faults);
    let one = taken(&store, "one").await;
    let held = faults.on(Op::UpdateItem).first(1).hold();
    cancel_checkpoint(&store, &faults, &one, after("5")).await;
    assert_eq!(store.checkpoint(&one, &after("6")).await.unwrap(), Write::Applied(()));
    held.lift();
    faults.idle().await;
    let row = lease(&store).await;
    assert_eq!((row.checkpoint, row.counter), (Some(after("6")), 2), "the late checkpoint was refused");
    assert_eq!(store.renew(&one).await.unwrap(), Write::Applied(()));
}

// A3
#[tokio::test]
async fn a_cancelled_checkpoint_that_arrives_before_a_later_one_is_replaced_by_it() {
    let table = LeaseTable::new().await;
    let faults = Faults::default();
    let store = table.through(&faults);
    let one = taken(&store, "one").await;
    let held = faults.on(Op::UpdateItem).first(1).hold();
    cancel_checkpoint(&store, &faults, &one, after("5")).await;
    held.lift();
    faults.idle().await;
    assert_eq!(lease(&store).await.checkpoint, Some(after("5")));
    assert_eq!(store.checkpoint(&one, &after("6")).await.unwrap(), Write::Applied(()));
    let row = lease(&store).await;
    assert_eq!((row.checkpoint, row.counter), (Some(after("6")), 3));
}

// A3, E2
#[tokio::test]
async fn a_cancelled_checkpoint_has_no_effect_after_a_release_or_a_take() {
    let table = LeaseTable::new().await;
    let faults = Faults::default();
    let store = table.through(&faults);
    let one = taken(&store, "one").await;
    store.checkpoint(&one, &after("4")).await.unwrap();
    let held = faults.on(Op::UpdateItem).first(1).hold();
    cancel_checkpoint(&store, &faults, &one, after("5")).await;
    store.release(&one).await.unwrap();
    let two = taken(&store, "two").await;
    store.checkpoint(&two, &after("9")).await.unwrap();
    held.lift();
    faults.idle().await;
    let row = lease(&store).await;
    assert_eq!((row.owner.as_deref(), row.checkpoint), (Some("two"), Some(after("9"))));
    assert_eq!(store.checkpoint(&one, &after("5")).await.unwrap(), Write::Refused(Some(lease(&store).await)));
}

#[tokio::test]
async fn a_request_for_the_lease_in_between_costs_the_holder_one_more_attempt() {
    let table = LeaseTable::new().await;
    let faults = Faults::default();
    let store = table.through(&faults);
    let one = taken(&store, "one").await;
    table.store().ask(&key(), lease(&store).await.seen(), "two").await.unwrap();
    faults.clear();
    assert_eq!(store.renew(&one).await.unwrap(), Write::Applied(()));
    assert_eq!(store.renew(&one).await.unwrap(), Write::Applied(()));
    assert_eq!((faults.count(Op::UpdateItem), faults.count(Op::GetItem)), (3, 0));
    assert_eq!(lease(&store).await.wanted_by.as_deref(), Some("two"));
}
