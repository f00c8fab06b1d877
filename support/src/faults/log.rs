//! The log of calls.

use std::collections::VecDeque;

use tokio::time::Duration;

use super::call::Call;
use crate::op::Op;

/// How many calls the log keeps, and how many bytes of requests. Beyond either limit it drops the oldest.
const MAX_CALLS: usize = 100_000;
const MAX_BYTES: usize = 64 << 20;

/// Calls in order of arrival, within bounds.
#[derive(Debug, Default)]
pub(super) struct Log {
    calls: VecDeque<Call>,
    bytes: usize,
    overflowed: bool,
}

impl Log {
    pub(super) fn push(&mut self, call: Call) {
        self.bytes += call.size();
        self.calls.push_back(call);
        while self.calls.len() > MAX_CALLS || self.bytes > MAX_BYTES {
            self.bytes -= self.calls.pop_front().map_or(self.bytes, |call| call.size());
            self.overflowed = true;
        }
    }

    /// # Panics
    /// The log dropped calls: a count of the rest would be wrong.
    pub(super) fn of(&self, op: Op) -> impl Iterator<Item = &Call> {
        assert!(!self.overflowed, "the log overflowed: clear it from time to time");
        self.calls.iter().filter(move |call| call.op() == op)
    }
}

/// The highest number of calls within any one second.
pub(super) fn busiest_second<'a>(calls: impl Iterator<Item = &'a Call>) -> usize {
    let mut window = VecDeque::new();
    let mut most = 0;
    for call in calls {
        window.push_back(call.at());
        while window.front().is_some_and(|first| call.at() - *first >= Duration::from_secs(1)) {
            window.pop_front();
        }
        most = most.max(window.len());
    }
    most
}
