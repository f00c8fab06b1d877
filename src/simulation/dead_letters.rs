//! Records that used up their attempts (A7, X2): dead letters, and the errors that replace them.

use super::{kinesis::Written, scripted_service::ServiceOp};

use crate::{
    simulation::harness::{Harness, Instance, horizon},
    state::stats::ShardStats,
    subscription::{Subscription, descriptor::KinesisStream},
    types::record::Headers,
    wire::envelope,
};

mod failures;
mod interruptions;
mod random;
mod start;
mod writing;

/// The harness's stream, with this many attempts for each record and a dead-letter stream.
fn with_attempts(attempts: u32) -> KinesisStream {
    horizon().max_attempts(attempts).dead_letter("dead")
}

/// The headers of a record, as text.
fn header_texts(headers: &Headers) -> Vec<(&str, &str)> {
    headers.iter().map(|(name, value)| (name, str::from_utf8(value).unwrap())).collect()
}

/// The value of a header that the library adds to a dead letter.
fn header(written: &Written, name: &str) -> String {
    let (headers, _) = envelope::decode(written.data.clone());
    let value = headers.get(&format!("kinesis-dead-letter-{name}")).unwrap();
    String::from_utf8(value.to_vec()).unwrap()
}

/// The payloads in the dead-letter stream.
fn dead_letters(harness: &Harness) -> Vec<String> {
    let text = |written: Written| String::from_utf8(envelope::decode(written.data).1.to_vec()).unwrap();
    harness.kinesis.written().into_iter().map(text).collect()
}

fn stats(subscription: &Subscription) -> ShardStats {
    subscription.stats().shards.remove(0)
}

/// When dead-letter writes were tried, in whole seconds after the first one.
fn seconds_of_writes(instance: &Instance) -> Vec<u64> {
    let calls = instance.service.script.calls(ServiceOp::PutRecord);
    calls.iter().map(|write| write.at.saturating_sub(calls[0].at).as_secs()).collect()
}
