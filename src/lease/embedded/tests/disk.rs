//! A folder for a file, and a disk whose syncs are counted and can fail.

use std::{
    env, fs,
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use redb::{StorageBackend, backends::FileBackend};
use uuid::Uuid;

use super::super::{
    EmbeddedLeaseStore,
    file::{self, LeaseFile, OpenDatabase},
};
use crate::util::mutex::lock;

/// A folder that is removed when this is dropped.
#[derive(Debug)]
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        let path = env::temp_dir().join(format!("kinesis-stream-{}", Uuid::new_v4()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(super) fn file(&self) -> PathBuf {
        self.0.join("leases.redb")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// How the disk responds to a sync.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SyncBehavior {
    #[default]
    Good,
    Hangs,
    Fails,
    Panics,
}

/// A disk that counts its syncs and can be made to fail them.
#[derive(Debug, Default)]
pub(super) struct Disk {
    syncs: AtomicUsize,
    behavior: Mutex<SyncBehavior>,
    changed: Condvar,
}

impl Disk {
    pub(super) fn set(&self, behavior: SyncBehavior) {
        *lock(&self.behavior) = behavior;
        self.changed.notify_all();
    }

    pub(super) fn syncs(&self) -> usize {
        self.syncs.load(Ordering::SeqCst)
    }

    pub(super) fn sync(&self) -> std::io::Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        let behavior =
            *self.changed.wait_while(lock(&self.behavior), |behavior| *behavior == SyncBehavior::Hangs).unwrap();
        match behavior {
            SyncBehavior::Fails => Err(std::io::ErrorKind::StorageFull.into()),
            SyncBehavior::Panics => panic!("a damaged page"),
            SyncBehavior::Good | SyncBehavior::Hangs => Ok(()),
        }
    }
}

/// A file on a [`Disk`].
#[derive(Debug)]
pub(super) struct TestFile(FileBackend, Arc<Disk>);

impl StorageBackend for TestFile {
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

/// A store whose file is on this disk.
pub(super) fn on(disk: &Arc<Disk>, folder: &Folder) -> EmbeddedLeaseStore {
    let (disk, path) = (Arc::clone(disk), folder.file());
    let open: OpenDatabase = Box::new(move |_| {
        let file = fs::OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)?;
        file::builder().create_with_backend(TestFile(FileBackend::new(file)?, Arc::clone(&disk)))
    });
    EmbeddedLeaseStore::over(LeaseFile::over(folder.file(), open).unwrap()).unwrap()
}
