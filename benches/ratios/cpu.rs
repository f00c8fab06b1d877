//! CPU time in the place of the wall clock, which other work on the machine would move.

use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use rustix::time::{ClockId, clock_gettime};

static WALL: WallTime = WallTime;

/// What this thread, in which all the work is done, was given of the processor, by user and system.
#[derive(Debug)]
pub(crate) struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        clock_gettime(ClockId::ThreadCPUTime).try_into().expect("a clock that began at zero")
    }

    fn end(&self, started: Duration) -> Duration {
        self.start().saturating_sub(started)
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WALL.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WALL.formatter()
    }
}
