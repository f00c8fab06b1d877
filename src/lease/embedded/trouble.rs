//! What goes wrong with a file, in words that name it and say what to do.

use std::{io::ErrorKind, path::Path};

use redb::Error;

use crate::error::service::StoreError;

/// What the database says.
pub(super) fn failed(path: &Path, error: Error) -> StoreError {
    let what = match &error {
        Error::DatabaseAlreadyOpen | Error::LockProtocolMismatch => {
            "it is open already. One process at a time can have it open: end the other one, or give each a file of its own. \
             Within one process, clone the store that has it open"
        }
        Error::Io(io) => match io.kind() {
            ErrorKind::NotFound => "there is no such file or folder: make the folder first",
            ErrorKind::IsADirectory => "that is a folder: name a file in it",
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                "permission denied: this process has to read and write the file and its folder"
            }
            ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
                "that is not a file of leases, or it is damaged: name another file, or put back a copy of it. Without one, remove \
                 it: the consumer then begins where a new one does"
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "the disk is full: make room, and it goes on",
            _ => "the disk failed",
        },
        Error::Corrupted(_) => {
            "it is damaged: put back a copy of it. Without one, remove it: the consumer then begins where a new one does"
        }
        Error::UpgradeRequired(_) => "it was written by a version of the database that is too old",
        _ => "the database failed",
    };
    StoreError::new(format!("the lease file {}: {what}", path.display())).caused_by(error)
}

/// The database panicked.
pub(super) fn panicked(path: &Path, said: &str) -> StoreError {
    StoreError::new(format!("the lease file {}: the database panicked, so it may be damaged ({said})", path.display()))
}

/// A format that is not known yet.
pub(super) fn newer(path: &Path, version: u64, known: u64) -> StoreError {
    StoreError::new(format!(
        "the lease file {}: its format is {version}, and this program knows {known}: use the newer version of \
         kinesis-stream that wrote it",
        path.display()
    ))
}

/// A database of somebody else.
pub(super) fn foreign(path: &Path) -> StoreError {
    StoreError::new(format!(
        "the lease file {}: that is the database of another program: name another file",
        path.display()
    ))
}

/// The worker is gone.
pub(super) fn ended(path: &Path) -> StoreError {
    StoreError::new(format!(
        "the lease file {}: the thread that writes it ended, which is a fault of this library: open it again",
        path.display()
    ))
}

/// The system gave no thread.
pub(super) fn no_thread(path: &Path, error: std::io::Error) -> StoreError {
    StoreError::new(format!("the lease file {}: no thread to write it", path.display())).caused_by(error)
}
