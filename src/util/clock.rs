//! Wall time. It is read here alone, for two things that cannot be had from the monotonic clock: to refuse a start in the
//! future, and as a last resort where the service does not tell its own time. It never decides about a lease.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970 by this host's clock, which may be wrong.
#[expect(clippy::disallowed_methods, reason = "the one place that reads wall time")]
pub(crate) fn unix_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
