//! The times of calls, for the feature `metrics`. Without the feature a [`Meter`] measures nothing.
//!
//! Everything else that the feature exports comes from the statistics: see `telemetry.rs`.

use std::{sync::Arc, time::Duration};

/// Histogram of the time of calls on the lease store.
#[cfg(feature = "metrics")]
pub(crate) const STORE_CALLS: &str = "kinesis_consumer_store_call_seconds";
/// Histogram of the time of reads.
#[cfg(feature = "metrics")]
pub(crate) const READS: &str = "kinesis_consumer_read_seconds";

/// Records the times of calls under the names of a stream and a consumer.
#[derive(Debug)]
pub(crate) struct Meter {
    #[cfg(feature = "metrics")]
    names: [(&'static str, Arc<str>); 2],
}

#[cfg(feature = "metrics")]
impl Meter {
    pub(crate) fn new(stream: &Arc<str>, consumer: &Arc<str>) -> Self {
        Self { names: [("stream", Arc::clone(stream)), ("consumer", Arc::clone(consumer))] }
    }

    /// Records a call on the lease store.
    pub(crate) fn store_call(&self, call: &'static str, took: Duration, succeeded: bool) {
        let outcome = if succeeded { "ok" } else { "error" };
        metrics::histogram!(STORE_CALLS, self.labels([("call", call), ("outcome", outcome)])).record(took);
    }

    /// Records a GetRecords call.
    pub(crate) fn read(&self, took: Duration, succeeded: bool) {
        let outcome = if succeeded { "ok" } else { "error" };
        metrics::histogram!(READS, self.labels([("outcome", outcome)])).record(took);
    }

    fn labels<const N: usize>(&self, more: [(&'static str, &'static str); N]) -> Vec<metrics::Label> {
        let names = self.names.iter().map(|(key, name)| metrics::Label::new(*key, Arc::clone(name)));
        names.chain(more.map(|(key, value)| metrics::Label::new(key, value))).collect()
    }
}

#[cfg(not(feature = "metrics"))]
#[expect(clippy::unused_self, reason = "the same methods as with the feature")]
impl Meter {
    pub(crate) fn new(_: &Arc<str>, _: &Arc<str>) -> Self {
        Self {}
    }

    pub(crate) fn store_call(&self, _: &'static str, _: Duration, _: bool) {}

    pub(crate) fn read(&self, _: Duration, _: bool) {}
}
