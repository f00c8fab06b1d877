//! The worker and its queue: order, bounds and the end of the thread.

use std::sync::Arc;

use futures::FutureExt;
use tokio::task::unconstrained;

use super::{
    super::{EmbeddedLeaseStore, worker::Worker},
    after,
    disk::{Disk, Folder, SyncBehavior, on},
    held, leases, taken,
};
use crate::lease::{LeaseStore, Write};

#[tokio::test]
async fn calls_of_one_holder_are_applied_in_order_also_if_they_are_abandoned() {
    let (folder, disk) = (Folder::new(), Arc::new(Disk::default()));
    let store = on(&disk, &folder);
    taken(&store, 1).await;
    disk.set(SyncBehavior::Hangs);
    for number in 0..3 {
        let (held, checkpoint) = (held(0), after(number));
        assert!(store.checkpoint(&held, &checkpoint).now_or_never().is_none());
    }
    let (holder, last) = (held(0), after(3));
    let mut last = store.checkpoint(&holder, &last);
    assert!(last.as_mut().now_or_never().is_none());
    disk.set(SyncBehavior::Good);
    assert_eq!(last.await.unwrap(), Write::Applied(()));
    for _ in 0..3 {
        assert_eq!(leases(&store).await[0].checkpoint, Some(after(3)));
    }
}

#[tokio::test]
async fn a_disk_that_hangs_blocks_no_thread_of_the_runtime_and_queues_no_more_calls_than_fit() {
    let (folder, disk) = (Folder::new(), Arc::new(Disk::default()));
    let store = on(&disk, &folder);
    taken(&store, 1).await;
    disk.set(SyncBehavior::Hangs);
    let holder = held(0);
    for _ in 0..5_000 {
        // The first renewals may finish: they do not wait for the disk.
        let _ = unconstrained(store.renew(&holder)).now_or_never();
        let abandoned = unconstrained(store.checkpoint(&holder, &after(1))).now_or_never();
        assert!(abandoned.is_none());
    }
    disk.set(SyncBehavior::Good);
    assert_eq!(store.renew(&held(0)).await.unwrap(), Write::Applied(()));
}

#[tokio::test]
async fn the_file_is_free_once_the_last_clone_is_dropped_also_while_calls_are_under_way() {
    let folder = Folder::new();
    for round in 0..20 {
        let store = EmbeddedLeaseStore::open(folder.file()).unwrap();
        let other = store.clone();
        if round == 0 {
            taken(&store, 50).await;
        }
        drop(store);
        for shard in 0..50 {
            let (held, checkpoint) = (held(shard), after(round));
            let _ = other.checkpoint(&held, &checkpoint).now_or_never();
        }
    }
    let store = EmbeddedLeaseStore::open(folder.file()).unwrap();
    assert_eq!(leases(&store).await.len(), 50);
}

#[tokio::test]
async fn a_call_on_a_worker_that_ended_is_an_error_and_does_not_hang() {
    let store = EmbeddedLeaseStore { worker: Arc::new(Worker::ended("leases.redb".into())) };
    let error = store.leases("c", "s").await.unwrap_err();
    assert!(error.to_string().starts_with("the lease file leases.redb: the thread that writes it ended"), "{error}");
}
