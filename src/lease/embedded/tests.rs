//! What can only be seen from inside: how often the disk is asked, and what happens when it fails.

use std::{
    env, fs,
    path::PathBuf,
    sync::{
        Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures::{FutureExt, future::join_all};
use redb::{Database, StorageBackend, TableDefinition, backends::FileBackend};
use tokio::task::{unconstrained, yield_now};
use uuid::Uuid;

use super::{file::Source, *};
use crate::{error::chain::Chain, types::id::ShardId, util::mutex::lock};

/// A folder that is removed in the end.
#[derive(Debug)]
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let path = env::temp_dir().join(format!("kinesis-stream-{}", Uuid::new_v4()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("leases.redb")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What the disk does when it is told to sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mood {
    #[default]
    Good,
    Hangs,
    Fails,
    Panics,
}

/// A disk that counts its syncs, and has moods.
#[derive(Debug, Default)]
struct Disk {
    syncs: AtomicUsize,
    mood: Mutex<Mood>,
    changed: Condvar,
}

impl Disk {
    fn becomes(&self, mood: Mood) {
        *lock(&self.mood) = mood;
        self.changed.notify_all();
    }

    fn syncs(&self) -> usize {
        self.syncs.load(Ordering::SeqCst)
    }

    fn sync(&self) -> std::io::Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        let mood = *self.changed.wait_while(lock(&self.mood), |mood| *mood == Mood::Hangs).unwrap();
        match mood {
            Mood::Fails => Err(std::io::ErrorKind::StorageFull.into()),
            Mood::Panics => panic!("a damaged page"),
            Mood::Good | Mood::Hangs => Ok(()),
        }
    }
}

/// A file on such a disk.
#[derive(Debug)]
struct MoodyFile(FileBackend, Arc<Disk>);

impl StorageBackend for MoodyFile {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read(offset, out)
    }

    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&self) -> std::io::Result<()> {
        self.1.sync()?;
        self.0.sync_data()
    }

    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        self.0.write(offset, data)
    }

    fn close(&self) -> std::io::Result<()> {
        self.0.close()
    }
}

fn on(disk: &Arc<Disk>, folder: &Folder) -> EmbeddedLeaseStore {
    let (disk, path) = (Arc::clone(disk), folder.file());
    let source: Source = Box::new(move |_| {
        let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        file::builder().create_with_backend(MoodyFile(FileBackend::new(file)?, Arc::clone(&disk)))
    });
    EmbeddedLeaseStore::over(LeaseFile::over(folder.file(), source).unwrap()).unwrap()
}

fn take_of(shard: usize) -> Take {
    let key = LeaseKey { consumer: "c".into(), stream: "s".into(), shard: format!("shard-{shard}").into() };
    let owner = "a".into();
    Take { key, owner, seen: None, parents: Vec::new(), stream_created: None, forget_checkpoint: false }
}

fn held(shard: usize) -> Held {
    Held { key: take_of(shard).key, owner: "a".into(), epoch: 1 }
}

fn after(number: usize) -> Checkpoint {
    Checkpoint::After(number.to_string().into())
}

async fn taken(store: &EmbeddedLeaseStore, shards: usize) {
    for take in join_all((0..shards).map(async |shard| store.take(&take_of(shard)).await.unwrap())).await {
        assert!(matches!(take, Write::Applied(_)));
    }
}

async fn rows(store: &EmbeddedLeaseStore) -> Vec<Lease> {
    store.leases("c", "s").await.unwrap()
}

/// How many syncs one checkpoint alone takes.
async fn syncs_of_one_commit(store: &EmbeddedLeaseStore, disk: &Disk) -> usize {
    let before = disk.syncs();
    store.checkpoint(&held(0), &after(0)).await.unwrap();
    disk.syncs() - before
}

// A4
#[tokio::test]
async fn calls_that_wait_together_are_one_commit() {
    let (folder, disk) = (Folder::new(), Arc::new(Disk::default()));
    let store = on(&disk, &folder);
    taken(&store, 500).await;
    let shards: Vec<Held> = (0..500).map(held).collect();
    // A file that grows takes syncs more.
    for number in 0..3 {
        let checkpoint = after(number);
        join_all(shards.iter().map(|held| store.checkpoint(held, &checkpoint))).await;
    }
    let one = syncs_of_one_commit(&store, &disk).await;
    assert!(one > 0);

    let before = disk.syncs();
    disk.becomes(Mood::Hangs);
    let (holder, checkpoint) = (held(0), after(4));
    let mut first = store.checkpoint(&holder, &checkpoint);
    assert!(first.as_mut().now_or_never().is_none());
    // Once it is at the disk, the group is closed, and who comes now waits for the next one.
    while disk.syncs() == before {
        yield_now().await;
    }
    let mut others = unconstrained(join_all(shards.iter().map(|held| store.checkpoint(held, &checkpoint))));
    assert!((&mut others).now_or_never().is_none());
    disk.becomes(Mood::Good);
    assert_eq!(first.await.unwrap(), Write::Applied(()));
    assert!(others.await.into_iter().all(|write| write.unwrap() == Write::Applied(())));
    assert_eq!(disk.syncs() - before, 2 * one);
    assert!(rows(&store).await.iter().all(|row| row.checkpoint == Some(after(4))));
}

#[tokio::test]
async fn renewals_and_reads_and_refusals_do_not_sync_and_take_part_in_the_next_commit() {
    let (folder, disk) = (Folder::new(), Arc::new(Disk::default()));
    let store = on(&disk, &folder);
    taken(&store, 2).await;
    let before = disk.syncs();
    for _ in 0..10 {
        assert_eq!(store.renew(&held(0)).await.unwrap(), Write::Applied(()));
        assert!(matches!(store.take(&take_of(0)).await.unwrap(), Write::Refused(Some(_))));
        assert_eq!(rows(&store).await.len(), 2);
    }
    assert_eq!(disk.syncs(), before);
    assert_eq!(rows(&store).await[0].counter, 11);
    store.checkpoint(&held(1), &after(1)).await.unwrap();
    assert!(disk.syncs() > before);
    // What is in the file now is what a process would find that comes after a crash.
    let copy = Folder::new();
    fs::copy(folder.file(), copy.file()).unwrap();
    let found = EmbeddedLeaseStore::open(copy.file()).unwrap();
    assert_eq!(rows(&found).await, rows(&store).await);
}

#[tokio::test]
async fn a_crash_takes_back_renewals_and_nothing_else() {
    let (folder, copy) = (Folder::new(), Folder::new());
    let store = EmbeddedLeaseStore::open(folder.file()).unwrap();
    taken(&store, 1).await;
    store.checkpoint(&held(0), &after(7)).await.unwrap();
    store.renew(&held(0)).await.unwrap();
    let before = rows(&store).await.remove(0);
    fs::copy(folder.file(), copy.file()).unwrap();
    let found = rows(&EmbeddedLeaseStore::open(copy.file()).unwrap()).await.remove(0);
    assert_eq!(found, Lease { counter: before.counter - 1, ..before });
}

#[tokio::test]
async fn renewals_without_end_do_not_grow_the_file() {
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

#[tokio::test]
async fn a_transaction_that_failed_fails_its_calls_and_not_the_store() {
    for (mood, said) in [(Mood::Fails, "the disk is full"), (Mood::Panics, "the database panicked")] {
        let (folder, disk) = (Folder::new(), Arc::new(Disk::default()));
        let store = on(&disk, &folder);
        taken(&store, 2).await;
        let before = rows(&store).await;
        disk.becomes(mood);
        for _ in 0..2 {
            // A read alone would succeed; together with a write that fails it must not show what was not written.
            let error = store.checkpoint(&held(0), &after(1)).await.unwrap_err().to_string();
            assert!(error.contains(said) && error.contains("leases.redb"), "{error}");
        }
        disk.becomes(Mood::Good);
        assert_eq!(rows(&store).await[1], before[1]);
        assert_eq!(store.checkpoint(&held(0), &after(2)).await.unwrap(), Write::Applied(()));
        assert_eq!(rows(&store).await[0].checkpoint, Some(after(2)));
    }
}

#[tokio::test]
async fn calls_of_one_holder_are_applied_in_order_also_when_they_are_given_up() {
    let (folder, disk) = (Folder::new(), Arc::new(Disk::default()));
    let store = on(&disk, &folder);
    taken(&store, 1).await;
    disk.becomes(Mood::Hangs);
    for number in 0..3 {
        let (held, checkpoint) = (held(0), after(number));
        assert!(store.checkpoint(&held, &checkpoint).now_or_never().is_none());
    }
    let (holder, last) = (held(0), after(3));
    let mut last = store.checkpoint(&holder, &last);
    assert!(last.as_mut().now_or_never().is_none());
    disk.becomes(Mood::Good);
    assert_eq!(last.await.unwrap(), Write::Applied(()));
    for _ in 0..3 {
        assert_eq!(rows(&store).await[0].checkpoint, Some(after(3)));
    }
}

#[tokio::test]
async fn a_disk_that_hangs_holds_up_no_thread_of_the_runtime_and_no_more_calls_than_fit_in_line() {
    let (folder, disk) = (Folder::new(), Arc::new(Disk::default()));
    let store = on(&disk, &folder);
    taken(&store, 1).await;
    disk.becomes(Mood::Hangs);
    let holder = held(0);
    for _ in 0..5_000 {
        // The first of them is done perhaps: no renewal waits for the disk.
        let _ = unconstrained(store.renew(&holder)).now_or_never();
        let given_up = unconstrained(store.checkpoint(&holder, &after(1))).now_or_never();
        assert!(given_up.is_none());
    }
    disk.becomes(Mood::Good);
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
    assert_eq!(rows(&store).await.len(), 50);
}

#[tokio::test]
async fn a_call_on_a_worker_that_ended_is_an_error_and_does_not_hang() {
    let store = EmbeddedLeaseStore { worker: Arc::new(Worker::ended("leases.redb".into())) };
    let error = store.leases("c", "s").await.unwrap_err();
    assert!(error.to_string().starts_with("the lease file leases.redb: the thread that writes it ended"), "{error}");
}

#[tokio::test]
async fn a_file_that_vanished_after_a_failure_is_not_replaced_by_an_empty_one() {
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
fn a_file_of_a_newer_version_and_the_database_of_another_program_are_refused_and_left_alone() {
    let folder = Folder::new();
    let table = |name| TableDefinition::<&str, u64>::new(name);
    for (name, version, said) in [
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
            let error = EmbeddedLeaseStore::open(&path).unwrap_err();
            let error = Chain(&error).to_string();
            assert!(error.contains(said) && error.contains(name), "{error}");
        }
    }
}

#[test]
fn what_the_system_refuses_is_told_in_words() {
    use std::io::ErrorKind;
    for (kind, said) in [
        (ErrorKind::PermissionDenied, "permission denied: this process has to read and write"),
        (ErrorKind::ReadOnlyFilesystem, "permission denied"),
        (ErrorKind::StorageFull, "the disk is full: make room"),
        (ErrorKind::Other, "the disk failed"),
    ] {
        let error = trouble::failed("/srv/leases.redb".as_ref(), redb::Error::Io(kind.into()));
        assert!(error.to_string().starts_with(&format!("the lease file /srv/leases.redb: {said}")), "{error}");
        assert!(std::error::Error::source(&error).is_some());
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_read_fails_its_calls_alone() {
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
    let error = Chain(&bad.unwrap_err()).to_string();
    assert!(error.starts_with("the row c/s/shard-0 cannot be read: it is in version 9"), "{error}");
    assert!(store.leases("c", "s").await.is_err());
    assert_eq!(store.leases("c", "t").await.unwrap(), []);
}

#[test]
fn ids_of_shards_are_ordered_as_text_in_the_file_too() {
    let mut shards: Vec<ShardId> = ["shard-9", "shard-10", "shard-1"].map(Into::into).to_vec();
    shards.sort();
    let folder = Folder::new();
    let store = EmbeddedLeaseStore::open(folder.file()).unwrap();
    let found = futures::executor::block_on(async {
        for shard in [9, 10, 1] {
            store.take(&take_of(shard)).await.unwrap();
        }
        rows(&store).await
    });
    assert_eq!(found.into_iter().map(|row| row.key.shard).collect::<Vec<_>>(), shards);
}
