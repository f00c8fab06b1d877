//! Calls that are given up, and arrive nevertheless.

use kinesis_stream::{Checkpoint, DynamoDbLeaseStore, Held, LeaseStore, Write};
use kinesis_stream_support::{Faults, Op};

use crate::ground::{Ground, after, key, lease, taken};

/// Sends a checkpoint that is held back on the line, and gives the call up.
async fn give_up(store: &DynamoDbLeaseStore, faults: &Faults, one: &Held, checkpoint: Checkpoint) {
    let before = faults.count(Op::UpdateItem);
    let (store, one) = (store.clone(), one.clone());
    let call = tokio::spawn(async move { store.checkpoint(&one, &checkpoint).await });
    faults.called(Op::UpdateItem, before + 1).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
}

// A3
#[tokio::test]
async fn a_checkpoint_that_was_given_up_does_not_overtake_a_later_one() {
    let ground = Ground::new().await;
    let faults = Faults::default();
    let store = ground.through(&faults);
    let one = taken(&store, "one").await;
    let held = faults.on(Op::UpdateItem).first(1).hold();
    give_up(&store, &faults, &one, after("5")).await;
    assert_eq!(store.checkpoint(&one, &after("6")).await.unwrap(), Write::Applied(()));
    held.lift();
    faults.idle().await;
    let row = lease(&store).await;
    assert_eq!((row.checkpoint, row.counter), (Some(after("6")), 2), "the late one was refused");
    assert_eq!(store.renew(&one).await.unwrap(), Write::Applied(()));
}

// A3
#[tokio::test]
async fn a_checkpoint_that_was_given_up_and_arrives_in_between_is_replaced_by_the_later_one() {
    let ground = Ground::new().await;
    let faults = Faults::default();
    let store = ground.through(&faults);
    let one = taken(&store, "one").await;
    let held = faults.on(Op::UpdateItem).first(1).hold();
    give_up(&store, &faults, &one, after("5")).await;
    held.lift();
    faults.idle().await;
    assert_eq!(lease(&store).await.checkpoint, Some(after("5")));
    assert_eq!(store.checkpoint(&one, &after("6")).await.unwrap(), Write::Applied(()));
    let row = lease(&store).await;
    assert_eq!((row.checkpoint, row.counter), (Some(after("6")), 3));
}

// B8, A12
#[tokio::test]
async fn a_checkpoint_that_was_given_up_does_not_arrive_after_a_release_or_a_take() {
    let ground = Ground::new().await;
    let faults = Faults::default();
    let store = ground.through(&faults);
    let one = taken(&store, "one").await;
    store.checkpoint(&one, &after("4")).await.unwrap();
    let held = faults.on(Op::UpdateItem).first(1).hold();
    give_up(&store, &faults, &one, after("5")).await;
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
async fn a_row_that_was_asked_for_in_between_costs_one_more_try() {
    let ground = Ground::new().await;
    let faults = Faults::default();
    let store = ground.through(&faults);
    let one = taken(&store, "one").await;
    ground.store().ask(&key(), lease(&store).await.seen(), "two").await.unwrap();
    faults.clear();
    assert_eq!(store.renew(&one).await.unwrap(), Write::Applied(()));
    assert_eq!(store.renew(&one).await.unwrap(), Write::Applied(()));
    assert_eq!((faults.count(Op::UpdateItem), faults.count(Op::GetItem)), (3, 0));
    assert_eq!(lease(&store).await.wanted_by.as_deref(), Some("two"));
}
