//! What both benches share: two clients of a canned Kinesis, what a run costs, and the table.

use std::{error::Error, fmt::Debug, iter, time::Duration};

use aws_sdk_kinesis::{
    Client,
    config::{BehaviorVersion, Config, Credentials, Region, SharedCredentialsProvider, retry::RetryConfig},
};
use aws_types::SdkConfig;
use kinesis_stream::{ConnectedKinesisBroker, KinesisBroker};
use kinesis_stream_support::canned::Process;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::Instant;

pub(crate) type Result<T, E = Box<dyn Error + Send + Sync>> = std::result::Result<T, E>;

pub(crate) const STREAM: &str = "bench";

/// The bare client, whose retries are off, and this library's.
pub(crate) async fn clients(process: &Process) -> Result<(Client, ConnectedKinesisBroker)> {
    let keys = Credentials::new("test", "test", None, None, "bench");
    let config = SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .endpoint_url(process.endpoint())
        .region(Region::from_static("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(keys))
        .build();
    let once = Config::from(&config).to_builder().retry_config(RetryConfig::disabled()).build();
    Ok((Client::from_conf(once), KinesisBroker::from_config(config).connect().await?))
}

/// What a run cost.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    wall: Duration,
    cpu: Duration,
}

impl Cost {
    /// Of this run, and what came of it.
    pub(crate) async fn of<T>(run: impl Future<Output = Result<T>>) -> Result<(Self, T)> {
        let (started, spent) = (Instant::now(), cpu_time()?);
        let outcome = run.await?;
        Ok((Self { wall: started.elapsed(), cpu: cpu_time()?.saturating_sub(spent) }, outcome))
    }
}

/// The CPU time of this process, the user's and the system's.
fn cpu_time() -> Result<Duration> {
    Ok(clock_gettime(ClockId::ProcessCPUTime).try_into()?)
}

/// Prints what each way cost in all rounds; the first one is the bare one.
pub(crate) fn print_table<W: Copy + Debug>(ways: &[W], costs: &[Vec<Cost>], records: u32) {
    println!("         CPU a record, ns     records a second     CPU, to the bare loop's");
    println!("           least   median       most    median       least   median");
    for (way, measured) in iter::zip(ways, costs) {
        print_row(*way, records, measured, &costs[0]);
    }
}

fn print_row(way: impl Debug, records: u32, costs: &[Cost], bare: &[Cost]) {
    let [least, cpu] = ranked(costs.iter().map(|cost| nanos(cost.cpu / records)));
    let [fastest, wall] = ranked(costs.iter().map(|cost| nanos(cost.wall / records)));
    let [of_bare, _] = ranked(bare.iter().map(|cost| nanos(cost.cpu / records)));
    let [_, ratio] = ranked(iter::zip(costs, bare).map(|(cost, bare)| cost.cpu.div_duration_f64(bare.cpu)));
    let way = format!("{way:?}").to_lowercase();
    let (most, per_second) = (1e9 / fastest, 1e9 / wall);
    let least_ratio = least / of_bare;
    println!("{way:8}{least:8.0} {cpu:8.0} {most:10.0} {per_second:9.0} {least_ratio:11.2} {ratio:8.2}");
}

/// The least and the median.
fn ranked(values: impl Iterator<Item = f64>) -> [f64; 2] {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    [values[0], values[values.len() / 2]]
}

fn nanos(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e9
}
