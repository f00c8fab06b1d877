//! Wall time. Only this file reads it, for two uses that the monotonic clock cannot serve: to refuse a start in the
//! future, and as a last resort if the service does not report its own time. It never decides about a lease.

use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970 (UTC) by this host's clock, which may be wrong.
#[expect(clippy::disallowed_methods, reason = "the one place that reads wall time")]
pub(crate) fn unix_millis() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
