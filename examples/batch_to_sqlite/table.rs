//! The table for the records.

use std::path::Path;

use kinesis_stream::Batch;
use rusqlite::{Connection, Result};

/// `id` grows with every row, so it shows the order of arrival. Each transaction adds a row to `transactions`: how many
/// records it held, and how many of them were new.
const SCHEMA: &str = "
    PRAGMA synchronous = FULL; -- a transaction is on the disk before its records are settled
    CREATE TABLE IF NOT EXISTS quakes (
        id INTEGER PRIMARY KEY,
        shard TEXT NOT NULL,
        sequence_number TEXT NOT NULL,
        key TEXT NOT NULL,
        event BLOB NOT NULL,
        UNIQUE (shard, sequence_number)
    );
    CREATE TABLE IF NOT EXISTS transactions (records INTEGER NOT NULL, inserted INTEGER NOT NULL);";

/// Leaves an existing row alone.
const INSERT: &str = "
    INSERT INTO quakes (shard, sequence_number, key, event) VALUES (?1, ?2, ?3, ?4)
    ON CONFLICT (shard, sequence_number) DO NOTHING";

/// The database.
#[derive(Debug)]
pub(crate) struct Table(Connection);

/// The identity of a record, and its key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) shard: String,
    pub(crate) sequence_number: String,
    pub(crate) key: String,
}

impl Table {
    /// Opens the database, and creates the table if it is missing. SQLite rolls back what a killed process left half
    /// done.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let connection = Connection::open(path)?;
        connection.execute_batch(SCHEMA)?;
        Ok(Self(connection))
    }

    /// Inserts a batch in one transaction. Returns how many of its records are new.
    pub(crate) fn insert(&mut self, batch: &Batch) -> Result<usize> {
        let transaction = self.0.transaction()?;
        let mut insert = transaction.prepare(INSERT)?;
        let mut inserted = 0;
        for quake in batch {
            let (shard, sequence_number) = (quake.shard().as_str(), quake.sequence_number().as_str());
            let (key, event) = (quake.partition_key().unwrap_or_default(), quake.payload().as_ref());
            inserted += insert.execute((shard, sequence_number, key, event))?;
        }
        drop(insert);
        transaction.execute("INSERT INTO transactions VALUES (?1, ?2)", (batch.len(), inserted))?;
        transaction.commit()?;
        Ok(inserted)
    }

    /// All rows, in order of arrival.
    pub(crate) fn rows(&self) -> Result<Vec<Row>> {
        let mut select = self.0.prepare("SELECT shard, sequence_number, key FROM quakes ORDER BY id")?;
        let rows = select
            .query_map((), |row| Ok(Row { shard: row.get(0)?, sequence_number: row.get(1)?, key: row.get(2)? }))?;
        rows.collect()
    }

    /// How many redelivered records were already in the table.
    pub(crate) fn repeats(&self) -> Result<usize> {
        self.0.query_row("SELECT COALESCE(SUM(records - inserted), 0) FROM transactions", (), |row| row.get(0))
    }
}
