//! When the service answered, by its own clock.

use std::sync::{Arc, Mutex};

use aws_sdk_kinesis::{
    config::{ConfigBag, Intercept, RuntimeComponents, interceptors::BeforeDeserializationInterceptorContextRef},
    error::BoxError,
    primitives::{DateTime, DateTimeFormat},
};

use crate::{kinesis::ServiceTime, util::mutex::lock};

/// Reads the `Date` header of one call's answer; clones share what was read.
///
/// The header has whole seconds, so the time is up to a second before the answer. It is the one clock to which
/// `AT_TIMESTAMP` refers, and the answers' bodies do not tell it.
#[derive(Clone, Debug, Default)]
pub(super) struct AnswerTime(Arc<Mutex<Option<ServiceTime>>>);

impl AnswerTime {
    /// None before an answer, and after one without a readable date.
    pub(super) fn get(&self) -> Option<ServiceTime> {
        *lock(&self.0)
    }
}

impl Intercept for AnswerTime {
    fn name(&self) -> &'static str {
        "AnswerTime"
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
    fn a_date_is_read_as_http_writes_it() {
        assert_eq!(parse("Sun, 06 Nov 1994 08:49:37 GMT"), Some(ServiceTime(784_111_777_000)));
        for odd in ["", "yesterday", "1994-11-06T08:49:37Z"] {
            assert_eq!(parse(odd), None, "{odd}");
        }
    }
}
