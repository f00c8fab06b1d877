//! A checkpoint as attributes. For a checkpoint that the KCL cannot express, the row says `TRIM_HORIZON`, so the KCL
//! reads records again rather than skips any. An attribute of this library holds the exact checkpoint.

use aws_sdk_dynamodb::types::AttributeValue;

use super::{
    attribute::{
        CHECKPOINT, OPEN_AT_INITIAL, OPEN_AT_SEQUENCE, OPEN_AT_TIMESTAMP, PENDING, SHARD_END, SUB_SEQUENCE, SWITCHES,
        TRIM_HORIZON, number, text,
    },
    expression::Expression,
};
use crate::{config::position::Checkpoint, error::service::StoreError};

/// The attributes of this library for a checkpoint. A row has at most one.
const OURS: [&str; 3] = [OPEN_AT_INITIAL, OPEN_AT_SEQUENCE, OPEN_AT_TIMESTAMP];

/// Refuses a sequence number that could be mistaken for a word of the KCL when it is read.
pub(super) fn check(checkpoint: &Checkpoint) -> Result<(), StoreError> {
    match checkpoint {
        Checkpoint::At(number) | Checkpoint::After(number) if !is_number(number.as_str()) => {
            Err(StoreError::new(format!("the checkpoint {checkpoint} cannot be stored: a sequence number is digits")))
        }
        _ => Ok(()),
    }
}

/// Writes a checkpoint, or the fact that there is none.
pub(super) fn written(write: Expression, checkpoint: Option<&Checkpoint>) -> Expression {
    let (word, ours) = match checkpoint {
        None => (TRIM_HORIZON, Some((OPEN_AT_INITIAL, AttributeValue::Bool(true)))),
        Some(Checkpoint::Since(millis)) => (TRIM_HORIZON, Some((OPEN_AT_TIMESTAMP, number(millis)))),
        Some(Checkpoint::At(at)) => (TRIM_HORIZON, Some((OPEN_AT_SEQUENCE, text(at.as_str())))),
        Some(Checkpoint::After(after)) => (after.as_str(), None),
        Some(Checkpoint::ShardEnd) => (SHARD_END, None),
    };
    let others = OURS.into_iter().filter(|name| ours.as_ref().is_none_or(|(ours, _)| ours != name));
    let write = write
        .set(CHECKPOINT, text(word))
        .set(SUB_SEQUENCE, number(0))
        .set(SWITCHES, number(0))
        .remove(others)
        .remove(PENDING);
    match ours {
        Some((name, value)) => write.set(name, value),
        None => write,
    }
}

/// Whether a checkpoint of the KCL is a sequence number and not one of its words.
pub(super) fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}
