//! The file: opening it, and running a group of calls in one transaction.
//!
//! **A renewal is not synced.** A crash takes back the counter and nothing else; a take, whose epoch fences, is synced.
//! The only observer of the counter was in the one process that had the file open, and it ended with the process.
//! Within that process the counter can move back only after a failed transaction. Then an observer waits longer, or
//! takes a lease whose holder the epoch fences.
//!
//! **The file appears in one step.** It is created under another name and linked to its final one. So a process that is
//! killed meanwhile leaves nothing that the next process has to refuse as damaged.

use std::{
    any::Any,
    fs::{self, OpenOptions},
    io::{self, ErrorKind},
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
};

use redb::{
    Builder, Database, DatabaseError, Durability, ReadableTable, TableDefinition, TableHandle, backends::FileBackend,
};
use uuid::Uuid;

use super::{
    call::Call,
    failure,
    rows::{LEASES, Rows, SyncNeed},
};
use crate::error::service::StoreError;

/// The table that holds the version of the file's format.
const ABOUT: TableDefinition<&str, u64> = TableDefinition::new("kinesis-stream");
const FORMAT: &str = "format";
const VERSION: u64 = 1;

/// Four times what a thousand rows take.
const CACHE_BYTES: usize = 4 * 1024 * 1024;

/// Whether a missing file may be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OpenMode {
    /// The user opens the file, and it may be new.
    Create,
    /// The file failed before. If it is missing now, so are the checkpoints, and a new file would hide that.
    Existing,
}

/// Opens the database: at a path, or a replacement in a test.
pub(super) type OpenDatabase = Box<dyn Fn(OpenMode) -> Result<Database, DatabaseError> + Send>;

/// A file of leases. It reopens its database after a failure.
pub(super) struct LeaseFile {
    path: PathBuf,
    open_database: OpenDatabase,
    /// None after a failure: a database that failed once fails every call, so the next call reopens it.
    database: Option<Database>,
}

impl LeaseFile {
    /// Opens the file at a path, or creates it.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let path = path.to_owned();
        let target = path.clone();
        Self::over(path, Box::new(move |mode| database(&target, mode)))
    }

    /// Opens the file through this function.
    pub(super) fn over(path: PathBuf, open_database: OpenDatabase) -> Result<Self, StoreError> {
        let mut file = Self { path, open_database, database: None };
        file.database = Some(file.opened(OpenMode::Create)?);
        Ok(file)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Puts the file in the state after a failed transaction.
    #[cfg(test)]
    pub(super) fn fail(&mut self) {
        self.database = None;
    }

    /// Runs these calls in one transaction. When this returns, the transaction is on the disk, unless it wrote renewals
    /// only. After an error, no call has changed anything.
    pub(super) fn run(&mut self, calls: &mut [Box<dyn Call>]) -> Result<(), StoreError> {
        let database = match self.database.take() {
            Some(database) => database,
            None => self.opened(OpenMode::Existing)?,
        };
        let path = &self.path;
        self.database = Some(self.catching(move || transaction(path, &database, calls).map(|()| database))?);
        Ok(())
    }

    /// Opens the database and checks that it is one of this library.
    fn opened(&self, mode: OpenMode) -> Result<Database, StoreError> {
        let database = self.catching(|| (self.open_database)(mode))?;
        let (database, found) = self.catching(|| prepare(&database).map(|found| (database, found)))?;
        match found {
            Found::Ours => Ok(database),
            Found::Newer(version) => Err(failure::newer(&self.path, version, VERSION)),
            Found::Foreign => Err(failure::foreign(&self.path)),
        }
    }

    /// Runs a step, and turns its error or panic into a [`StoreError`]: a damaged file can make the database panic.
    fn catching<T, E: Into<redb::Error>>(&self, step: impl FnOnce() -> Result<T, E>) -> Result<T, StoreError> {
        match catch_unwind(AssertUnwindSafe(step)) {
            Ok(done) => done.map_err(|error| failure::failed(&self.path, error.into())),
            Err(panic) => Err(failure::panicked(&self.path, panic_text(&*panic))),
        }
    }
}

/// The message of a panic.
fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no reason given")
}

/// Opens the database at a path.
fn database(path: &Path, mode: OpenMode) -> Result<Database, DatabaseError> {
    let file = match existing(path) {
        Err(error) if error.kind() == ErrorKind::NotFound && mode == OpenMode::Create => {
            create_empty(path)?;
            existing(path)?
        }
        file => file?,
    };
    // The file is not empty, so this creates nothing.
    let database = builder().create_with_backend(FileBackend::new(file)?)?;
    if mode == OpenMode::Create {
        sync_folder(path)?;
    }
    Ok(database)
}

/// Opens a file that is there. A symbolic link is refused: whoever may write to the folder could lead this process,
/// which may be allowed more, to another file. So is an empty file, which another program may have made.
fn existing(path: &Path) -> io::Result<fs::File> {
    let named = fs::symlink_metadata(path)?;
    if !named.is_file() && !named.is_dir() {
        return Err(ErrorKind::InvalidInput.into());
    }
    let file = OpenOptions::new().read(true).write(true).open(path)?;
    let opened = file.metadata()?;
    // A link that replaced the file before it was opened.
    if !is_same_file(&opened, &fs::symlink_metadata(path)?) {
        return Err(ErrorKind::InvalidInput.into());
    }
    if opened.len() == 0 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    Ok(file)
}

#[cfg(unix)]
fn is_same_file(opened: &fs::Metadata, named: &fs::Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (opened.dev(), opened.ino()) == (named.dev(), named.ino())
}

#[cfg(not(unix))]
fn is_same_file(_opened: &fs::Metadata, named: &fs::Metadata) -> bool {
    named.is_file()
}

/// Puts an empty database there in one step, so that a process that is killed meanwhile leaves no half-made file. Where
/// the file system has no links, the database is made in place.
fn create_empty(path: &Path) -> Result<(), DatabaseError> {
    let new = path.with_added_extension(format!("new-{}", Uuid::new_v4()));
    let linked = create_in_place(&new).and_then(|()| Ok(fs::hard_link(&new, path)?));
    let _ = fs::remove_file(&new);
    // Unlike a rename, a link never replaces the file of a faster process.
    if linked.is_ok() || fs::symlink_metadata(path).is_ok() { Ok(()) } else { create_in_place(path) }
}

/// Creates an empty database that nobody but this user may read or write.
fn create_in_place(path: &Path) -> Result<(), DatabaseError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    drop(builder().create_with_backend(FileBackend::new(options.open(path)?)?)?);
    Ok(())
}

/// Syncs the folder: a new file survives a power loss only once its folder is on the disk, too.
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

/// Finds out which program wrote the database, and initializes an empty one.
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

/// Runs these calls and commits their changes.
///
/// Renewals alone need not be on the disk. A crash takes back the counters of rows; every observer of those was in this
/// process, the only one that has the file open, and ended with it.
fn transaction(path: &Path, database: &Database, calls: &mut [Box<dyn Call>]) -> Result<(), redb::Error> {
    let mut transaction = database.begin_write()?;
    let mut rows = Rows::new(path, transaction.open_table(LEASES)?);
    for call in calls {
        call.run(&mut rows)?;
    }
    let need = rows.sync_need();
    drop(rows);
    match need {
        SyncNeed::None => return Ok(transaction.abort()?),
        SyncNeed::Later => transaction.set_durability(Durability::None)?,
        SyncNeed::Now => transaction.set_durability(Durability::Immediate)?,
    }
    Ok(transaction.commit()?)
}
