//! A fleet of real processes: several instances of the example `worker` share one stream and one lease table. The test
//! kills, stops, closes and starts them at random. It records all output of the workers and all writes to the table in
//! one history, and `checker` checks the invariants on it.
//!
//! `KINESIS_STREAM_FLEET=7` runs one seed, `KINESIS_STREAM_FLEET=0..30` a range. With `--nocapture` it prints how long
//! takeovers took, and how many records were redelivered. The seed decides the actions, the machine decides the timing.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "a failed helper fails the test")]

use tokio::{task::JoinSet, time::Duration};

use kinesis_stream_support::seeds;

use crate::report::Report;

mod checker;
mod fleet;
mod history;
mod moves;
mod report;
mod row;
mod source;
mod storm;
mod takeover;
mod verdicts;
mod worker;

/// The timeout of every wait.
const PATIENCE: Duration = Duration::from_secs(30);

/// The environment variable with the seeds to run.
const SEEDS: &str = "KINESIS_STREAM_FLEET";

// A1, A3, E2 to E5
#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_with_random_kills_settles_every_record_in_order_and_no_worker_writes_under_a_lost_lease() {
    let (mut seeds, mut running, mut report) = (seeds(SEEDS, 1), JoinSet::new(), Report::default());
    loop {
        while running.len() < 2
            && let Some(seed) = seeds.next()
        {
            running.spawn(storm::play(seed));
        }
        let Some(outcome) = running.join_next().await else { break };
        let outcome = outcome.unwrap_or_else(|failed| std::panic::resume_unwind(failed.into_panic()));
        println!("{outcome}");
        report.0.push(outcome);
    }
    println!("{report}");
}
