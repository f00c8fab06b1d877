//! Promises of the holder's writes: [`LeaseStore::renew`], [`LeaseStore::checkpoint`], [`LeaseStore::release`].

use super::row::{ONE, TWO, TestRow, after};
use crate::{
    config::position::Checkpoint,
    lease::{Lease, LeaseStore, Write},
};

const APPLIED: Write = Write::Applied(());

pub(super) async fn every_applied_write_moves_the_counter_by_one(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "the counter");
    let held = row.taken(ONE).await;
    let mut expected = row.lease().await;

    assert_eq!(row.renew(&held).await, APPLIED);
    expected.counter += 1;
    assert_eq!(row.lease().await, expected, "a renewal changes nothing else");

    assert_eq!(row.checkpoint(&held, &after("5")).await, APPLIED);
    expected = Lease { counter: expected.counter + 1, checkpoint: Some(after("5")), ..expected };
    assert_eq!(row.lease().await, expected, "a checkpoint changes nothing else");

    assert_eq!(row.checkpoint(&held, &after("5")).await, APPLIED);
    expected.counter += 1;
    assert_eq!(row.lease().await, expected, "the same checkpoint once more counts as a renewal");

    assert_eq!(row.ask(expected.seen(), TWO).await, APPLIED);
    expected = Lease { counter: expected.counter + 1, wanted_by: Some(TWO.into()), ..expected };
    assert_eq!(row.lease().await, expected, "an ask changes nothing else");

    assert_eq!(row.release(&held).await, APPLIED);
    expected = Lease { counter: expected.counter + 1, owner: None, ..expected };
    assert_eq!(row.lease().await, expected, "a release changes nothing else");
}

pub(super) async fn a_checkpoint_survives_renewals_release_and_take(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "a kept checkpoint");
    let mut held = row.taken(ONE).await;
    for checkpoint in [Checkpoint::At(longest().into()), Checkpoint::After(longest().into()), Checkpoint::ShardEnd] {
        row.checkpoint(&held, &checkpoint).await;
        for _ in 0..3 {
            row.renew(&held).await;
        }
        assert_eq!(row.lease().await.checkpoint.as_ref(), Some(&checkpoint), "after three renewals");
        row.release(&held).await;
        assert_eq!(row.lease().await.checkpoint.as_ref(), Some(&checkpoint), "after a release");
        held = row.taken(TWO).await;
        assert_eq!(row.lease().await.checkpoint, Some(checkpoint), "after a take");
        held = row.taken(&held.owner).await;
    }
}

/// Only the library knows the order of a shard; a seek moves the checkpoint back, also from the end of a shard.
pub(super) async fn a_checkpoint_is_replaced_whatever_it_was(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "a replaced checkpoint");
    let held = row.taken(ONE).await;
    for checkpoint in [
        after("9"),
        after("10"),
        Checkpoint::ShardEnd,
        after("1"),
        Checkpoint::At("1".into()),
        Checkpoint::Since(1_700_000_000_123),
        Checkpoint::Since(0),
    ] {
        assert_eq!(row.checkpoint(&held, &checkpoint).await, APPLIED);
        assert_eq!(row.lease().await.checkpoint, Some(checkpoint));
    }
}

pub(super) async fn a_release_frees_the_row_and_keeps_everything_else(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "a release");
    let held = row.taken(ONE).await;
    row.checkpoint(&held, &after("5")).await;
    row.ask(row.lease().await.seen(), TWO).await;
    let before = row.lease().await;
    assert_eq!(row.release(&held).await, APPLIED);
    assert_eq!(row.lease().await, Lease { owner: None, counter: before.counter + 1, ..before });
}

/// The holder stalls, another one takes over and continues, and only then the writes of the old holder arrive.
pub(super) async fn a_fenced_owner_changes_nothing(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "a fenced owner");
    let fenced = row.taken(ONE).await;
    let current = row.taken(TWO).await;
    row.checkpoint(&current, &after("9")).await;
    row.refuses(&fenced).await;
    row.release(&current).await;
    row.refuses(&fenced).await;
    assert_eq!(row.lease().await.checkpoint, Some(after("9")));
}

pub(super) async fn a_write_of_another_owner_or_epoch_is_refused(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "a stranger");
    row.taken(TWO).await;
    let held = row.taken(ONE).await;
    row.refuses(&row.held(TWO, held.epoch)).await;
    row.refuses(&row.held(ONE, held.epoch - 1)).await;
    row.refuses(&row.held(ONE, held.epoch + 1)).await;
    row.refuses(&row.held("", held.epoch)).await;
}

pub(super) async fn a_write_to_an_absent_row_is_refused_and_makes_none(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "an absent row");
    row.refuses(&row.held(ONE, 0)).await;
    row.refuses(&row.held(ONE, 1)).await;
}

/// Also the same write: a release that is retried after its response was lost finds the row free and keeps it free.
pub(super) async fn a_late_write_after_the_release_is_refused(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "a late write");
    let held = row.taken(ONE).await;
    row.release(&held).await;
    row.refuses(&held).await;
    assert_eq!(row.lease().await.owner, None);
}

/// The longest sequence number that Kinesis allows, with zeros in front: it is text, not a number.
fn longest() -> String {
    format!("{:0>128}", "49590338271490256608559692538361571095921575989136588898")
}
