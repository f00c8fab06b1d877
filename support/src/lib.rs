//! The test harness that the tests, examples and benches of kinesis-stream share.
//!
//! - [`Emulator`]: a Kinesis in this process; [`Harness`]: the same helpers over any server;
//! - [`DynamoDb`]: a DynamoDB in this process;
//! - [`Faults`]: fault injection (calls fail, wait, hang or get an edited response) and a log of the calls, for an
//!   emulator or for a client;
//! - [`chain()`]: an error with its causes, as one line;
//! - [`canned`]: a Kinesis that answers from templates, for benchmarks;
//! - [`earthquakes`]: real data to put into a stream;
//! - [`Rng`] and [`seeds()`]: randomized tests that can be replayed;
//! - [`Server`]: serves a router on a separate thread; the emulators are built on it.
//!
//! ```no_run
//! # async fn example() {
//! use kinesis_stream_support::{AwsError, Emulator, Op};
//!
//! let kinesis = Emulator::start();
//! kinesis.create_stream("orders", 2).await;
//! let (shard, _) = kinesis.put("orders", "alice", "one book").await;
//! kinesis.faults().on(Op::GetRecords).shard(shard).first(3).fail(AwsError::THROTTLED);
//! # }
//! ```
//!
//! Nothing here depends on the library.

pub mod canned;
mod chain;
mod dynamodb;
pub mod earthquakes;
mod emulator;
mod faithful;
pub mod faults;
mod harness;
mod op;
mod rng;
mod seeds;
mod server;
mod shard;
mod wire;

pub use self::{
    chain::chain,
    dynamodb::{DYNAMODB_VARIABLE, DynamoDb, Written},
    emulator::{Builder, Emulator},
    faults::{AwsError, Call, Faults, Rule},
    harness::{ENDPOINT_VARIABLE, Harness, Stored, unique},
    op::Op,
    rng::Rng,
    seeds::{ReplayHint, seeds},
    server::Server,
    shard::Shard,
};
