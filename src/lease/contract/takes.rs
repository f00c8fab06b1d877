//! Promises of [`LeaseStore::take`].

use std::sync::Arc;

use tokio::task::JoinSet;

use super::row::{ONE, TWO, TestRow, after, first, take};
use crate::{
    config::position::Checkpoint,
    lease::{Lease, LeaseStore, Seen, Take, Write},
};

pub(super) async fn the_first_take_makes_the_row(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "the first take");
    assert_eq!(row.read().await, None, "the table holds no rows of an earlier run");
    let made = first(&row.key, ONE);
    assert_eq!(row.take(ONE, None).await, Write::Applied(made.clone()));
    assert_eq!(row.read().await, Some(made));
}

pub(super) async fn a_take_keeps_the_checkpoint_and_replaces_the_rest(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "the next take");
    let held = row.taken(ONE).await;
    row.checkpoint(&held, &after("7")).await;
    let before = row.lease().await;
    let bare = Take { parents: Vec::new(), stream_created: None, ..take(&row.key, TWO, Some(before.seen())) };
    let taken = Lease {
        owner: Some(TWO.into()),
        epoch: before.epoch + 1,
        counter: before.counter + 1,
        parents: Vec::new(),
        stream_created: None,
        ..before
    };
    assert_eq!(store.take(&bare).await.expect("the take returns no error"), Write::Applied(taken.clone()));
    assert_eq!(row.read().await, Some(taken));
}

pub(super) async fn a_take_forgets_the_checkpoint_if_it_says_so(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "a take on another stream");
    let held = row.taken(ONE).await;
    row.checkpoint(&held, &after("7")).await;
    let before = row.lease().await;
    let anew = Take { forget_checkpoint: true, ..take(&row.key, TWO, Some(before.seen())) };
    assert!(matches!(store.take(&anew).await, Ok(Write::Applied(Lease { checkpoint: None, .. }))));
    assert_eq!(row.lease().await.checkpoint, None);
}

pub(super) async fn a_take_stores_the_time_of_latest_in_a_row_without_a_checkpoint(store: &dyn LeaseStore) {
    let since = |unix_millis| Some(Checkpoint::Since(unix_millis));
    let row = TestRow::new(store, "the time of latest");
    let new = Take { since: Some(5), ..take(&row.key, ONE, None) };
    assert!(matches!(store.take(&new).await, Ok(Write::Applied(Lease { checkpoint, .. })) if checkpoint == since(5)));
    assert_eq!(row.lease().await.checkpoint, since(5));

    // The next take keeps it.
    row.taken(TWO).await;
    assert_eq!(row.lease().await.checkpoint, since(5));

    // A row of another stream gets the new time, and a row without a checkpoint gets its first.
    let before = row.lease().await;
    let anew = Take { forget_checkpoint: true, since: Some(6), ..take(&row.key, ONE, Some(before.seen())) };
    assert!(matches!(store.take(&anew).await, Ok(Write::Applied(Lease { checkpoint, .. })) if checkpoint == since(6)));
    let row = TestRow::new(store, "the time of latest, later");
    row.taken(ONE).await;
    let before = row.lease().await;
    assert_eq!(before.checkpoint, None);
    let later = Take { since: Some(7), ..take(&row.key, TWO, Some(before.seen())) };
    assert!(matches!(store.take(&later).await, Ok(Write::Applied(Lease { checkpoint, .. })) if checkpoint == since(7)));
    assert_eq!(row.lease().await.checkpoint, since(7));
}

pub(super) async fn a_take_that_saw_another_state_is_refused_and_shows_the_row(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "an outdated take");
    let phantom = Seen { epoch: 1, counter: 1 };
    assert_eq!(row.take(ONE, Some(phantom)).await, Write::Refused(None), "there is no row to see");
    assert_eq!(row.read().await, None, "a refused take makes no row");

    let held = row.taken(ONE).await;
    row.renew(&held).await;
    let lease = row.lease().await;
    let Seen { epoch, counter } = lease.seen();
    let others = [
        None,
        Some(Seen { epoch, counter: counter - 1 }),
        Some(Seen { epoch, counter: counter + 1 }),
        Some(Seen { epoch: epoch - 1, counter }),
        Some(Seen { epoch: epoch + 1, counter }),
    ];
    for seen in others {
        assert_eq!(row.take(TWO, seen).await, Write::Refused(Some(lease.clone())), "a take that saw {seen:?}");
    }
    assert_eq!(row.read().await, Some(lease), "a refused take changes nothing");
}

pub(super) async fn epochs_grow_by_one_and_with_takes_alone(store: &dyn LeaseStore) {
    let row = TestRow::new(store, "epochs");
    for (epoch, owner) in [(1, ONE), (2, TWO), (3, TWO), (4, ONE)] {
        let held = row.taken(owner).await;
        assert_eq!(held.epoch, epoch, "also if a holder takes its row again, and after a release");
        row.renew(&held).await;
        row.checkpoint(&held, &after("1")).await;
        row.ask(row.lease().await.seen(), ONE).await;
        row.release(&held).await;
        assert_eq!(row.lease().await.epoch, epoch);
    }
}

/// On an absent row, on a held one (its owner seems dead), and on a free one.
pub(super) async fn of_a_hundred_concurrent_takes_one_is_applied(store: &Arc<dyn LeaseStore>) {
    let row = TestRow::new(&**store, "the race");
    let winner = race(store, &row).await;
    let winner = row.held(winner.owner.as_deref().expect("a taken row has an owner"), winner.epoch);
    race(store, &row).await;
    row.refuses(&winner).await;

    let held = row.taken(ONE).await;
    row.release(&held).await;
    race(store, &row).await;
}

async fn race(store: &Arc<dyn LeaseStore>, row: &TestRow<'_>) -> Lease {
    let before = row.read().await;
    let seen = before.as_ref().map(Lease::seen);
    let mut takers = JoinSet::new();
    for taker in 0..100 {
        let (store, take) = (Arc::clone(store), take(&row.key, &format!("taker-{taker}"), seen));
        takers.spawn(async move { store.take(&take).await.expect("the take returns no error") });
    }
    let (mut applied, mut refused) = (Vec::new(), Vec::new());
    for result in takers.join_all().await {
        match result {
            Write::Applied(lease) => applied.push(lease),
            Write::Refused(lease) => refused.push(lease),
        }
    }
    assert_eq!(applied.len(), 1, "of a hundred takes exactly one is applied: {applied:?}");
    let winner = applied.swap_remove(0);
    assert!(refused.iter().all(|shown| shown.as_ref() == Some(&winner)), "the other takes get the winner's row");
    assert_eq!(winner.epoch, before.map_or(1, |row| row.epoch + 1));
    assert_eq!(row.read().await.as_ref(), Some(&winner));
    winner
}
