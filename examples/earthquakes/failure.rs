//! The errors that end the program early.

use std::{io, path::PathBuf, process::ExitStatus};

use bytes::Bytes;
use kinesis_stream::{KinesisError, StoreError, TryMapError};

/// An error that ends the program.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Kinesis(#[from] KinesisError),
    #[error(transparent)]
    Leases(#[from] StoreError),
    #[error("{}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    NotAnEvent(#[from] Box<TryMapError<Bytes, serde_json::Error>>),
    #[error("the consumer process: {0}")]
    Consumer(io::Error),
    #[error("the consumer process ended with {0}")]
    Exited(ExitStatus),
    #[error("the consumer process wrote an unknown status: {0}")]
    UnknownStatus(String),
}
