//! Leases in a file.

use std::{fmt, path::Path, sync::Arc};

use self::{file::LeaseFile, rows::Need, worker::Worker};
use crate::{
    config::position::Checkpoint,
    error::service::StoreError,
    lease::{Held, Lease, LeaseKey, LeaseStore, Seen, StoreFuture, Take, Write},
};

mod call;
mod file;
mod row;
mod rows;
mod trouble;
mod worker;

/// Leases in a file of this host: they outlive the process, also one that is killed, and a power loss.
///
/// The recommended store for a service that runs as one instance and has no DynamoDB. It needs no server, and nothing
/// chooses it but you. Behind the cargo feature `embedded`.
///
/// ```no_run
/// use kinesis_stream::{EmbeddedLeaseStore, prelude::*};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let store = EmbeddedLeaseStore::open("/var/lib/quake-archive/leases.redb")?;
/// let broker = KinesisBroker::new()
///     .consumer("quake-archive")
///     // One process has the file, so the id is this instance's own, and a restarted one takes its leases back at once.
///     .owner_id("quake-archive")
///     .lease_store(store)
///     .connect()
///     .await?;
/// # drop(broker);
/// # Ok(())
/// # }
/// ```
///
/// # What is on the disk, and when
///
/// A checkpoint, and everything else that is written except a renewal, is on the disk (`fsync`) before its call is
/// answered: [`Commit::Stored`](crate::Commit::Stored) holds after a `SIGKILL`, a crash of the system and a loss of power, as
/// far as the disk keeps its word. A renewal alone is not: what it shows, that its holder lives, is of use only to
/// instances in the same process, which end with it. Calls that wait at the same time share one transaction and one
/// `fsync`, so a thousand shards cost hardly more than one.
///
/// A process that is killed leaves the file as the last transaction left it; the next one to open it checks every page first
/// and puts right what the end interrupted. What is damaged beyond that is an error of `open`, never a file that begins
/// anew.
///
/// # One process
///
/// One process at a time has the file open; another one is refused, and the first goes on. Within the process, clones share
/// the file: brokers of several consumers can have one each, and so can several instances of one consumer. To open the same
/// file twice is refused there, too.
///
/// The leases of a process that was killed still name it. With an [`owner_id`](crate::KinesisBroker::owner_id) that stays
/// the same the next one takes them back at once, without one it waits for them to run out.
///
/// # Where to put it
///
/// On a local disk, in a folder that outlives the process: in a container, on a volume. Not on NFS or another network file
/// system, whose locks and `fsync` cannot be relied on; for instances on several hosts it is no store. The file begins
/// at 0.1 MB and has about 2 MB for a thousand shards. To copy it, stop the process first. It is a database of
/// [redb](https://docs.rs/redb), and the format of its rows has a version: newer versions of this crate read what older
/// ones wrote, and a file that is too new is refused.
///
/// # Blocking
///
/// Calls never block: one thread of the store's own reads and writes the file. It ends when the last clone is dropped, and
/// that drop waits until it has closed the file, some milliseconds, so that the file can be opened again at once. A
/// subscription keeps a clone until it has ended.
///
/// # Errors
///
/// A call fails with a [`StoreError`] that names the file and says what to do, and nothing of it was written, except that
/// after a failed `fsync` nobody can say. The store itself goes on: it opens the file anew for the next call, so that a disk
/// that was full is used again once there is room.
#[derive(Clone)]
pub struct EmbeddedLeaseStore {
    worker: Arc<Worker>,
}

impl EmbeddedLeaseStore {
    /// Opens the file, or makes it if there is none; its folder has to be there.
    ///
    /// This reads the whole file, and blocks the thread for that long: some milliseconds, as long as there are no more than
    /// thousands of shards. It needs no runtime. It is here, and not where the broker is given the store, that a file which
    /// cannot be used is found out.
    ///
    /// # Errors
    ///
    /// The file cannot be used, and the error names it and says why: its folder is missing, it may not be read or
    /// written, it is open already (in another process, or in this one), it is not a file of leases or damaged, it is the database of another
    /// program, or a newer version of this crate wrote it.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        Self::over(LeaseFile::open(path.as_ref())?)
    }

    fn over(file: LeaseFile) -> Result<Self, StoreError> {
        Ok(Self { worker: Arc::new(Worker::start(file)?) })
    }

    /// Changes a row as its holder.
    fn write(
        &self,
        held: &Held,
        need: Need,
        change: impl FnOnce(&mut Lease) + Send + 'static,
    ) -> StoreFuture<'_, Write> {
        let held = held.clone();
        Box::pin(self.worker.ask(move |rows| rows.write(&held, need, change)))
    }
}

impl fmt::Debug for EmbeddedLeaseStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedLeaseStore").field("path", &self.worker.path()).finish_non_exhaustive()
    }
}

impl LeaseStore for EmbeddedLeaseStore {
    fn leases<'a>(&'a self, consumer: &'a str, stream: &'a str) -> StoreFuture<'a, Vec<Lease>> {
        let (consumer, stream) = (consumer.to_owned(), stream.to_owned());
        Box::pin(self.worker.ask(move |rows| rows.leases(&consumer, &stream)))
    }

    fn take<'a>(&'a self, take: &'a Take) -> StoreFuture<'a, Write<Lease>> {
        let take = take.clone();
        Box::pin(self.worker.ask(move |rows| rows.take(&take)))
    }

    fn renew<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.write(held, Need::InTime, |_| ())
    }

    fn checkpoint<'a>(&'a self, held: &'a Held, checkpoint: &'a Checkpoint) -> StoreFuture<'a, Write> {
        let checkpoint = checkpoint.clone();
        self.write(held, Need::Now, move |row| {
            if checkpoint == Checkpoint::ShardEnd {
                row.wanted_by = None;
            }
            row.checkpoint = Some(checkpoint);
        })
    }

    fn release<'a>(&'a self, held: &'a Held) -> StoreFuture<'a, Write> {
        self.write(held, Need::Now, |row| row.owner = None)
    }

    fn ask<'a>(&'a self, key: &'a LeaseKey, seen: Seen, by: &'a str) -> StoreFuture<'a, Write> {
        let (key, by) = (key.clone(), by.into());
        Box::pin(self.worker.ask(move |rows| rows.ask(&key, seen, by)))
    }

    fn delete<'a>(&'a self, key: &'a LeaseKey, seen: Seen) -> StoreFuture<'a, Write> {
        let key = key.clone();
        Box::pin(self.worker.ask(move |rows| rows.delete(&key, seen)))
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

#[cfg(test)]
#[path = "embedded/tests.rs"]
mod tests;
