//! The table of leases inside one write transaction, and the steps that the contract names.

use std::sync::Arc;

use redb::{ReadableTable, StorageError, Table, TableDefinition};

use super::row;
use crate::{
    error::service::StoreError,
    lease::{Held, Lease, LeaseKey, Seen, Take, Write},
};

/// Consumer, stream and shard: the rows of one consumer and stream lie side by side.
type Key = (&'static str, &'static str, &'static str);

pub(super) const LEASES: TableDefinition<Key, &[u8]> = TableDefinition::new("leases");

/// How soon what was written has to be on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Need {
    /// Nothing was written.
    Nothing,
    /// With the next write that has to be.
    InTime,
    /// Before the answer.
    Now,
}

/// Why a step was not done.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Its row is not as it should be: other steps of the transaction can go on.
    Row(StoreError),
    /// The file failed, and with it the transaction.
    File(StorageError),
}

impl From<StorageError> for Trouble {
    fn from(error: StorageError) -> Self {
        Self::File(error)
    }
}

/// The table, in a transaction.
pub(super) struct Rows<'txn> {
    table: Table<'txn, Key, &'static [u8]>,
    need: Need,
}

impl<'txn> Rows<'txn> {
    pub(super) fn new(table: Table<'txn, Key, &'static [u8]>) -> Self {
        Self { table, need: Need::Nothing }
    }

    /// What the steps so far make necessary.
    pub(super) fn need(&self) -> Need {
        self.need
    }

    /// See [`LeaseStore::leases`](crate::LeaseStore::leases).
    pub(super) fn leases(&self, consumer: &str, stream: &str) -> Result<Vec<Lease>, Trouble> {
        let mut leases = Vec::new();
        for entry in self.table.range((consumer, stream, "")..)? {
            let (key, row) = entry?;
            let (of_consumer, of_stream, shard) = key.value();
            if (of_consumer, of_stream) != (consumer, stream) {
                break;
            }
            let key = LeaseKey { consumer: consumer.into(), stream: stream.into(), shard: shard.into() };
            leases.push(read(&key, row.value())?);
        }
        Ok(leases)
    }

    /// See [`LeaseStore::take`](crate::LeaseStore::take).
    pub(super) fn take(&mut self, take: &Take) -> Result<Write<Lease>, Trouble> {
        let row = self.get(&take.key)?;
        if row.as_ref().map(Lease::seen) != take.seen {
            return Ok(Write::Refused(row));
        }
        let (epoch, counter) = row.as_ref().map_or((0, 0), |row| (row.epoch, row.counter));
        let taken = Lease {
            key: take.key.clone(),
            owner: Some(Arc::clone(&take.owner)),
            epoch: epoch + 1,
            counter: counter + 1,
            checkpoint: row.and_then(|row| row.checkpoint).filter(|_| !take.forget_checkpoint),
            parents: take.parents.clone(),
            stream_created: take.stream_created,
            wanted_by: None,
        };
        self.put(&taken, Need::Now)?;
        Ok(Write::Applied(taken))
    }

    /// Changes a row as its holder.
    pub(super) fn write(&mut self, held: &Held, need: Need, change: impl FnOnce(&mut Lease)) -> Result<Write, Trouble> {
        let holds = |row: &Lease| row.owner.as_ref() == Some(&held.owner) && row.epoch == held.epoch;
        self.update(&held.key, holds, need, change)
    }

    /// See [`LeaseStore::ask`](crate::LeaseStore::ask).
    pub(super) fn ask(&mut self, key: &LeaseKey, seen: Seen, by: Arc<str>) -> Result<Write, Trouble> {
        self.update(key, |row| row.seen() == seen, Need::Now, |row| row.wanted_by = Some(by))
    }

    /// See [`LeaseStore::delete`](crate::LeaseStore::delete).
    pub(super) fn delete(&mut self, key: &LeaseKey, seen: Seen) -> Result<Write, Trouble> {
        match self.get(key)? {
            Some(row) if row.seen() == seen => {
                self.need = Need::Now;
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
        need: Need,
        change: impl FnOnce(&mut Lease),
    ) -> Result<Write, Trouble> {
        match self.get(key)? {
            Some(mut row) if condition(&row) => {
                change(&mut row);
                row.counter += 1;
                self.put(&row, need)?;
                Ok(Write::Applied(()))
            }
            row => Ok(Write::Refused(row)),
        }
    }

    fn get(&self, key: &LeaseKey) -> Result<Option<Lease>, Trouble> {
        self.table.get(columns(key))?.map(|row| read(key, row.value())).transpose()
    }

    fn put(&mut self, lease: &Lease, need: Need) -> Result<(), Trouble> {
        self.need = self.need.max(need);
        self.table.insert(columns(&lease.key), row::encode(lease).as_slice())?;
        Ok(())
    }
}

fn columns(key: &LeaseKey) -> (&str, &str, &str) {
    (&key.consumer, &key.stream, key.shard.as_str())
}

fn read(key: &LeaseKey, bytes: &[u8]) -> Result<Lease, Trouble> {
    row::decode(key, bytes).map_err(|unreadable| {
        Trouble::Row(StoreError::new(format!("the row {key} cannot be read")).caused_by(unreadable))
    })
}
