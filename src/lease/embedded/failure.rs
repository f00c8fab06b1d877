//! The errors of a file. Each names the file and says what to do.

use std::{io::ErrorKind, path::Path};

use redb::Error;

use super::row::Unreadable;
use crate::{
    error::service::{StoreError, StoreErrorKind},
    lease::LeaseKey,
};

/// The database returned an error.
pub(super) fn failed(path: &Path, error: Error) -> StoreError {
    let what = match &error {
        Error::DatabaseAlreadyOpen | Error::LockProtocolMismatch => {
            "it is open already. One process at a time can have it open: end the other one, or give each a separate file. \
             Within one process, clone the store that has it open"
        }
        Error::Io(io) => match io.kind() {
            ErrorKind::NotFound => "there is no such file or folder: make the folder first",
            ErrorKind::IsADirectory => "that is a folder: name a file in it",
            ErrorKind::InvalidInput => "that is a symbolic link, or no file: name the file itself",
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                "permission denied: this process has to read and write the file and its folder"
            }
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
                "that is not a file of leases, or it is damaged: name another file, or restore a copy. Without a copy, remove \
                 it: the consumer then begins where a new one does"
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "the disk is full: make room, and the store continues",
            _ => "the disk failed",
        },
        Error::Corrupted(_) => {
            "it is damaged: restore a copy. Without a copy, remove it: the consumer then begins where a new one does"
        }
        Error::UpgradeRequired(_) => "a version of the database that is too old wrote it",
        _ => "the database failed",
    };
    StoreError::new(format!("the lease file {}: {what}", path.display())).caused_by(error)
}

/// The database panicked.
pub(super) fn panicked(path: &Path, said: &str) -> StoreError {
    StoreError::new(format!("the lease file {}: the database panicked, so it may be damaged ({said})", path.display()))
}

/// A newer version of this library wrote the file.
pub(super) fn newer(path: &Path, version: u64, known: u64) -> StoreError {
    StoreError::new(format!(
        "the lease file {}: its format is {version}, and this program knows {known}: use the newer version of \
         kinesis-stream that wrote it",
        path.display()
    ))
}

/// Another program wrote the database.
pub(super) fn foreign(path: &Path) -> StoreError {
    StoreError::new(format!(
        "the lease file {}: that is the database of another program: name another file",
        path.display()
    ))
}

/// Names a row.
pub(super) fn row(path: &Path, key: &LeaseKey) -> String {
    format!("the lease file {}: the row {key}", path.display())
}

/// A row makes no sense.
pub(super) fn unreadable(path: &Path, key: &LeaseKey, reason: Unreadable) -> StoreError {
    let what = format!("{} cannot be read: {reason}", row(path, key));
    StoreError::new(what).with_kind(StoreErrorKind::UnreadableRow)
}

/// The thread that writes the file has ended.
pub(super) fn ended(path: &Path) -> StoreError {
    StoreError::new(format!(
        "the lease file {}: the thread that writes it ended, which is a bug in this library: open the file again",
        path.display()
    ))
}

/// The system cannot start a thread.
pub(super) fn no_thread(path: &Path, error: std::io::Error) -> StoreError {
    StoreError::new(format!("the lease file {}: the writer thread could not be started", path.display()))
        .caused_by(error)
}
