//! The table of leases in one write transaction, and the steps of [`LeaseStore`](crate::LeaseStore) on it.

use std::{path::Path, sync::Arc};

use redb::{ReadableTable, StorageError, Table, TableDefinition};

use super::{failure, row};
use crate::{
    error::service::StoreError,
    lease::{
        Held, Lease, LeaseKey, Leases, Seen, Take, Write,
        next_count::{full, next_count},
    },
};

/// Consumer, stream and shard, so the rows of one consumer and stream are adjacent.
type Key = (&'static str, &'static str, &'static str);

pub(super) const LEASES: TableDefinition<Key, &[u8]> = TableDefinition::new("leases");

/// When the changes have to be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SyncNeed {
    /// Nothing changed.
    None,
    /// Together with the next change that is synced.
    Later,
    /// Before the response.
    Now,
}

/// Why a step failed.
#[derive(Debug)]
pub(super) enum StepError {
    /// Its row cannot be read. Other steps of the transaction can continue.
    Row(StoreError),
    /// The file failed, and the transaction with it.
    File(StorageError),
}

impl From<StorageError> for StepError {
    fn from(error: StorageError) -> Self {
        Self::File(error)
    }
}

/// The table in a transaction.
pub(super) struct Rows<'txn> {
    path: &'txn Path,
    table: Table<'txn, Key, &'static [u8]>,
    sync_need: SyncNeed,
}

impl<'txn> Rows<'txn> {
    pub(super) fn new(path: &'txn Path, table: Table<'txn, Key, &'static [u8]>) -> Self {
        Self { path, table, sync_need: SyncNeed::None }
    }

    /// When the changes of all steps so far have to be on the disk.
    pub(super) fn sync_need(&self) -> SyncNeed {
        self.sync_need
    }

    /// See [`LeaseStore::leases`](crate::LeaseStore::leases).
    pub(super) fn leases(&self, consumer: &str, stream: &str) -> Result<Leases, StepError> {
        let mut leases = Leases::default();
        for entry in self.table.range((consumer, stream, "")..)? {
            let (key, row) = entry?;
            let (of_consumer, of_stream, shard) = key.value();
            if (of_consumer, of_stream) != (consumer, stream) {
                break;
            }
            let key = LeaseKey { consumer: consumer.into(), stream: stream.into(), shard: shard.into() };
            let row = self.read(&key, row.value());
            leases.push(key, row);
        }
        Ok(leases)
    }

    /// See [`LeaseStore::take`](crate::LeaseStore::take).
    pub(super) fn take(&mut self, take: &Take) -> Result<Write<Lease>, StepError> {
        let row = self.get(&take.key)?;
        if row.as_ref().map(Lease::seen) != take.seen {
            return Ok(Write::Refused(row));
        }
        let (epoch, counter) = row.as_ref().map_or((0, 0), |row| (row.epoch, row.counter));
        let (epoch, counter) = (self.next(&take.key, "epoch", epoch)?, self.next(&take.key, "counter", counter)?);
        let taken = Lease {
            key: take.key.clone(),
            owner: Some(Arc::clone(&take.owner)),
            epoch,
            counter,
            checkpoint: take.checkpoint_after(row.and_then(|row| row.checkpoint)),
            parents: take.parents.clone(),
            stream_created: take.stream_created,
            wanted_by: None,
            is_foreign: false,
        };
        self.put(&taken, SyncNeed::Now)?;
        Ok(Write::Applied(taken))
    }

    /// Changes a row for its holder.
    pub(super) fn write(
        &mut self,
        held: &Held,
        need: SyncNeed,
        change: impl FnOnce(&mut Lease),
    ) -> Result<Write, StepError> {
        let holds = |row: &Lease| row.owner.as_ref() == Some(&held.owner) && row.epoch == held.epoch;
        self.update(&held.key, holds, need, change)
    }

    /// See [`LeaseStore::ask`](crate::LeaseStore::ask).
    pub(super) fn ask(&mut self, key: &LeaseKey, seen: Seen, by: Arc<str>) -> Result<Write, StepError> {
        self.update(key, |row| row.seen() == seen, SyncNeed::Now, |row| row.wanted_by = Some(by))
    }

    /// See [`LeaseStore::withdraw_ask`](crate::LeaseStore::withdraw_ask).
    pub(super) fn withdraw_ask(&mut self, key: &LeaseKey, seen: Seen) -> Result<Write, StepError> {
        self.update(key, |row| row.seen() == seen, SyncNeed::Now, |row| row.wanted_by = None)
    }

    /// See [`LeaseStore::delete`](crate::LeaseStore::delete).
    pub(super) fn delete(&mut self, key: &LeaseKey, seen: Seen) -> Result<Write, StepError> {
        match self.get(key)? {
            Some(row) if row.seen() == seen => {
                self.sync_need = SyncNeed::Now;
                self.table.remove(columns(key))?;
                Ok(Write::Applied(()))
            }
            row => Ok(Write::Refused(row)),
        }
    }

    fn update(
        &mut self,
        key: &LeaseKey,
        condition: impl FnOnce(&Lease) -> bool,
        need: SyncNeed,
        change: impl FnOnce(&mut Lease),
    ) -> Result<Write, StepError> {
        match self.get(key)? {
            Some(mut row) if condition(&row) => {
                change(&mut row);
                row.counter = self.next(key, "counter", row.counter)?;
                self.put(&row, need)?;
                Ok(Write::Applied(()))
            }
            row => Ok(Write::Refused(row)),
        }
    }

    fn get(&self, key: &LeaseKey) -> Result<Option<Lease>, StepError> {
        let row = self.table.get(columns(key))?;
        row.map(|row| self.read(key, row.value())).transpose().map_err(StepError::Row)
    }

    fn read(&self, key: &LeaseKey, bytes: &[u8]) -> Result<Lease, StoreError> {
        let row = row::decode(key, bytes).map_err(|unreadable| failure::unreadable(self.path, key, unreadable))?;
        for (column, number) in [("epoch", row.epoch), ("counter", row.counter)] {
            if number == u64::MAX {
                return Err(full(failure::row(self.path, key), column, number));
            }
        }
        Ok(row)
    }

    /// The next epoch or counter. The largest number stays free: a row that holds it is unreadable.
    fn next(&self, key: &LeaseKey, column: &str, number: u64) -> Result<u64, StepError> {
        next_count(failure::row(self.path, key), column, number, u64::MAX - 1).map_err(StepError::Row)
    }

    fn put(&mut self, lease: &Lease, need: SyncNeed) -> Result<(), StepError> {
        self.sync_need = self.sync_need.max(need);
        self.table.insert(columns(&lease.key), row::encode(lease).as_slice())?;
        Ok(())
    }
}

fn columns(key: &LeaseKey) -> (&str, &str, &str) {
    (&key.consumer, &key.stream, key.shard.as_str())
}
