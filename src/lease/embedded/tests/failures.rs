//! Failures of the disk, the file and a row, and their texts.

use std::{fs, sync::Arc};

use redb::{Database, TableDefinition};

use super::{
    super::{EmbeddedLeaseStore, failure, file::LeaseFile, row::encode, rows},
    after,
    disk::{Disk, Folder, SyncBehavior, on},
    held, leases, take_of, taken,
};
use crate::{
    error::service::StoreErrorKind,
    lease::{Lease, LeaseStore, Seen, Take, Write},
    types::id::ShardId,
};

#[tokio::test]
async fn a_failed_transaction_fails_its_calls_and_not_the_store() {
    for (behavior, text) in [(SyncBehavior::Fails, "the disk is full"), (SyncBehavior::Panics, "the database panicked")]
    {
        let (folder, disk) = (Folder::new(), Arc::new(Disk::default()));
        let store = on(&disk, &folder);
        taken(&store, 2).await;
        let before = leases(&store).await;
        disk.set(behavior);
        for _ in 0..2 {
            // A read alone would succeed. In one transaction with a failed write it must not show that write.
            let error = store.checkpoint(&held(0), &after(1)).await.unwrap_err().to_string();
            assert!(error.contains(text) && error.contains("leases.redb"), "{error}");
        }
        disk.set(SyncBehavior::Good);
        assert_eq!(leases(&store).await[1], before[1]);
        assert_eq!(store.checkpoint(&held(0), &after(2)).await.unwrap(), Write::Applied(()));
        assert_eq!(leases(&store).await[0].checkpoint, Some(after(2)));
    }
}

#[tokio::test]
async fn a_file_that_was_removed_after_a_failure_is_not_replaced_by_an_empty_one() {
    let folder = Folder::new();
    let path = folder.file();
    let mut file = LeaseFile::open(&path).unwrap();
    file.fail();
    fs::remove_file(&path).unwrap();
    let store = EmbeddedLeaseStore::over(file).unwrap();
    let error = store.leases("c", "s").await.unwrap_err().to_string();
    assert!(error.contains("there is no such file"), "{error}");
    assert!(!path.exists());
}

#[test]
fn a_file_of_a_newer_version_and_the_database_of_another_program_are_refused_and_not_changed() {
    let folder = Folder::new();
    let table = |name| TableDefinition::<&str, u64>::new(name);
    for (name, version, text) in [
        ("kinesis-stream", 2, "its format is 2, and this program knows 1: use the newer version"),
        ("accounts", 1, "that is the database of another program: name another file"),
    ] {
        let path = folder.0.join(name);
        let database = Database::create(&path).unwrap();
        let transaction = database.begin_write().unwrap();
        transaction.open_table(table(name)).unwrap().insert("format", version).unwrap();
        transaction.commit().unwrap();
        drop(database);
        for _ in 0..2 {
            let error = EmbeddedLeaseStore::open(&path).unwrap_err().to_string();
            assert!(error.contains(text) && error.contains(name), "{error}");
        }
    }
}

#[test]
fn errors_of_the_system_say_what_to_do() {
    use std::io::ErrorKind;
    for (kind, text) in [
        (ErrorKind::PermissionDenied, "permission denied: this process has to read and write"),
        (ErrorKind::ReadOnlyFilesystem, "permission denied"),
        (ErrorKind::StorageFull, "the disk is full: make room"),
        (ErrorKind::Other, "the disk failed"),
    ] {
        let error = failure::failed("/srv/leases.redb".as_ref(), redb::Error::Io(kind.into()));
        assert!(error.to_string().starts_with(&format!("the lease file /srv/leases.redb: {text}")), "{error}");
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[tokio::test]
async fn an_unreadable_row_fails_only_its_own_calls() {
    let folder = Folder::new();
    let store = EmbeddedLeaseStore::open(folder.file()).unwrap();
    taken(&store, 2).await;
    drop(store);
    let database = Database::open(folder.file()).unwrap();
    let transaction = database.begin_write().unwrap();
    transaction.open_table(rows::LEASES).unwrap().insert(("c", "s", "shard-0"), [9].as_slice()).unwrap();
    transaction.commit().unwrap();
    drop(database);
    let store = EmbeddedLeaseStore::open(folder.file()).unwrap();
    let (zero, one) = (held(0), held(1));
    let (bad, good) = futures::join!(store.renew(&zero), store.renew(&one));
    assert_eq!(good.unwrap(), Write::Applied(()));
    let error = bad.unwrap_err();
    let text =
        format!("the lease file {}: the row c/s/shard-0 cannot be read: it is in version 9", folder.file().display());
    assert!(error.to_string().starts_with(&text), "{error}");
    assert_eq!(error.kind(), StoreErrorKind::UnreadableRow);
    let leases = store.read_leases("c", "s").await.unwrap();
    assert_eq!(leases.rows.iter().map(|row| row.key.shard.as_str()).collect::<Vec<_>>(), ["shard-1"]);
    let [spoilt] = &leases.unreadable[..] else { panic!("{leases:?}") };
    assert_eq!((spoilt.key.clone(), spoilt.error.to_string()), (held(0).key, error.to_string()));
    assert!(store.leases("c", "t").await.unwrap().is_empty());
}

// E2, E6
#[tokio::test]
async fn a_row_at_the_largest_number_is_unreadable_and_no_write_makes_one() {
    let folder = Folder::new();
    drop(EmbeddedLeaseStore::open(folder.file()).unwrap());
    let row = |shard: usize, epoch, counter| Lease {
        owner: Some("a".into()),
        ..Lease::new(take_of(shard).key, Seen::new(epoch, counter))
    };
    let rows =
        [row(0, u64::MAX, 1), row(1, 1, u64::MAX), row(2, u64::MAX - 1, 1), row(3, 1, u64::MAX - 1), row(4, 1, 1)];
    let database = Database::open(folder.file()).unwrap();
    let transaction = database.begin_write().unwrap();
    for row in &rows {
        let bytes = encode(row);
        let columns = ("c", "s", row.key.shard.as_str());
        transaction.open_table(rows::LEASES).unwrap().insert(columns, bytes.as_slice()).unwrap();
    }
    transaction.commit().unwrap();
    drop(database);

    let store = EmbeddedLeaseStore::open(folder.file()).unwrap();
    let full = |shard: usize, column: &str, number: u64| {
        format!(
            "the lease file {}: the row c/s/shard-{shard}: {column} is {number}, the largest number, so the row cannot be \
             written; correct or delete the row",
            folder.file().display()
        )
    };
    let found = store.read_leases("c", "s").await.unwrap();
    assert_eq!(found.rows, rows[2..]);
    let unreadable: Vec<_> = found.unreadable.iter().map(|row| row.error.to_string()).collect();
    assert_eq!(unreadable, [full(0, "epoch", u64::MAX), full(1, "counter", u64::MAX)]);
    let take = Take { seen: Some(rows[2].seen()), ..take_of(2) };
    assert_eq!(store.take(&take).await.unwrap_err().to_string(), full(2, "epoch", u64::MAX - 1));
    assert_eq!(store.renew(&held(3)).await.unwrap_err().to_string(), full(3, "counter", u64::MAX - 1));
    assert_eq!(store.renew(&held(4)).await.unwrap(), Write::Applied(()));
    assert_eq!(store.read_leases("c", "s").await.unwrap().rows[..2], rows[2..4]);
}

#[test]
fn shard_ids_are_ordered_as_text_in_the_file_too() {
    let mut shards: Vec<ShardId> = ["shard-9", "shard-10", "shard-1"].map(Into::into).to_vec();
    shards.sort();
    let folder = Folder::new();
    let store = EmbeddedLeaseStore::open(folder.file()).unwrap();
    let found = futures::executor::block_on(async {
        for shard in [9, 10, 1] {
            store.take(&take_of(shard)).await.unwrap();
        }
        leases(&store).await
    });
    assert_eq!(found.into_iter().map(|row| row.key.shard).collect::<Vec<_>>(), shards);
}
