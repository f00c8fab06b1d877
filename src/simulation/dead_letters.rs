//! Records that used up their attempts (A7, X2): dead letters, and the errors that replace them.

use super::{kinesis::Written, scripted_service::ServiceOp};

use crate::{
    dead_letters::dead_letter::DeadLetter,
    simulation::harness::{Harness, Instance, horizon},
    state::stats::ShardStats,
    subscription::{Subscription, descriptor::KinesisStream},
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

/// What the dead-letter stream holds.
fn letters(harness: &Harness) -> Vec<DeadLetter> {
    let letter = |written: Written| DeadLetter::parse(&written.key, written.data).unwrap();
    harness.kinesis.written().into_iter().map(letter).collect()
}

/// The payloads in the dead-letter stream.
fn dead_letters(harness: &Harness) -> Vec<String> {
    let text = |letter: DeadLetter| String::from_utf8(letter.record().payload().to_vec()).unwrap();
    letters(harness).into_iter().map(text).collect()
}

fn stats(subscription: &Subscription) -> ShardStats {
    subscription.stats().shards.remove(0)
}

/// When dead-letter writes were tried, in whole seconds after the first one.
fn seconds_of_writes(instance: &Instance) -> Vec<u64> {
    let calls = instance.service.script.calls(ServiceOp::PutRecord);
    calls.iter().map(|write| write.at.saturating_sub(calls[0].at).as_secs()).collect()
}
