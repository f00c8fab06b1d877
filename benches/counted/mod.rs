//! What callgrind counts.

use std::time::Duration;

use gungraun::{Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use kinesis_stream::prelude::*;

use crate::work::{
    envelope::{self, Outbound},
    keys,
    reading::{Bare, Idle, Reading, bare_idle, kinesis},
    settling::{Hands, IN_FLIGHT, InBatches, Order, ack as ack_all},
};

/// How many records are read.
const RECORDS: usize = 100_000;

/// How many records a thousand shards give in a second: five pages each.
const A_SECOND: usize = 500_000;

/// For how many seconds shards are idle: as long as it takes until all are listed again.
const IDLE: u32 = 10;

/// Of how many records a bench is, or of how many seconds of idle shards.
pub(crate) fn records(group: &str, id: &str) -> u32 {
    let records = match (group, id) {
        ("paced", "all_of_1000") => A_SECOND,
        ("idle", "of_10") => return 10 * IDLE,
        ("idle", _) => return 1_000 * IDLE,
        ("settling" | "headers_out" | "key", _) => IN_FLIGHT,
        _ => RECORDS,
    };
    u32::try_from(records).expect("some thousands")
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

/// A subscription and what of it is in hand.
fn in_hand(mut hands: Hands, order: Order) -> (Hands, Vec<Delivery>) {
    let held = hands.fill(order);
    (hands, held)
}

#[library_benchmark]
#[bench::in_order(in_hand(Hands::default(), Order::Delivered))]
#[bench::reversed(in_hand(Hands::default(), Order::Reversed))]
#[bench::shuffled(in_hand(Hands::default(), Order::Shuffled))]
fn acks((hands, held): (Hands, Vec<Delivery>)) -> Hands {
    ack_all(held);
    hands
}

#[library_benchmark]
#[bench::one_by_one(in_hand(Hands::default(), Order::Delivered))]
fn commits((hands, held): (Hands, Vec<Delivery>)) -> Hands {
    hands.commit_each(held);
    hands
}

#[library_benchmark]
#[bench::of_64(in_hand(Hands::default(), Order::Delivered))]
fn commits_at_once((hands, held): (Hands, Vec<Delivery>)) -> Hands {
    hands.commit_at_once(held);
    hands
}

#[library_benchmark]
#[bench::of_500(in_hand(Hands::default(), Order::Delivered))]
fn commit_all((hands, held): (Hands, Vec<Delivery>)) -> Hands {
    hands.commit_all(held);
    hands
}

fn in_batches() -> (InBatches, Vec<Batch>) {
    let mut hands = InBatches::default();
    let held = hands.fill();
    (hands, held)
}

#[library_benchmark]
#[bench::of_500(in_batches())]
fn batches((hands, held): (InBatches, Vec<Batch>)) -> InBatches {
    hands.commit(held);
    hands
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
#[bench::of_1000(in_hand(keys::hands(1_000), Order::Delivered))]
fn unordered((hands, held): (Hands, Vec<Delivery>)) -> Hands {
    keys::unordered(&hands, held);
    hands
}

#[library_benchmark]
#[bench::of_1000(in_hand(keys::hands(1_000), Order::Delivered))]
#[bench::of_1(in_hand(keys::hands(1), Order::Delivered))]
fn by_key((hands, held): (Hands, Vec<Delivery>)) -> Hands {
    keys::by_key(&hands, held);
    hands
}

library_benchmark_group!(name = key, benchmarks = [unordered, by_key]);

main!(
    config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"])),
    library_benchmark_groups = [reading, shards, paced, idle, settling, headers_in, headers_out, key]
);

/// Counts, or has all counted, as the arguments say.
pub(crate) fn run() {
    main();
}

/// Does some of it without counting. All of it is done by `parts`.
pub(crate) fn smoke() {
    Bare::new(kinesis(4, 100, 100)).read(400);
    Reading::new(kinesis(4, 100, 100)).read(400);
}
