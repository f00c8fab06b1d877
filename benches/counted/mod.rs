//! The benches that callgrind counts.

use std::time::Duration;

use gungraun::{Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use kinesis_stream::prelude::*;

use crate::work::{
    envelope::{self, Outbound},
    keys,
    reading::{Bare, Idle, Reading, bare_idle, kinesis},
    settling::{IN_FLIGHT, OneShard, OneShardInBatches, Order, ack as ack_all},
};

/// How many records each reading bench reads.
const RECORDS: usize = 100_000;

/// How many records a thousand shards return in a second: five pages each.
const A_SECOND: usize = 500_000;

/// For how many seconds shards are idle: one full listing interval.
const IDLE: u32 = 10;

/// How many records a bench handles, or how many shard-seconds of idleness.
pub(crate) fn records(group: &str, id: &str) -> u32 {
    let records = match (group, id) {
        ("paced", "all_of_1000") => A_SECOND,
        ("idle", "of_10") => return 10 * IDLE,
        ("idle", _) => return 1_000 * IDLE,
        ("settling" | "headers_out" | "key", _) => IN_FLIGHT,
        _ => RECORDS,
    };
    u32::try_from(records).expect("the number fits")
}

#[library_benchmark]
#[bench::of_100_bytes(Bare::new(kinesis(4, 1000, 100)))]
#[bench::of_1024_bytes(Bare::new(kinesis(4, 1000, 1024)))]
fn bare(mut reader: Bare) -> Bare {
    reader.read(RECORDS);
    reader
}

#[library_benchmark]
#[bench::of_100_bytes(Reading::new(kinesis(4, 1000, 100)))]
#[bench::of_1024_bytes(Reading::new(kinesis(4, 1000, 1024)))]
fn ack(mut reader: Reading) -> Reading {
    reader.read(RECORDS);
    reader
}

library_benchmark_group!(name = reading, benchmarks = [bare, ack]);

#[library_benchmark]
#[bench::all_of_1(Bare::new(kinesis(1, 100, 100)))]
#[bench::all_of_10(Bare::new(kinesis(10, 100, 100)))]
#[bench::all_of_100(Bare::new(kinesis(100, 100, 100)))]
#[bench::all_of_1000(Bare::new(kinesis(1000, 100, 100)))]
fn bare_shards(mut reader: Bare) -> Bare {
    reader.read(RECORDS);
    reader
}

#[library_benchmark]
#[bench::all_of_1(Reading::new(kinesis(1, 100, 100)))]
#[bench::all_of_10(Reading::new(kinesis(10, 100, 100)))]
#[bench::all_of_100(Reading::new(kinesis(100, 100, 100)))]
#[bench::all_of_1000(Reading::new(kinesis(1000, 100, 100)))]
#[bench::ten_of_1000(Reading::new(kinesis(1000, 100, 100).busy(10)))]
fn ack_shards(mut reader: Reading) -> Reading {
    reader.read(RECORDS);
    reader
}

library_benchmark_group!(name = shards, benchmarks = [bare_shards, ack_shards]);

#[library_benchmark]
#[bench::all_of_1(Bare::new(kinesis(1, 100, 100)), RECORDS)]
#[bench::all_of_10(Bare::new(kinesis(10, 100, 100)), RECORDS)]
#[bench::all_of_100(Bare::new(kinesis(100, 100, 100)), RECORDS)]
#[bench::all_of_1000(Bare::new(kinesis(1000, 100, 100)), A_SECOND)]
fn bare_paced(mut reader: Bare, records: usize) -> Bare {
    reader.read_paced(records);
    reader
}

#[library_benchmark]
#[bench::all_of_1(Reading::paced(kinesis(1, 100, 100)), RECORDS)]
#[bench::all_of_10(Reading::paced(kinesis(10, 100, 100)), RECORDS)]
#[bench::all_of_100(Reading::paced(kinesis(100, 100, 100)), RECORDS)]
#[bench::all_of_1000(Reading::paced(kinesis(1000, 100, 100)), A_SECOND)]
fn ack_paced(mut reader: Reading, records: usize) -> Reading {
    reader.read(records);
    reader
}

library_benchmark_group!(name = paced, benchmarks = [bare_paced, ack_paced]);

#[library_benchmark]
#[bench::of_10(bare_idle(10))]
#[bench::of_1000(bare_idle(1000))]
fn bare_idle_shards(mut reader: Bare) -> Bare {
    reader.turns(IDLE, Duration::from_secs(1));
    reader
}

#[library_benchmark]
#[bench::of_10(Idle::new(10))]
#[bench::of_1000(Idle::new(1000))]
fn idle_shards(mut reader: Idle) -> Idle {
    reader.wait(Duration::from_secs(IDLE.into()));
    reader
}

library_benchmark_group!(name = idle, benchmarks = [bare_idle_shards, idle_shards]);

/// A subscription, and its deliveries in flight.
fn with_deliveries(mut shard: OneShard, order: Order) -> (OneShard, Vec<Delivery>) {
    let held = shard.fill(order);
    (shard, held)
}

#[library_benchmark]
#[bench::in_order(with_deliveries(OneShard::default(), Order::Delivered))]
#[bench::reversed(with_deliveries(OneShard::default(), Order::Reversed))]
#[bench::shuffled(with_deliveries(OneShard::default(), Order::Shuffled))]
fn acks((shard, held): (OneShard, Vec<Delivery>)) -> OneShard {
    ack_all(held);
    shard
}

#[library_benchmark]
#[bench::one_by_one(with_deliveries(OneShard::default(), Order::Delivered))]
fn commits((shard, held): (OneShard, Vec<Delivery>)) -> OneShard {
    shard.commit_each(held);
    shard
}

#[library_benchmark]
#[bench::of_64(with_deliveries(OneShard::default(), Order::Delivered))]
fn commits_at_once((shard, held): (OneShard, Vec<Delivery>)) -> OneShard {
    shard.commit_at_once(held);
    shard
}

#[library_benchmark]
#[bench::of_500(with_deliveries(OneShard::default(), Order::Delivered))]
fn commit_all((shard, held): (OneShard, Vec<Delivery>)) -> OneShard {
    shard.commit_all(held);
    shard
}

fn in_batches() -> (OneShardInBatches, Vec<Batch>) {
    let mut shard = OneShardInBatches::default();
    let held = shard.fill();
    (shard, held)
}

#[library_benchmark]
#[bench::of_500(in_batches())]
fn batches((shard, held): (OneShardInBatches, Vec<Batch>)) -> OneShardInBatches {
    shard.commit(held);
    shard
}

library_benchmark_group!(name = settling, benchmarks = [acks, commits, commits_at_once, commit_all, batches]);

#[library_benchmark]
#[bench::none(Reading::new(envelope::pages(false)))]
#[bench::three(Reading::new(envelope::pages(true)))]
fn received(mut reader: Reading) -> Reading {
    reader.read(RECORDS);
    reader
}

library_benchmark_group!(name = headers_in, benchmarks = [received]);

#[library_benchmark]
#[bench::none(Outbound::default(), envelope::records(false))]
#[bench::three(Outbound::default(), envelope::records(true))]
fn published(outbound: Outbound, records: Vec<Outgoing>) -> Outbound {
    outbound.publish(records);
    outbound
}

library_benchmark_group!(name = headers_out, benchmarks = [published]);

#[library_benchmark]
#[bench::of_1000(with_deliveries(keys::one_shard(1_000), Order::Delivered))]
fn unordered((shard, held): (OneShard, Vec<Delivery>)) -> OneShard {
    keys::unordered(&shard, held);
    shard
}

#[library_benchmark]
#[bench::of_1000(with_deliveries(keys::one_shard(1_000), Order::Delivered))]
#[bench::of_1(with_deliveries(keys::one_shard(1), Order::Delivered))]
fn by_key((shard, held): (OneShard, Vec<Delivery>)) -> OneShard {
    keys::by_key(&shard, held);
    shard
}

library_benchmark_group!(name = key, benchmarks = [unordered, by_key]);

main!(
    config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"])),
    library_benchmark_groups = [reading, shards, paced, idle, settling, headers_in, headers_out, key]
);

/// Counts one bench or all of them, as the arguments say.
pub(crate) fn run() {
    main();
}

/// Runs a part of the work without counting. `parts` runs all of it.
pub(crate) fn smoke() {
    Bare::new(kinesis(4, 100, 100)).read(400);
    Reading::new(kinesis(4, 100, 100)).read(400);
}
