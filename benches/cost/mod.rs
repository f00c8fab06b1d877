//! Shared by the benches: the clients of a canned Kinesis, the cost of a run, and the table.

use std::{cmp::Ordering, error::Error, fmt::Debug, iter, time::Duration};

use aws_sdk_kinesis::{
    Client,
    config::{BehaviorVersion, Config, Credentials, Region, SharedCredentialsProvider, retry::RetryConfig},
};
use aws_types::SdkConfig;
use kinesis_stream::{ConnectedKinesisBroker, KinesisBroker};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

pub(crate) type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

pub(crate) const STREAM: &str = "bench";

/// The SDK configuration of every client of the canned Kinesis at this endpoint.
pub(crate) fn config(endpoint: &str) -> SdkConfig {
    let keys = Credentials::new("test", "test", None, None, "bench");
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(endpoint)
        .region(Region::from_static("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(keys))
        .build()
}

/// The bare client, with retries off, and the broker of this library.
pub(crate) async fn clients(endpoint: &str) -> Result<(Client, ConnectedKinesisBroker)> {
    let config = config(endpoint);
    let once = Config::from(&config).to_builder().retry_config(RetryConfig::disabled()).build();
    Ok((Client::from_conf(once), KinesisBroker::from_config(config).connect().await?))
}

/// The cost of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

impl Cost {
    /// Runs it. Returns its cost and its outcome.
    pub(crate) async fn of<T>(run: impl Future<Output = Result<T>>) -> Result<(Self, T)> {
        let (started, spent) = (Instant::now(), cpu_time()?);
        let outcome = run.await?;
        Ok((Self { wall: started.elapsed(), cpu: cpu_time()?.saturating_sub(spent) }, outcome))
    }
}

/// The CPU time of this process, user plus system.
pub(crate) fn cpu_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::ProcessCPUTime).try_into()?)
}

/// Prints the cost of each way over all rounds. The first way is the bare loop.
pub(crate) fn print_table<W: Copy + Debug>(ways: &[W], costs: &[Vec<Cost>], records: u32) {
    println!("         CPU a record, ns     records a second     to the bare loop's: CPU    records a second");
    println!("           least   median       most    median            least   median       most   median");
    for (way, measured) in iter::zip(ways, costs) {
        print_row(*way, records, measured, &costs[0]);
    }
}

fn print_row(way: impl Debug, records: u32, costs: &[Cost], bare: &[Cost]) {
    let nanos = |time: Duration| time.as_secs_f64() * 1e9 / f64::from(records);
    let cpu = Figures::lowest(costs.iter().map(|cost| nanos(cost.cpu)));
    let speed = Figures::highest(costs.iter().map(|cost| 1e9 / nanos(cost.wall)));
    let (of_cpu, of_speed) = (
        cpu.over(&Figures::lowest(bare.iter().map(|cost| nanos(cost.cpu)))),
        speed.over(&Figures::highest(bare.iter().map(|cost| 1e9 / nanos(cost.wall)))),
    );
    let way = format!("{way:?}").to_lowercase();
    print!("{way:8}{:8.0} {:8.0} {:10.0} {:9.0}", cpu.best, cpu.median, speed.best, speed.median);
    println!("{:17.2} {:8.2} {:10.2} {:8.2}", of_cpu.best, of_cpu.median, of_speed.best, of_speed.median);
}

/// One figure of all rounds.
#[derive(Clone, Debug)]
pub(crate) struct Figures {
    /// The value of the round that other work on the machine disturbed least.
    pub(crate) best: f64,
    pub(crate) median: f64,
    /// The value of each round.
    rounds: Vec<f64>,
}

impl Figures {
    /// A figure that other work on the machine increases.
    pub(crate) fn lowest(rounds: impl Iterator<Item = f64>) -> Self {
        Self::ranked(rounds, f64::total_cmp)
    }

    /// A figure that other work on the machine decreases.
    pub(crate) fn highest(rounds: impl Iterator<Item = f64>) -> Self {
        Self::ranked(rounds, |one, other| other.total_cmp(one))
    }

    /// As a multiple of another: best by best, and round by round.
    pub(crate) fn over(&self, other: &Self) -> Self {
        let ratios = Self::lowest(iter::zip(&self.rounds, &other.rounds).map(|(one, other)| one / other));
        Self { best: self.best / other.best, ..ratios }
    }

    fn ranked(rounds: impl Iterator<Item = f64>, best_first: impl FnMut(&f64, &f64) -> Ordering) -> Self {
        let rounds: Vec<f64> = rounds.collect();
        let mut ranked = rounds.clone();
        ranked.sort_by(best_first);
        Self { best: ranked[0], median: ranked[ranked.len() / 2], rounds }
    }
}
