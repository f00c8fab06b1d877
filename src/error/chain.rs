//! [`Chain`]: an error with its causes, for logs.

use std::{error::Error, fmt, iter};

use crate::error::service::{ServiceFailure, StoreError};

/// Displays an error and then each of its causes, with `: ` in between. An error prints only its own text, so a log
/// that is to show the cause needs the chain.
pub(crate) struct Chain<'a>(pub(crate) &'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.0, f)?;
        causes(self.0).try_for_each(|cause| write!(f, ": {cause}"))
    }
}

/// The causes, outermost first. They end at a failure whose text says what its source says: the service's answer.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    iter::successors(cause(error), |error| cause(*error))
}

fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a (dyn Error + 'static)> {
    let says_all = error.downcast_ref().is_some_and(ServiceFailure::says_all)
        || error.downcast_ref().is_some_and(StoreError::says_all);
    if says_all { None } else { error.source() }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::error::{
        KinesisError,
        service::{Action, FailureKind},
    };

    fn service(source: ServiceFailure) -> KinesisError {
        KinesisError::Service { stream: "orders".into(), source }
    }

    // X3
    #[test]
    fn a_chain_shows_each_cause_once() {
        let failure = ServiceFailure::new(Action::ListShards, FailureKind::Unreachable, "no answer");
        let error = service(failure.caused_by(io::Error::other("Connection refused")));
        assert_eq!(error.to_string(), "stream orders: a call on Kinesis failed");
        assert_eq!(
            Chain(&error).to_string(),
            "stream orders: a call on Kinesis failed: kinesis:ListShards failed: no answer: Connection refused"
        );
    }

    #[test]
    fn a_chain_ends_at_a_failure_that_says_what_its_source_says() {
        let failure = ServiceFailure::new(Action::ListShards, FailureKind::Other, "InternalFailure: oh");
        let error = service(failure.summing_up(io::Error::other("service error")));
        assert_eq!(
            Chain(&error).to_string(),
            "stream orders: a call on Kinesis failed: kinesis:ListShards failed: InternalFailure: oh"
        );
        assert_eq!(error.source().unwrap().source().unwrap().to_string(), "service error");
        let store = StoreError::new("the table refused it").summing_up(io::Error::other("service error"));
        assert_eq!(Chain(&store).to_string(), "the table refused it");
        let store = StoreError::new("the table refused it").caused_by(io::Error::other("the disk is full"));
        assert_eq!(Chain(&store).to_string(), "the table refused it: the disk is full");
    }
}
