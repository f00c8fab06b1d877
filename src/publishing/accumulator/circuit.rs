//! Whether calls go out at all. A call that fails as a whole says nothing about its records: the service is out of reach,
//! or overloaded, and more calls would not help.

use tokio::time::Instant;

use super::backoff::Backoff;

#[derive(Debug, Default)]
pub(super) struct Circuit {
    opens: Option<Instant>,
    /// Failures in a row.
    failures: u32,
}

impl Circuit {
    /// When it opens; none if it is open.
    pub(super) fn opens(&self, now: Instant) -> Option<Instant> {
        self.opens.filter(|opens| *opens > now)
    }

    /// A call failed. Calls that were under way together fail together, and count once.
    pub(super) fn close(&mut self, now: Instant, backoff: &mut Backoff) {
        if self.opens(now).is_none() {
            self.failures = self.failures.saturating_add(1);
            self.opens = Some(now + backoff.pause(self.failures));
        }
    }

    /// A call was answered.
    pub(super) fn open(&mut self) {
        *self = Self::default();
    }
}
