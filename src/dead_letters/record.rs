//! A record as it is written to the dead-letter stream: a pure encoding.

use bytes::Bytes;

use crate::{
    config::limits,
    error::KinesisError,
    state::{context::SubscriptionContext, events::Returned},
    wire::envelope,
};

/// What the names of the headers that are added begin with.
const PREFIX: &str = "kinesis-dead-letter-";

/// A record to be written.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DeadLetterRecord {
    pub(super) partition_key: String,
    pub(super) data: Bytes,
}

/// The record as it came, with headers behind its own that say where it came from and why it was given up.
///
/// A record without a partition key gets its sequence number as one: it spreads as the record itself did, and a repeated
/// write goes to the same shard.
pub(super) fn record(context: &SubscriptionContext, spent: &Returned) -> Result<DeadLetterRecord, KinesisError> {
    let record = &spent.record;
    let own = record.headers.iter().map(|(name, value)| (name.to_owned(), value.clone()));
    let headers: Vec<(String, Bytes)> = own.chain(origin(context, spent)).collect();
    let data = envelope::encode(&headers, record.payload.clone())?;
    let partition_key = record.partition_key.as_deref().unwrap_or(record.sequence_number.as_str());
    limits::check_record(partition_key, data.len())?;
    Ok(DeadLetterRecord { partition_key: partition_key.to_owned(), data })
}

/// The headers that are added.
fn origin(context: &SubscriptionContext, spent: &Returned) -> impl Iterator<Item = (String, Bytes)> {
    let told = [
        ("stream", Some(context.stream.to_string())),
        ("shard", Some(spent.shard.to_string())),
        ("sequence-number", Some(spent.record.sequence_number.to_string())),
        ("arrived-at", spent.record.arrived_at.map(|millis| millis.to_string())),
        ("consumer", Some(context.consumer.to_string())),
        ("attempts", Some(spent.attempts.to_string())),
        ("reason", Some(spent.reason.to_string())),
    ];
    told.into_iter().filter_map(|(name, value)| Some((format!("{PREFIX}{name}"), Bytes::from(value?))))
}
