//! The bytes of a dead letter: a pure encoding.
//!
//! **Headers are added; none is replaced or left out.** The added ones come first, so a lookup by name finds them even
//! if the producer used the same names. A record that dies twice shows both origins, the newest one first. If the new
//! headers make a record too large, the stream yields an error that carries it: leaving headers out would produce dead
//! letters that nobody can trace.

use bytes::Bytes;

use crate::{
    config::{limits, redelivery::Wish},
    error::KinesisError,
    state::{context::SubscriptionContext, events::Returned},
    wire::envelope,
};

/// The prefix of the names of the added headers.
const PREFIX: &str = "kinesis-dead-letter-";

/// A record for the dead-letter stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DeadLetterRecord {
    pub(super) partition_key: String,
    pub(super) data: Bytes,
}

/// The record as Kinesis returned it. The added headers come before its original headers and say where the record came
/// from and why it was given up.
///
/// A record without a partition key gets its sequence number as its key. Such keys spread evenly over the shards, and a
/// repeated write goes to the same shard.
pub(super) fn record(context: &SubscriptionContext, spent: &Returned) -> Result<DeadLetterRecord, KinesisError> {
    let record = &spent.record;
    let original = record.headers.iter().map(|(name, value)| (name.to_owned(), value.clone()));
    let headers: Vec<(String, Bytes)> = origin(context, spent).chain(original).collect();
    let data = envelope::encode(&headers, record.payload.clone())?;
    let partition_key = record.partition_key.as_deref().unwrap_or(record.sequence_number.as_str());
    limits::check_record(partition_key, data.len())?;
    Ok(DeadLetterRecord { partition_key: partition_key.to_owned(), data })
}

/// The added headers.
fn origin(context: &SubscriptionContext, spent: &Returned) -> impl Iterator<Item = (String, Bytes)> {
    let headers = [
        ("stream", Some(context.stream.to_string())),
        ("shard", Some(spent.shard.to_string())),
        ("sequence-number", Some(spent.record.sequence_number.to_string())),
        ("arrived-at", spent.record.arrived_at.map(|millis| millis.to_string())),
        ("consumer", Some(context.consumer.to_string())),
        ("attempts", Some(spent.attempts.to_string())),
        ("rejected", (spent.wish == Wish::Reject).then(|| "true".to_owned())),
        ("reason", Some(spent.reason.to_string())),
    ];
    headers.into_iter().filter_map(|(name, value)| Some((format!("{PREFIX}{name}"), Bytes::from(value?))))
}
