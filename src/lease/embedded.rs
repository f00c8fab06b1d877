//! Leases in a file of this host.
//!
//! Read in this order: `worker` (the thread and the queue of calls), `call` (one call), `file` (the transaction),
//! `rows` (the steps on the table), `row` (the bytes of a row), `failure` (the error texts).

use std::{fmt, path::Path, sync::Arc};

use self::{file::LeaseFile, rows::SyncNeed, worker::Worker};
use crate::{
    config::position::Checkpoint,
    error::service::StoreError,
    lease::{Held, Lease, LeaseKey, LeaseStore, Leases, Seen, StoreFuture, Take, Write},
};

mod call;
mod failure;
mod file;
mod row;
mod rows;
#[cfg(test)]
mod tests;
mod worker;

/// Leases in a file of this host. They outlive the process, also one that is killed, and a power loss.
///
/// This is the recommended store for a service that runs as one instance and has no DynamoDB. It needs no server.
/// Behind the cargo feature `embedded`.
///
/// ```no_run
/// use kinesis_stream::{EmbeddedLeaseStore, prelude::*};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = EmbeddedLeaseStore::open("/var/lib/quake-archive/leases.redb")?;
/// let broker = KinesisBroker::new()
///     .consumer("quake-archive")
///     // Only one process opens the file, so a fixed id is safe. After a restart it takes the leases back at once.
///     .owner_id("quake-archive")
///     .lease_store(store)
///     .connect()
///     .await?;
/// # drop(broker);
/// # Ok(())
/// # }
/// ```
///
/// # When writes are on the disk
///
/// Every write except a renewal is on the disk (`fsync`) before its call returns. So
/// [`Commit::Stored`](crate::Commit::Stored) holds after a `SIGKILL`, a crash of the system and a power loss, unless
/// the disk itself loses synced data. A renewal is not synced: it shows that its holder lives, which only matters to
/// instances in the same process, and those end with it. Calls that wait at the same time share one transaction and one
/// `fsync`, so a thousand shards cost hardly more than one.
///
/// A process that is killed leaves the file as the last transaction left it. The next process that opens it checks
/// every page first and repairs an interrupted transaction. If there is more damage than that, `open` returns an error;
/// it never starts over with an empty file.
///
/// # One process
///
/// Only one process at a time can open the file; a second one gets an error, and the first continues. Within a process,
/// clones share the file: give one to each broker of several consumers, or to each of several instances of one
/// consumer. Opening the same file twice is an error within a process, too.
///
/// After a process was killed, its leases still name it as their owner. With a fixed
/// [`owner_id`](crate::KinesisBroker::owner_id) the next process takes them back at once; with a random one it waits
/// until they expire.
///
/// # Where to put it
///
/// Put the file on a local disk, in a folder that outlives the process: in a container, on a volume. Do not put it on
/// NFS or another network file system, whose locks and `fsync` are not reliable. This store is not for instances on
/// several hosts.
///
/// The file starts at 0.1 MB and has about 2 MB for a thousand shards. To copy it, stop the process first. It is a
/// database of [redb](https://docs.rs/redb), and the format of its rows has a version: newer versions of this crate
/// read the rows of older ones, and refuse a file that is too new.
///
/// # Blocking
///
/// Calls never block: one thread of the store reads and writes the file. It ends when the last clone is dropped. That
/// drop waits some milliseconds until the file is closed, so you can reopen it at once. A subscription keeps a clone
/// until it has ended.
///
/// # Errors
///
/// A call fails with a [`StoreError`] that names the file and says what to do. A failed call has written nothing, with
/// one exception: after a failed `fsync` the write may or may not be on the disk. The store continues: it reopens the
/// file for the next call, so it works again once a full disk has room.
#[derive(Clone)]
pub struct EmbeddedLeaseStore {
    worker: Arc<Worker>,
}

impl EmbeddedLeaseStore {
    /// Opens the file, or creates it if it does not exist. Its folder must exist. On Unix, only the user of this
    /// process may read and write a new file.
    ///
    /// This reads the whole file and blocks the thread for that long: some milliseconds for up to thousands of shards.
    /// It needs no runtime. It opens the file here, and not at the first call, so that you learn of an unusable file at
    /// once.
    ///
    /// # Errors
    ///
    /// The error names the file and says why it cannot be used:
    ///
    /// - its folder does not exist, or this process may not read or write the file;
    /// - the file is already open, in another process or in this one;
    /// - it is a symbolic link, which is not followed;
    /// - it is not a file of leases, it is empty or damaged, or it is the database of another program;
    /// - a newer version of this crate wrote it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::over(LeaseFile::open(path.as_ref())?)
    }

    fn over(file: LeaseFile) -> Result<Self, StoreError> {
        Ok(Self { worker: Arc::new(Worker::start(file)?) })
    }

    /// Changes a row for its holder.
    fn write(
        &self,
        held: &Held,
        need: SyncNeed,
        change: impl FnOnce(&mut Lease) + Send + 'static,
    ) -> StoreFuture<'_, Write> {
        let held = held.clone();
        Box::pin(self.worker.run(move |rows| rows.write(&held, need, change)))
    }
}

impl fmt::Debug for EmbeddedLeaseStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedLeaseStore").field("path", &self.worker.path()).finish_non_exhaustive()
    }
}

impl LeaseStore for EmbeddedLeaseStore {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Vec<Lease>> {
        Box::pin(async move { self.read_leases(consumer, stream).await?.into_rows() })
    }

    fn read_leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Leases> {
        let (consumer, stream) = (consumer.to_owned(), stream.to_owned());
        Box::pin(self.worker.run(move |rows| rows.leases(&consumer, &stream)))
    }

    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
        let take = take.clone();
        Box::pin(self.worker.run(move |rows| rows.take(&take)))
    }

    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.write(held, SyncNeed::Later, |_| ())
    }

    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
        let checkpoint = checkpoint.clone();
        self.write(held, SyncNeed::Now, move |row| {
            if checkpoint == Checkpoint::ShardEnd {
                row.wanted_by = None;
            }
            row.checkpoint = Some(checkpoint);
        })
    }

    fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.write(held, SyncNeed::Now, |row| row.owner = None)
    }

    fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write> {
        let (key, by) = (key.clone(), by.into());
        Box::pin(self.worker.run(move |rows| rows.ask(&key, seen, by)))
    }

    fn withdraw_ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        let key = key.clone();
        Box::pin(self.worker.run(move |rows| rows.withdraw_ask(&key, seen)))
    }

    fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        let key = key.clone();
        Box::pin(self.worker.run(move |rows| rows.delete(&key, seen)))
    }
}

/// See [`crate::fuzzing`].
#[cfg(fuzzing)]
pub(crate) fn fuzz_row(bytes: &[u8]) {
    let key = LeaseKey::new("consumer", "stream", "shard");
    if let Ok(lease) = row::decode(&key, bytes) {
        assert_eq!(row::decode(&key, &row::encode(&lease)), Ok(lease));
    }
}
