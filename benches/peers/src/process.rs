//! One round of one reader, in a separate process.

use std::{
    env, fmt, fs, io,
    num::ParseIntError,
    process::{Command, Stdio},
    str::FromStr,
    time::Duration,
};

use clap::Args;
use kinesis_stream_support::canned::Canned;
use tokio::runtime;

use crate::{
    cost::{Cost, Result, STREAM},
    readers::{Connection, Reader},
    reading::records,
};

/// The stream name for the warm-up, so that it has separate leases and checkpoints.
const WARM_UP: &str = "warm-up";

/// The task of a process.
#[derive(Args, Clone, Debug)]
pub(crate) struct Reading {
    pub(crate) reader: Reader,
    pub(crate) endpoint: String,
    /// The canned stream, as `Canned` formats it.
    pub(crate) canned: Canned,
    /// How long to handle a page, in microseconds.
    #[arg(value_parser = micros)]
    pub(crate) handling: Duration,
    pub(crate) threads: usize,
}

fn micros(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(Duration::from_micros)
}

impl Reading {
    /// Starts this program again, and returns its measurement.
    pub(crate) fn in_a_process(&self) -> Result<Sample> {
        let Self { reader, endpoint, canned, handling, threads } = self;
        let mut command = Command::new(env::current_exe()?);
        command.args(["read", reader.name(), endpoint, &canned.to_string()]);
        command.args([handling.as_micros().to_string(), threads.to_string()]);
        let done = command.stderr(Stdio::inherit()).output()?;
        if !done.status.success() {
            return Err(io::Error::other(format!("{} failed", reader.name())).into());
        }
        String::from_utf8(done.stdout)?.parse()
    }

    /// Reads, in this process.
    pub(crate) fn run(&self) -> Result<Sample> {
        let runtime = runtime::Builder::new_multi_thread().worker_threads(self.threads).enable_all().build()?;
        let cost = runtime.block_on(self.measure())?;
        Ok(Sample { cost, peak_kib: peak_memory()? })
    }

    async fn measure(&self) -> Result<Cost> {
        let connection = Connection::open(self.reader, &self.endpoint).await?;
        self.check(connection.read(WARM_UP, &self.canned, self.handling).await?)?;
        let (cost, read) = Cost::of(connection.read(STREAM, &self.canned, self.handling)).await?;
        self.check(read)?;
        Ok(cost)
    }

    fn check(&self, read: u32) -> Result<()> {
        let all = records(&self.canned);
        if read == all {
            return Ok(());
        }
        Err(io::Error::other(format!("there are {all} records, but {} read {read}", self.reader.name())).into())
    }
}

/// The cost of one round of one reader. Processes exchange it as three numbers: nanoseconds of wall-clock time,
/// nanoseconds of CPU time, KiB of peak memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) cost: Cost,
    pub(crate) peak_kib: u32,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.cost.wall.as_nanos(), self.cost.cpu.as_nanos(), self.peak_kib)
    }
}

impl FromStr for Sample {
    type Err = Box<dyn std::error::Error + Send + Sync>;

    fn from_str(text: &str) -> Result<Self> {
        let [wall, cpu, peak] = text.split_whitespace().collect::<Vec<_>>()[..] else {
            return Err(io::Error::other(format!("three numbers are expected, not {text:?}")).into());
        };
        let nanos = |text: &str| text.parse().map(Duration::from_nanos);
        Ok(Self { cost: Cost { wall: nanos(wall)?, cpu: nanos(cpu)? }, peak_kib: peak.parse()? })
    }
}

/// The peak memory of this process in KiB (Linux only).
fn peak_memory() -> Result<u32> {
    let status = fs::read_to_string("/proc/self/status")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB"));
    Ok(peak.ok_or_else(|| io::Error::other("the system does not report peak memory"))?.parse()?)
}
