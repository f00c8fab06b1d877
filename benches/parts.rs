//! The CPU time of the parts of the library, each compared with a baseline.
//!
//! ```sh
//! cargo bench --bench parts                # all, and the table
//! cargo bench --bench parts -- settling    # one group
//! cargo test --bench parts                 # each piece of work once, to check that it works
//! ```
//!
//! The pieces of work are those that `instructions` counts, in `work/`: in one thread, on a Kinesis in this process
//! without sockets, under a paused clock. So the bench measures only the library and the SDK.
//!
//! The first bench of each group is its baseline, and the table at the end has the ratios. For benches that this run
//! skips, the table uses the results of an earlier run.

use std::{
    cell::RefCell,
    env,
    io::{self, ErrorKind},
    path::PathBuf,
    time::Duration,
};

use criterion::{BatchSize, Criterion};
use kinesis_stream::prelude::*;

use self::{
    ratios::{CpuTime, Group},
    work::{
        envelope::{self, Outbound},
        keys,
        reading::{Bare, Idle, Reading, bare_idle, kinesis},
        settling::{self, IN_FLIGHT, OneShard, OneShardInBatches, Order},
    },
};

mod ratios;
mod work;

/// How many records an iteration reads.
const READ: usize = 4_000;

/// How many idle shards an iteration polls for a second.
const IDLE: usize = 100;

/// A group: its name, the number of records or shards per iteration, and its benches.
type Part = (&'static str, usize, fn(&mut Group));

fn main() -> io::Result<()> {
    let results = results()?;
    let criterion = Criterion::default().with_measurement(CpuTime).sample_size(20);
    let mut criterion = criterion.output_directory(&results).configure_from_args();
    let parts: [Part; 9] = [
        ("reading-100", READ, |group| reading(group, 100)),
        ("reading-1024", READ, |group| reading(group, 1024)),
        ("paced", READ, paced),
        ("merging", READ, merging),
        ("idle-shards", IDLE, idle),
        ("headers-in", READ, headers_in),
        ("headers-out", envelope::RECORDS, headers_out),
        ("settling", IN_FLIGHT, settling),
        ("by-key", IN_FLIGHT, by_key),
    ];
    let mut tables = Vec::new();
    for (name, records, measure) in parts {
        let mut group = Group::new(&mut criterion, name, records);
        measure(&mut group);
        tables.push(group.finish(&results));
    }
    criterion.final_summary();
    if env::args().any(|arg| arg == "--bench") {
        for table in tables {
            print!("\n{table}");
        }
    }
    Ok(())
}

/// The results of criterion: `target/criterion`. This program is `target/<profile>/deps/<name>`.
fn results() -> io::Result<PathBuf> {
    let program = env::current_exe()?;
    let target = program.ancestors().nth(3).ok_or(ErrorKind::NotFound)?;
    Ok(target.join("criterion"))
}

/// Four shards, from the bytes of a page to an acknowledged record.
fn reading(group: &mut Group, record_bytes: usize) {
    let mut reader = Bare::new(kinesis(4, 1000, record_bytes));
    group.bench("bare", |bencher| bencher.iter(|| reader.read(READ)));
    let mut reader = Reading::new(kinesis(4, 1000, record_bytes));
    group.bench("ack", |bencher| bencher.iter(|| reader.read(READ)));
}

/// Four shards at the pace of the service, by the paused clock.
fn paced(group: &mut Group) {
    let mut reader = Bare::new(kinesis(4, 200, 100));
    group.bench("bare", |bencher| bencher.iter(|| reader.read_paced(READ)));
    let mut reader = Reading::paced(kinesis(4, 200, 100));
    group.bench("ack", |bencher| bencher.iter(|| reader.read(READ)));
}

/// Ten busy shards, alone and among a thousand.
fn merging(group: &mut Group) {
    for (name, shards) in [("10-of-10", 10), ("10-of-1000", 1_000)] {
        let mut reader = Reading::new(kinesis(shards, 100, 100).busy(10));
        group.bench(name, |bencher| bencher.iter(|| reader.read(READ)));
    }
}

/// Shards without records, for a second, at the pace of the service.
fn idle(group: &mut Group) {
    let mut reader = bare_idle(IDLE);
    group.bench("bare", |bencher| bencher.iter(|| reader.turns(1, Duration::from_secs(1))));
    let mut reader = Idle::new(IDLE);
    group.bench("subscribed", |bencher| bencher.iter(|| reader.wait(Duration::from_secs(1))));
}

/// Reading records in envelopes.
fn headers_in(group: &mut Group) {
    for (name, headers) in [("plain", false), ("three", true)] {
        let mut reader = Reading::new(envelope::pages(headers));
        group.bench(name, |bencher| bencher.iter(|| reader.read(READ)));
    }
}

/// Publishing records in envelopes.
fn headers_out(group: &mut Group) {
    let outbound = Outbound::default();
    for (name, headers) in [("plain", false), ("three", true)] {
        group.bench(name, |bencher| {
            let records = || envelope::records(headers);
            bencher.iter_batched(records, |records| outbound.publish(records), BatchSize::PerIteration);
        });
    }
}

/// Settling 10,000 records that are in flight.
fn settling(group: &mut Group) {
    let ack = |_: &OneShard, held| settling::ack(held);
    on_deliveries(group, "ack", OneShard::default(), Order::Delivered, ack);
    on_deliveries(group, "ack-reversed", OneShard::default(), Order::Reversed, ack);
    on_deliveries(group, "ack-shuffled", OneShard::default(), Order::Shuffled, ack);
    on_deliveries(group, "commit", OneShard::default(), Order::Delivered, OneShard::commit_each);
    on_deliveries(group, "commit-64-at-once", OneShard::default(), Order::Delivered, OneShard::commit_at_once);
    on_deliveries(group, "commit-all-of-500", OneShard::default(), Order::Delivered, OneShard::commit_all);
    group.bench("batch-of-500", |bencher| {
        let shard = RefCell::new(OneShardInBatches::default());
        let fill = || shard.borrow_mut().fill();
        bencher.iter_batched(fill, |held| shard.borrow().commit(held), BatchSize::PerIteration);
    });
}

/// Working on 32 records at a time.
fn by_key(group: &mut Group) {
    on_deliveries(group, "unordered", keys::one_shard(1_000), Order::Delivered, keys::unordered);
    on_deliveries(group, "1000-keys", keys::one_shard(1_000), Order::Delivered, keys::by_key);
    on_deliveries(group, "one-key", keys::one_shard(1), Order::Delivered, keys::by_key);
}

/// Measures work on all deliveries in flight.
fn on_deliveries(
    group: &mut Group,
    name: &'static str,
    shard: OneShard,
    order: Order,
    work: impl Fn(&OneShard, Vec<Delivery>),
) {
    let shard = RefCell::new(shard);
    group.bench(name, |bencher| {
        let fill = || shard.borrow_mut().fill(order);
        bencher.iter_batched(fill, |held| work(&shard.borrow(), held), BatchSize::PerIteration);
    });
}
