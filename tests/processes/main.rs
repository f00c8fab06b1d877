//! A fleet of real processes: several instances of the example `worker` on one stream and one table of leases, which are
//! killed, stopped, closed and started at random. What must hold is judged on one journal of all that was said and
//! written: see `checker`.
//!
//! `KINESIS_STREAM_FLEET=7` plays one seed, `KINESIS_STREAM_FLEET=0..30` a range; with `--nocapture` it tells how long
//! takeovers took, and how many records were begun again. A seed decides what is done; how long things take, the machine.

#![cfg(unix)]
#![expect(clippy::unwrap_used, reason = "what fails in a helper of a test fails the test")]

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

/// How long anything may take that has to come.
const PATIENCE: Duration = Duration::from_secs(30);

/// Names the seeds to be played.
const SEEDS: &str = "KINESIS_STREAM_FLEET";

// A1, A3, A12, B8, E2 to E5, D1, J8
#[tokio::test(flavor = "multi_thread")]
async fn a_fleet_whose_members_come_and_go_settles_everything_in_order_and_no_one_writes_for_another() {
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
