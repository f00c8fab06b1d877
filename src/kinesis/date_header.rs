//! The time of a response by the service's own clock.
//!
//! **Why the service's clock.** A shard opened at LATEST that has read no record is reopened at the time of opening.
//! That time comes from the `Date` header of the service's response, minus one second, because a local clock may
//! run ahead. Reopening can repeat records of that second; it loses none.

use std::sync::{Arc, Mutex};

use aws_sdk_kinesis::{
    config::{ConfigBag, Intercept, RuntimeComponents, interceptors::BeforeDeserializationInterceptorContextRef},
    error::BoxError,
    primitives::{DateTime, DateTimeFormat},
};

use crate::{kinesis::ServiceTime, util::mutex::lock};

/// An interceptor that reads the `Date` header of one call's response. Clones share the time.
///
/// The header has whole seconds, so the time is up to a second before the response. `AT_TIMESTAMP` refers to this
/// clock, and no response body contains its time.
#[derive(Clone, Debug, Default)]
pub(super) struct ResponseTime(Arc<Mutex<Option<ServiceTime>>>);

impl ResponseTime {
    /// `None` before the response arrives, and after one without a readable date.
    pub(super) fn get(&self) -> Option<ServiceTime> {
        *lock(&self.0)
    }
}

impl Intercept for ResponseTime {
    fn name(&self) -> &'static str {
        "ResponseTime"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let time = context.response().headers().get("date").and_then(parse);
        *lock(&self.0) = time;
        Ok(())
    }
}

fn parse(date: &str) -> Option<ServiceTime> {
    let date = DateTime::from_str(date, DateTimeFormat::HttpDate).ok()?;
    date.to_millis().ok().map(ServiceTime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_is_parsed_in_the_format_of_http() {
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT"), Some(ServiceTime(784_111_777_000)));
        for odd in ["", "yesterday", "1994-11-06T08:49:37Z"] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }
}
