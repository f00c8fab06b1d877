//! What ends the program early.

use std::{io, path::PathBuf};

use bytes::Bytes;
use kinesis_stream::{KinesisError, TryMapError};

/// See the module.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Kinesis(#[from] KinesisError),
    #[error("{}: {source}", path.display())]
    File { path: PathBuf, source: io::Error },
    #[error(transparent)]
    NotAnEvent(#[from] Box<TryMapError<Bytes, serde_json::Error>>),
}
