//! The clock outside of the instances: the clock of the stream and of the observer.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tokio::time::Instant;

/// A clock. Clones show the same time.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The paused clock of the one runtime in which everything runs.
    Runtime(Instant),
    /// A clock in milliseconds that a driver moves, while every instance has a separate runtime and clock.
    Driven(Arc<AtomicU64>),
}

impl Clock {
    pub(crate) fn of_the_runtime() -> Self {
        Self::Runtime(Instant::now())
    }

    pub(crate) fn driven() -> Self {
        Self::Driven(Arc::default())
    }

    /// Milliseconds since the start.
    pub(crate) fn millis(&self) -> u64 {
        match self {
            Self::Runtime(start) => u64::try_from(start.elapsed().as_millis()).unwrap(),
            Self::Driven(millis) => millis.load(Ordering::Relaxed),
        }
    }

    /// Moves a driven clock.
    pub(crate) fn advance(&self, by: u64) {
        match self {
            Self::Runtime(_) => panic!("the runtime moves its clock"),
            Self::Driven(millis) => millis.fetch_add(by, Ordering::Relaxed),
        };
    }
}
