//! The simulation: instances of the library on a model of a stream, under tokio's paused clock, without sockets. Every
//! run is repeatable from its seed.
//!
//! - [`kinesis`]: the stream that all instances share.
//! - [`scripted_service`] and [`scripted_table`]: the service and the lease table as one instance sees them. Each has a
//!   [`script`] of faults and a log of its calls.
//! - [`put_service`]: a service that accepts records as the test plans it.
//! - [`harness`]: instances, and shorthands for tests.
//! - [`storm`] and [`fleet`]: instances under all kinds of faults, one run for each seed. In a storm all instances
//!   share one clock. In a fleet each has a separate clock, and the lease table is behind a [`network`]. Each instance
//!   has a [`worker`]. A [`churn`] changes the stream, a [`nemesis`] injects faults, and an [`oracle`] sees everything
//!   and checks the invariants.
//! - The other files each test one area of promises.
//!
//! The simulation is a test module of the crate, because it replaces private traits.

mod churn;
mod clock;
mod harness;
mod kinesis;
mod nemesis;
mod network;
mod oracle;
mod put_service;
mod script;
mod scripted_service;
mod scripted_table;
mod worker;

mod abrupt_ends;
mod attempts_spent;
mod batches;
mod bounds;
mod buffer_by_key;
mod closing;
mod commits;
mod dead_letters;
mod dropped_deliveries;
mod expired_iterators;
mod failed_reads;
mod fleet;
mod forced_start;
mod foreign_rows;
mod host_clock;
mod lasting_failures;
mod lease_handle;
mod leases;
mod lineage;
mod listings;
mod lost_checkpoints;
mod max_age;
mod memory;
mod opening;
mod opening_position;
mod pacing;
mod process;
mod publishing;
mod recreated_streams;
mod redelivery;
mod rejects;
mod removed_shards;
mod scale;
mod seeks;
mod sharing;
mod slow_calls;
mod spoilable_table;
mod spoilt_rows;
mod start;
mod stats;
mod stop_at_tip;
mod store_failures;
mod storm;
mod suspended_host;
mod tolerant;
