//! What ends the program early.

use std::{io, path::PathBuf, process::ExitStatus};

use bytes::Bytes;
use kinesis_stream::{KinesisError, StoreError, TryMapError};

/// See the module.
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
    #[error("the process of the consumer: {0}")]
    Consumer(io::Error),
    #[error("the process of the consumer ended with {0}")]
    Exited(ExitStatus),
    #[error("the process of the consumer says something unheard of: {0}")]
    Unheard(String),
}
