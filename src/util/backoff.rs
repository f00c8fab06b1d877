//! Pauses that double.

use std::time::Duration;

/// The pause after the `nth` failure in a row: `first`, doubled with each failure, at most `longest`.
pub(crate) fn doubled(first: Duration, longest: Duration, nth: u32) -> Duration {
    let times = 1_u32.checked_shl(nth.saturating_sub(1)).unwrap_or(u32::MAX);
    first.saturating_mul(times).min(longest)
}
