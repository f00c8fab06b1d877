//! When a change is on the disk: shared commits, and renewals that do not sync.

use std::{fs, sync::Arc};

use futures::{FutureExt, future::join_all};
use tokio::task::{unconstrained, yield_now};

use super::{
    super::EmbeddedLeaseStore,
    after,
    disk::{Disk, Folder, SyncBehavior, on},
    held, leases, take_of, taken,
};
use crate::lease::{Held, Lease, LeaseStore, Write};

/// How many syncs a single checkpoint takes.
async fn syncs_of_one_commit(store: &EmbeddedLeaseStore, disk: &Disk) -> usize {
    let before = disk.syncs();
    store.checkpoint(&held(0), &after(0)).await.unwrap();
    disk.syncs() - before
}

// A4
#[tokio::test]
async fn calls_that_wait_together_share_one_commit() {
    let (folder, disk) = (Folder::new(), Arc::new(Disk::default()));
    let store = on(&disk, &folder);
    taken(&store, 500).await;
    let shards: Vec<Held> = (0..500).map(held).collect();
    // A growing file needs additional syncs, so let it grow first.
    for number in 0..3 {
        let checkpoint = after(number);
        join_all(shards.iter().map(|held| store.checkpoint(held, &checkpoint))).await;
    }
    let one = syncs_of_one_commit(&store, &disk).await;
    assert!(one > 0);

    let before = disk.syncs();
    disk.set(SyncBehavior::Hangs);
    let (holder, checkpoint) = (held(0), after(4));
    let mut first = store.checkpoint(&holder, &checkpoint);
    assert!(first.as_mut().now_or_never().is_none());
    // Once the sync began, the group is closed, and further calls wait for the next one.
    while disk.syncs() == before {
        yield_now().await;
    }
    let mut others = unconstrained(join_all(shards.iter().map(|held| store.checkpoint(held, &checkpoint))));
    assert!((&mut others).now_or_never().is_none());
    disk.set(SyncBehavior::Good);
    assert_eq!(first.await.unwrap(), Write::Applied(()));
    assert!(others.await.into_iter().all(|write| write.unwrap() == Write::Applied(())));
    assert_eq!(disk.syncs() - before, 2 * one);
    assert!(leases(&store).await.iter().all(|row| row.checkpoint == Some(after(4))));
}

#[tokio::test]
async fn renewals_reads_and_refusals_do_not_sync_and_are_part_of_the_next_commit() {
    let (folder, disk) = (Folder::new(), Arc::new(Disk::default()));
    let store = on(&disk, &folder);
    taken(&store, 2).await;
    let before = disk.syncs();
    for _ in 0..10 {
        assert_eq!(store.renew(&held(0)).await.unwrap(), Write::Applied(()));
        assert!(matches!(store.take(&take_of(0)).await.unwrap(), Write::Refused(Some(_))));
        assert_eq!(leases(&store).await.len(), 2);
    }
    assert_eq!(disk.syncs(), before);
    assert_eq!(leases(&store).await[0].counter, 11);
    store.checkpoint(&held(1), &after(1)).await.unwrap();
    assert!(disk.syncs() > before);
    // A process would find these contents after a crash.
    let copy = Folder::new();
    fs::copy(folder.file(), copy.file()).unwrap();
    let found = EmbeddedLeaseStore::open(copy.file()).unwrap();
    assert_eq!(leases(&found).await, leases(&store).await);
}

#[tokio::test]
async fn a_crash_takes_back_renewals_and_nothing_else() {
    let (folder, copy) = (Folder::new(), Folder::new());
    let store = EmbeddedLeaseStore::open(folder.file()).unwrap();
    taken(&store, 1).await;
    store.checkpoint(&held(0), &after(7)).await.unwrap();
    store.renew(&held(0)).await.unwrap();
    let before = leases(&store).await.remove(0);
    fs::copy(folder.file(), copy.file()).unwrap();
    let found = leases(&EmbeddedLeaseStore::open(copy.file()).unwrap()).await.remove(0);
    assert_eq!(found, Lease { counter: before.counter - 1, ..before });
}

#[tokio::test]
async fn renewals_do_not_grow_the_file() {
    let folder = Folder::new();
    let store = EmbeddedLeaseStore::open(folder.file()).unwrap();
    taken(&store, 100).await;
    let shards: Vec<Held> = (0..100).map(held).collect();
    for _ in 0..300 {
        join_all(shards.iter().map(|held| store.renew(held))).await;
    }
    // Ten kilobytes of rows, written 300 times.
    let size = fs::metadata(folder.file()).unwrap().len();
    assert!(size < 1_000_000, "{size}");
}
