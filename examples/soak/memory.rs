//! Samples the memory of this process, and the bytes that the subscription holds.

use std::{fmt, fs, time::Duration};

use kinesis_stream::StatsHandle;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::phase::{Clock, Phase};

/// How many samples to take in a run.
const SAMPLES: u32 = 600;

/// How many samples to print.
const LINES: usize = 24;

/// The largest difference between the first and the last third of a run that does not count as growth: a percentage,
/// and at least this many bytes. An allocator keeps freed memory for reuse, and a process needs time to warm up.
const TOLERANCE_PERCENT: u64 = 10;
const TOLERANCE_BYTES: u64 = 2 << 20;

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) at: Duration,
    pub(crate) phase: Phase,
    /// The memory of the process in bytes; 0 if the system does not report it.
    pub(crate) resident: u64,
    /// The bytes that the subscription holds.
    pub(crate) held: u64,
    pub(crate) in_flight: usize,
    pub(crate) shards: usize,
}

/// Takes samples at a fixed interval.
#[derive(Debug)]
pub(crate) struct MemorySampler {
    stats: StatsHandle,
    clock: Clock,
    every: Duration,
    samples: Vec<Sample>,
}

impl MemorySampler {
    pub(crate) fn start(stats: StatsHandle, clock: Clock, length: Duration) -> Self {
        // With room for the time after the run.
        let samples = Vec::with_capacity(2 * SAMPLES as usize);
        Self { stats, clock, every: (length / SAMPLES).max(Duration::from_millis(20)), samples }
    }

    /// Samples until `enough` is cancelled.
    pub(crate) async fn run(mut self, enough: CancellationToken) -> Self {
        let mut ticks = interval(self.every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while enough.run_until_cancelled(ticks.tick()).await.is_some() {
            let sample = self.sample();
            self.samples.push(sample);
        }
        self
    }

    fn sample(&self) -> Sample {
        let stats = self.stats.snapshot();
        Sample {
            at: self.clock.elapsed(),
            phase: self.clock.phase(),
            resident: resident().unwrap_or_default(),
            held: stats.bytes_held as u64,
            in_flight: stats.shards.iter().map(|shard| shard.in_flight).sum(),
            shards: stats.shards.len(),
        }
    }

    pub(crate) fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Prints the samples as a table.
    pub(crate) fn print(&self) {
        println!("     time  phase        resident, MiB   held, KiB  in flight  shards");
        for sample in self.samples.iter().step_by(self.samples.len().div_ceil(LINES).max(1)) {
            let Sample { at, phase, held, in_flight, shards, .. } = sample;
            let (at, phase, resident) = (at.as_secs_f64(), format!("{phase:?}"), mebibytes(sample.resident));
            println!("{at:7.1} s  {phase:12} {resident:13.1} {:11} {in_flight:10} {shards:7}", held >> 10);
        }
    }

    /// Compares the first third with the last.
    pub(crate) fn growth(&self) -> Growth {
        let third = self.samples.len() / 3;
        let median = |samples: &[Sample]| {
            let mut resident: Vec<u64> = samples.iter().map(|sample| sample.resident).collect();
            resident.sort_unstable();
            resident.get(resident.len() / 2).copied().unwrap_or_default()
        };
        Growth { first: median(&self.samples[..third]), last: median(&self.samples[self.samples.len() - third..]) }
    }
}

/// The medians of the memory in the first and the last third of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Growth {
    first: u64,
    last: u64,
}

impl fmt::Display for Growth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tolerance = (self.first * TOLERANCE_PERCENT / 100).max(TOLERANCE_BYTES);
        let (first, last) = (mebibytes(self.first), mebibytes(self.last));
        let verdict = match self.last {
            0 => "this system does not report the memory of a process",
            last if last > self.first + tolerance => "memory GREW",
            _ => "memory did not grow",
        };
        let tolerance = mebibytes(tolerance);
        write!(
            f,
            "{verdict}: median of the first third {first:.1} MiB, of the last {last:.1} (tolerance {tolerance:.1})"
        )
    }
}

pub(crate) fn mebibytes(bytes: u64) -> f64 {
    f64::from(u32::try_from(bytes >> 10).unwrap_or(u32::MAX)) / 1024.0
}

/// The resident memory of this process, in bytes.
fn resident() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}
