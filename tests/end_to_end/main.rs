//! Consumers end to end, on an emulator in this process or on the server that `KINESIS_STREAM_ENDPOINT` names.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use kinesis_stream::{Checkpoint, Delivery};
use kinesis_stream_support::{Harness, unique};
use tokio::time::Duration;

mod aggregates;
mod closing;
mod forced_start;
mod records;
mod restarts;
mod settling;
mod shard_end;
#[path = "../wire/mod.rs"]
mod wire;

/// An interval longer than any test, for timers that must not fire.
const NEVER: Duration = Duration::from_hours(1);

async fn stream(harness: &Harness, name: &str, shards: u32) -> String {
    let stream = unique(name);
    harness.create_stream(&stream, shards).await;
    stream
}

/// Puts `prefix 0`, `prefix 1`, and so on into one shard.
async fn fill(harness: &Harness, stream: &str, shard: &str, prefix: &str, n: usize) {
    for text in numbered(prefix, n) {
        harness.put_to_shard(stream, shard, prefix, text).await;
    }
}

fn numbered(prefix: &str, n: usize) -> Vec<String> {
    (0..n).map(|i| format!("{prefix} {i}")).collect()
}

fn after(delivery: &Delivery) -> Checkpoint {
    Checkpoint::After(delivery.sequence_number().clone())
}
