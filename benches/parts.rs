//! What the parts of the library cost in CPU time, each beside what it is compared with.
//!
//! ```sh
//! cargo bench --bench parts                # all, and the table
//! cargo bench --bench parts -- settling    # one group
//! cargo test --bench parts                 # each piece of work once, to see that it still works
//! ```
//!
//! The pieces of work are those that `instructions` counts, in `work/`: in one thread, on a Kinesis in this process
//! without sockets, under a paused clock. So nothing is measured but the library and the SDK.
//!
//! Each group begins with what the others of it are compared with, and the table at the end has the ratios. What criterion
//! measured in an earlier run stands in for what this one leaves out.

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
        settling::{self, Hands, IN_FLIGHT, InBatches, Order},
    },
};

mod ratios;
mod work;

/// How many records are read in an iteration.
const READ: usize = 4_000;

/// How many shards have nothing, for a second.
const IDLE: usize = 100;

/// A group: its name, of how many records or shards an iteration is, and its benches.
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

/// Where criterion leaves what it measures: `target/criterion`. This program is `target/<profile>/deps/<name>`.
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

/// Ten shards that have records, alone and among a thousand.
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
    let ack = |_: &Hands, held| settling::ack(held);
    of_hands(group, "ack", Hands::default(), Order::Delivered, ack);
    of_hands(group, "ack-reversed", Hands::default(), Order::Reversed, ack);
    of_hands(group, "ack-shuffled", Hands::default(), Order::Shuffled, ack);
    of_hands(group, "commit", Hands::default(), Order::Delivered, Hands::commit_each);
    of_hands(group, "commit-64-at-once", Hands::default(), Order::Delivered, Hands::commit_at_once);
    of_hands(group, "commit-all-of-500", Hands::default(), Order::Delivered, Hands::commit_all);
    group.bench("batch-of-500", |bencher| {
        let hands = RefCell::new(InBatches::default());
        let fill = || hands.borrow_mut().fill();
        bencher.iter_batched(fill, |held| hands.borrow().commit(held), BatchSize::PerIteration);
    });
}

/// Working on 32 records at a time.
fn by_key(group: &mut Group) {
    of_hands(group, "unordered", keys::hands(1_000), Order::Delivered, keys::unordered);
    of_hands(group, "1000-keys", keys::hands(1_000), Order::Delivered, keys::by_key);
    of_hands(group, "one-key", keys::hands(1), Order::Delivered, keys::by_key);
}

/// Measures what is done with all that is in flight.
fn of_hands(group: &mut Group, name: &'static str, hands: Hands, order: Order, work: impl Fn(&Hands, Vec<Delivery>)) {
    let hands = RefCell::new(hands);
    group.bench(name, |bencher| {
        let fill = || hands.borrow_mut().fill(order);
        bencher.iter_batched(fill, |held| work(&hands.borrow(), held), BatchSize::PerIteration);
    });
}
