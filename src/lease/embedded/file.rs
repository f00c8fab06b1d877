//! The file: opening it, and doing a group of calls in one transaction.

use std::{
    any::Any,
    fs, io,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use redb::{Builder, Database, DatabaseError, Durability, ReadableTable, TableDefinition, TableHandle};
use uuid::Uuid;

use super::{
    call::Call,
    rows::{LEASES, Need, Rows},
    trouble,
};
use crate::error::service::StoreError;

/// What the file says of itself.
const ABOUT: TableDefinition<&str, u64> = TableDefinition::new("kinesis-stream");
const FORMAT: &str = "format";
const VERSION: u64 = 1;

/// A thousand rows are a quarter of this.
const CACHE_BYTES: usize = 4 * 1024 * 1024;

/// When a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// The user opens it, and it may be new.
    First,
    /// It failed, and is opened once more. If it is gone, so are the checkpoints, and a new one would hide that.
    Again,
}

/// Where the database comes from: a path, or what a test puts in its place.
pub(super) type Source = Box<dyn Fn(Opening) -> Result<Database, DatabaseError> + Send>;

/// See the module.
pub(super) struct LeaseFile {
    path: PathBuf,
    source: Source,
    /// None after a failure: a database that failed once answers nothing any more, and is opened anew.
    database: Option<Database>,
}

impl LeaseFile {
    /// Opens the file at a path, or makes it.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let path = path.to_owned();
        let place = path.clone();
        Self::over(path, Box::new(move |opening| database(&place, opening)))
    }

    /// Opens what a source has.
    pub(super) fn over(path: PathBuf, source: Source) -> Result<Self, StoreError> {
        let mut file = Self { path, source, database: None };
        file.database = Some(file.opened(Opening::First)?);
        Ok(file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// As after a transaction that failed.
    #[cfg(test)]
    pub(super) fn fail(&mut self) {
        self.database = None;
    }

    /// Does these calls in one transaction, which is on the disk when this returns if anything but renewals was written.
    /// After an error none of them is done.
    pub(super) fn run(&mut self, calls: &mut [Box<dyn Call>]) -> Result<(), StoreError> {
        let database = match self.database.take() {
            Some(database) => database,
            None => self.opened(Opening::Again)?,
        };
        self.database = Some(self.guarded(move || transaction(&database, calls).map(|()| database))?);
        Ok(())
    }

    /// The database, open and of our kind.
    fn opened(&self, opening: Opening) -> Result<Database, StoreError> {
        let database = self.guarded(|| (self.source)(opening))?;
        let (database, found) = self.guarded(|| prepare(&database).map(|found| (database, found)))?;
        match found {
            Found::Ours => Ok(database),
            Found::Newer(version) => Err(trouble::newer(&self.path, version, VERSION)),
            Found::Foreign => Err(trouble::foreign(&self.path)),
        }
    }

    /// A damaged file can make the database panic. That is an error of the file, as others are.
    fn guarded<T, E: Into<redb::Error>>(&self, step: impl FnOnce() -> Result<T, E>) -> Result<T, StoreError> {
        match catch_unwind(AssertUnwindSafe(step)) {
            Ok(done) => done.map_err(|error| trouble::failed(&self.path, error.into())),
            Err(panic) => Err(trouble::panicked(&self.path, said(&*panic))),
        }
    }
}

/// The words of a panic.
fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}

/// Opens the database at a path.
fn database(path: &Path, opening: Opening) -> Result<Database, DatabaseError> {
    if opening == Opening::Again {
        return builder().open(path);
    }
    put_empty_one(path);
    let database = builder().create(path)?;
    sync_folder(path)?;
    Ok(database)
}

/// Puts an empty database where no file is, in one step: a process that is killed while it makes one leaves none that is
/// half made. Where that does not work, it is made in place, and what is wrong shows there.
fn put_empty_one(path: &Path) {
    if path.try_exists().unwrap_or(true) {
        return;
    }
    let new = path.with_added_extension(format!("new-{}", Uuid::new_v4()));
    if builder().create(&new).is_ok() {
        // Unlike a rename, a link never replaces the file of one who was faster.
        let _ = fs::hard_link(&new, path);
    }
    let _ = fs::remove_file(&new);
}

/// A file that was just made is found after a power loss only once its folder is on the disk, too.
fn sync_folder(path: &Path) -> io::Result<()> {
    if cfg!(unix) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::File::open(folder)?.sync_all()?;
    }
    Ok(())
}

pub(super) fn builder() -> Builder {
    let mut builder = Builder::new();
    builder.set_cache_size(CACHE_BYTES).set_check_integrity_on_open(true);
    builder
}

enum Found {
    Ours,
    Newer(u64),
    Foreign,
}

/// DueQueue whose database it is, and makes an empty one ours.
fn prepare(database: &Database) -> Result<Found, redb::Error> {
    let transaction = database.begin_write()?;
    let tables: Vec<_> = transaction.list_tables()?.map(|table| table.name().to_owned()).collect();
    if !tables.is_empty() && !tables.iter().any(|table| table == ABOUT.name()) {
        return Ok(Found::Foreign);
    }
    let format = transaction.open_table(ABOUT)?.get(FORMAT)?.map(|version| version.value());
    match format {
        Some(VERSION) => return Ok(Found::Ours),
        Some(version) => return Ok(Found::Newer(version)),
        None => {}
    }
    transaction.open_table(ABOUT)?.insert(FORMAT, VERSION)?;
    transaction.open_table(LEASES)?;
    transaction.commit()?;
    Ok(Found::Ours)
}

/// Does these calls, and commits what they wrote.
///
/// Renewals alone need not be on the disk. What a crash takes back is the counter of rows, and everybody who saw it move
/// was in this process, which alone has the file open, and is gone with it.
fn transaction(database: &Database, calls: &mut [Box<dyn Call>]) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    let mut rows = Rows::new(transaction.open_table(LEASES)?);
    for call in calls {
        call.run(&mut rows)?;
    }
    let need = rows.need();
    drop(rows);
    match need {
        Need::Nothing => return Ok(transaction.abort()?),
        Need::InTime => transaction.set_durability(Durability::None)?,
        Need::Now => transaction.set_durability(Durability::Immediate)?,
    }
    Ok(transaction.commit()?)
}
