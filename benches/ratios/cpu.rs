//! CPU time instead of the wall clock, because other work on the machine affects the wall clock.

use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use rustix::time::{ClockId, clock_gettime};

static WALL: WallTime = WallTime;

/// The CPU time (user plus system) of this thread, which does all the work.
#[derive(Debug)]
pub(crate) struct CpuTime;

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        clock_gettime(ClockId::ThreadCPUTime).try_into().expect("the CPU time is not negative")
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
