//! Publishing many records at a time (P3).

use std::{collections::BTreeMap, sync::Arc};

use futures::SinkExt;
use tokio::time::Duration;

use super::put_service::PutService;

use crate::{
    error::KinesisError,
    kinesis::PutEntry,
    publishing::{
        error::PublishError,
        options::PublishTo,
        record::{Outgoing, Published},
        sink::PublishSink,
    },
};

mod bounds;
mod deliveries;
mod ends;
mod failures;
mod random;
mod sending;

/// Longer than any wait of a test.
const LONG: Duration = Duration::from_hours(1);

fn to() -> PublishTo {
    PublishTo::new("s")
}

/// Records with these one-letter keys, and their numbers as payloads.
fn records(keys: &str) -> Vec<Outgoing> {
    keys.chars().enumerate().map(|(number, key)| Outgoing::new(key, number.to_string())).collect()
}

fn sink(put_service: &Arc<PutService>, to: PublishTo) -> PublishSink {
    put_service.publisher().1.sink(to).unwrap()
}

/// The results of records: the sequence number, or the cause of the failure.
fn result_texts(results: &[Result<Published, PublishError>]) -> Vec<String> {
    let tell = |result: &Result<Published, PublishError>| match result {
        Ok(published) => published.sequence_number().to_string(),
        Err(error) => cause(error).to_owned(),
    };
    results.iter().map(tell).collect()
}

fn cause(error: &PublishError) -> &'static str {
    match error.cause() {
        KinesisError::Invalid { .. } => "invalid",
        KinesisError::Refused { .. } => "refused",
        KinesisError::Denied { .. } => "denied",
        KinesisError::Stream { .. } => "stream",
        KinesisError::Service { .. } => "service",
        KinesisError::GaveUp { .. } => "gave up",
        KinesisError::NotConnected => "not connected",
        KinesisError::Interrupted { .. } => "interrupted",
        other => panic!("{other}"),
    }
}

async fn send(sink: &mut PublishSink, records: Vec<Outgoing>) {
    for record in records {
        SinkExt::<Outgoing>::feed(sink, record).await.unwrap();
    }
}

/// Whether the first copies of each key's records are in order.
fn assert_in_order(stored: &[PutEntry]) {
    let mut by_key: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for entry in stored {
        let number = String::from_utf8_lossy(&entry.data).parse().unwrap();
        let numbers = by_key.entry(&entry.partition_key).or_default();
        if !numbers.contains(&number) {
            numbers.push(number);
        }
    }
    assert!(by_key.values().all(|numbers| numbers.is_sorted()), "{by_key:?}");
}
