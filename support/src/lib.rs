//! The ground that the tests, examples and benches of kinesis-stream stand on.
//!
//! - [`Emulator`]: a Kinesis of one's own, in this process, and [`Ground`]: the same helpers over any server;
//! - [`DynamoDb`]: a DynamoDB of one's own, in this process;
//! - [`Faults`]: calls that fail, wait, hang or come back changed, and their log: of an emulator, or of a client;
//! - [`chain`]: an error with its causes, as one line;
//! - [`canned`]: a Kinesis that answers from templates, for benchmarks;
//! - [`earthquakes`]: real data to put into a stream;
//! - [`Rng`] and [`seeds`]: randomized tests that can be replayed;
//! - [`Server`]: a router on a thread of its own, which the others are made of.
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
mod ground;
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
    ground::{ENDPOINT_VARIABLE, Ground, Stored, unique},
    op::Op,
    rng::Rng,
    seeds::{ReplayHint, seeds},
    server::Server,
    shard::Shard,
};
