//! Consumers on a Kinesis that fails, delays, hangs and throttles: an emulator behind a fault layer, which also counts
//! calls.

#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use kinesis_stream_support::Emulator;

mod bounds;
mod calls;
mod connections;
mod iterators;
mod leases;
mod reads;
#[path = "../wire/mod.rs"]
mod wire;

const STREAM: &str = "stream";
const SHARD: &str = "shardId-000000000000";
const OTHER: &str = "shardId-000000000001";

async fn kinesis(shards: u32) -> Emulator {
    let kinesis = Emulator::start();
    kinesis.create_stream(STREAM, shards).await;
    kinesis
}

fn numbered(range: std::ops::Range<usize>) -> Vec<String> {
    range.map(|i| i.to_string()).collect()
}

async fn fill(kinesis: &Emulator, range: std::ops::Range<usize>) {
    kinesis.put_all(STREAM, numbered(range).into_iter().map(|text| ("key", text))).await;
}
