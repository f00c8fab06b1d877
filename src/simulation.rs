//! The ground for everything that time drives: instances of the library on a model of a stream, under tokio's paused
//! clock, without sockets and without luck.
//!
//! - [`kinesis`]: the stream, shared by all instances,
//! - [`wire`] and [`table`]: what one instance sees of the service and of the lease store, each behind a [`script`] of
//!   faults and with a log of its calls,
//! - [`intake`]: a service that takes records, as a test has it,
//! - [`harness`]: instances, and short words for what tests do with them,
//! - [`storm`] and [`fleet`]: instances in every kind of trouble, one run for each seed. In a storm they share a clock,
//!   in a fleet each has a time of its own and the table is at the end of a [`network`]. Both have a [`worker`] for
//!   each instance, a [`churn`] and other [`nemesis`], and a [`oracle`] that sees all and says what has to hold,
//! - the rest: one file for each area of promises.
//!
//! It is part of the crate, in tests only, because it stands in for private traits.

mod churn;
mod clock;
mod harness;
mod intake;
mod kinesis;
mod nemesis;
mod network;
mod oracle;
mod script;
mod table;
mod wire;
mod worker;

mod batches;
mod bounds;
mod by_key;
mod checkpoints;
mod closing;
mod commits;
mod dead_letters;
mod drops;
mod endings;
mod expiry;
mod failing;
mod fleet;
mod gone;
mod leases;
mod lineage;
mod listing;
mod marks;
mod memory;
mod opening;
mod pacing;
mod publishing;
mod recreated;
mod redelivery;
mod replays;
mod scale;
mod seeks;
mod sharing;
mod spent;
mod stats;
mod stores;
mod storm;
mod tips;
mod tokens;
