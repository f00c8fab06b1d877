//! The descriptor of a sink: which stream to publish to, and how.

use std::time::Duration;

use crate::{
    config::limits::{self, check_stream_name, within},
    error::KinesisError,
    publishing::{accumulator::PublishRules, record::PublishOrder},
};

/// The least bytes that a sink may hold.
const LEAST_IN_FLIGHT: usize = 64 << 10;

/// The KPL's default aggregate size, and the accepted range: every stream accepts records of 1 MiB.
#[cfg(feature = "kpl")]
const AGGREGATE: usize = 51_200;
#[cfg(feature = "kpl")]
const AGGREGATES: (usize, usize) = (1 << 10, 1 << 20);

/// A stream to publish to, with the settings of the sink. A `&str` converts to one with default settings.
///
/// Settings are checked when the descriptor is used, before anything is sent.
///
/// ```
/// use std::time::Duration;
///
/// use kinesis_stream::{PublishOrder, PublishTo};
///
/// let metrics = PublishTo::new("metrics").order(PublishOrder::Relaxed).linger(Duration::from_millis(100));
/// # drop(metrics);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a descriptor does nothing until it is published to"]
pub struct PublishTo {
    name: String,
    rules: PublishRules,
    max_in_flight_bytes: usize,
}

impl PublishTo {
    /// The stream of this name: 1 to 128 characters out of letters, digits, `_`, `.` and `-`.
    pub fn new(name: impl Into<String>) -> Self {
        let rules = PublishRules {
            order: PublishOrder::default(),
            linger: Duration::from_millis(10),
            request_records: limits::REQUEST_RECORDS,
            request_bytes: limits::REQUEST_BYTES,
            requests: 8,
            timeout: Duration::from_mins(2),
            attempts: u32::MAX,
            aggregate: None,
        };
        Self { name: name.into(), rules, max_in_flight_bytes: 64 << 20 }
    }

    /// Whether records of one partition key keep their order. Default: [`PublishOrder::ByKey`], which keeps it.
    /// [`PublishOrder`] states the cost.
    pub fn order(mut self, order: PublishOrder) -> Self {
        self.rules.order = order;
        self
    }

    /// How long a record waits for others to share its request: 0 to 1 minute. Default: 10 ms, about the time of one
    /// request. A full request goes out at once, and a flush sends everything at once.
    pub fn linger(mut self, linger: Duration) -> Self {
        self.rules.linger = linger;
        self
    }

    /// The maximum number of records in one request: 1 to 500. Default: 500, the limit of PutRecords.
    pub fn request_records(mut self, records: usize) -> Self {
        self.rules.request_records = records;
        self
    }

    /// The maximum bytes of one request, data and partition keys together, as the service counts: 1 KiB to 10 MiB.
    /// Default: 10 MiB, the limit of PutRecords. A larger record is sent alone. A server with a smaller limit refuses
    /// the whole request; the sink then sends it in halves. Set this limit to avoid that.
    pub fn request_bytes(mut self, bytes: usize) -> Self {
        self.rules.request_bytes = bytes;
        self
    }

    /// The maximum number of requests in flight: 1 to 1,000. Default: 8, which at 20 ms each is 200,000 records a
    /// second.
    pub fn max_requests(mut self, requests: usize) -> Self {
        self.rules.requests = requests;
        self
    }

    /// The maximum bytes of unsettled records that the sink holds: at least 64 KiB. Default: 64 MiB, six of the largest
    /// requests. Each record counts its data, its key, and 256 bytes of overhead. At the bound, senders wait; nothing
    /// is dropped. One record may exceed the bound by its own size.
    pub fn max_in_flight_bytes(mut self, bytes: usize) -> Self {
        self.max_in_flight_bytes = bytes;
        self
    }

    /// How long the sink retries a record, from the moment it accepted the record: 1 ms to 24 h. Default: 2 minutes,
    /// the time of four calls that hang. The sink waits for a request that is in flight at that time, so a result can
    /// be later by the [`call_timeout`](crate::KinesisBroker::call_timeout) (30 s by default).
    pub fn delivery_timeout(mut self, timeout: Duration) -> Self {
        self.rules.timeout = timeout;
        self
    }

    /// The maximum number of attempts for a record: at least 1. Default: unlimited, so that
    /// [`delivery_timeout`](Self::delivery_timeout) alone decides. An attempt does not count if the sink only splits a
    /// refused request into halves.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.rules.attempts = attempts;
        self
    }

    /// Aggregates records in the format of the Kinesis Producer Library (KPL). The waiting records of one partition key
    /// and one explicit hash key go out together, up to 51,200 bytes, the KPL's default. Off by default. A record that
    /// waits alone is sent plain.
    ///
    /// A shard accepts 1,000 records or 1 MiB a second, whichever comes first. Without aggregation, small records reach
    /// the record limit long before the byte limit. Order holds inside an aggregate and between aggregates. Each user
    /// record keeps its headers, in an envelope inside the aggregate.
    ///
    /// Readers of the stream must know the format, as the Kinesis Client Library does. **This crate's own
    /// [`Subscription`](crate::Subscription) does not deaggregate**: it reports each aggregate as
    /// [`KinesisError::AggregatedRecord`].
    ///
    /// Unlike in the KPL, records of different keys never share an aggregate. An aggregate goes to one shard, and each
    /// split or merge changes which keys belong to a shard. The KCL drops user records that are in the wrong shard. For
    /// many keys with few records each, aggregate them under a common key.
    #[cfg(feature = "kpl")]
    pub fn aggregate(self) -> Self {
        self.aggregate_up_to(AGGREGATE)
    }

    /// Like [`aggregate`](Self::aggregate), up to this size: 1 KiB to 1 MiB, key and format included.
    #[cfg(feature = "kpl")]
    pub fn aggregate_up_to(mut self, bytes: usize) -> Self {
        self.rules.aggregate = Some(bytes);
        self
    }

    /// The stream, how to send, and how many bytes to hold.
    pub(crate) fn checked(self) -> Result<(String, PublishRules, usize), KinesisError> {
        let rules = &self.rules;
        check_stream_name(&self.name)?;
        within("linger", rules.linger, Duration::ZERO, Duration::from_mins(1))?;
        within("request_records", rules.request_records, 1, limits::REQUEST_RECORDS)?;
        within("request_bytes", rules.request_bytes, 1 << 10, limits::REQUEST_BYTES)?;
        within("max_requests", rules.requests, 1, 1_000)?;
        within("max_in_flight_bytes", self.max_in_flight_bytes, LEAST_IN_FLIGHT, usize::MAX / 2)?;
        within("delivery_timeout", rules.timeout, Duration::from_millis(1), Duration::from_hours(24))?;
        within("max_attempts", rules.attempts, 1, u32::MAX)?;
        #[cfg(feature = "kpl")]
        check_aggregates(rules)?;
        Ok((self.name, self.rules, self.max_in_flight_bytes))
    }
}

#[cfg(feature = "kpl")]
fn check_aggregates(rules: &PublishRules) -> Result<(), KinesisError> {
    let Some(bytes) = rules.aggregate else { return Ok(()) };
    if rules.order == PublishOrder::Relaxed {
        return Err(KinesisError::invalid("aggregate", "aggregates are kept in order; given: the order Relaxed"));
    }
    within("aggregate_up_to", bytes, AGGREGATES.0, AGGREGATES.1)
}

impl From<&str> for PublishTo {
    fn from(name: &str) -> Self {
        Self::new(name)
    }
}

impl From<String> for PublishTo {
    fn from(name: String) -> Self {
        Self::new(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // P3, S2
    #[test]
    fn a_setting_outside_its_limits_is_refused_with_the_limit_and_the_value() {
        let to = || PublishTo::new("s");
        let table = [
            (PublishTo::new(""), "stream name", "1 to 128", "0"),
            (to().linger(Duration::from_secs(61)), "linger", "60s", "61s"),
            (to().request_records(0), "request_records", "1 to 500", "0"),
            (to().request_records(501), "request_records", "1 to 500", "501"),
            (to().request_bytes(1_023), "request_bytes", "1024 to 10485760", "1023"),
            (to().request_bytes((10 << 20) + 1), "request_bytes", "1024 to 10485760", "10485761"),
            (to().max_requests(0), "max_requests", "1 to 1000", "0"),
            (to().max_in_flight_bytes(65_535), "max_in_flight_bytes", "65536", "65535"),
            (to().delivery_timeout(Duration::ZERO), "delivery_timeout", "1ms", "0ns"),
            (to().max_attempts(0), "max_attempts", "1", "0"),
            (to().aggregate_up_to(1_000), "aggregate_up_to", "1024 to 1048576", "1000"),
            (to().aggregate().order(PublishOrder::Relaxed), "aggregate", "kept in order", "Relaxed"),
        ];
        for (to, what, limit, given) in table {
            let refusal = to.checked().unwrap_err().to_string();
            assert!(refusal.contains(what) && refusal.contains(limit) && refusal.contains(given), "{refusal}");
        }
        PublishTo::from("quakes").aggregate().checked().unwrap();
    }
}
