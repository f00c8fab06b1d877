//! Which work of a subscription an error interrupts, and whether waiting can end it: pure.

use crate::error::{
    KinesisError,
    service::{FailureKind, StoreErrorKind},
};

/// Work of a subscription that continues while it runs, and that can fail as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Work {
    ReadLeases,
    WriteLeases,
    ListShards,
    ReadShards,
    WriteDeadLetters,
}

/// Whether waiting can end a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cure {
    /// It may end by itself.
    Time,
    /// It may end by itself, or a person has to act: there are no credentials, or they are not accepted.
    Either,
    /// A person has to change something: a permission, a table, a key.
    Person,
}

impl KinesisError {
    /// The work that this error interrupts, and what can end it. None for errors that are no failed call.
    pub(crate) fn interrupts(&self) -> Option<(Work, Cure)> {
        match self {
            // It holds back one shard, and the others continue.
            Self::Store { source, .. } if source.kind() == StoreErrorKind::UnreadableRow => None,
            Self::Store { shard: None, source, .. } => Some((Work::ReadLeases, of_store(source.kind()))),
            Self::Store { shard: Some(_), source, .. } => Some((Work::WriteLeases, of_store(source.kind()))),
            Self::List { source, .. } => Some((Work::ListShards, of_call(source.kind()))),
            Self::Read { source, .. } => Some((Work::ReadShards, of_call(source.kind()))),
            Self::DeadLetter { source, .. } if source.kind() == FailureKind::NotFound => {
                Some((Work::WriteDeadLetters, Cure::Person))
            }
            Self::DeadLetter { source, .. } => Some((Work::WriteDeadLetters, of_call(source.kind()))),
            _ => None,
        }
    }
}

fn of_store(kind: StoreErrorKind) -> Cure {
    match kind {
        StoreErrorKind::Unusable => Cure::Person,
        StoreErrorKind::Credentials => Cure::Either,
        _ => Cure::Time,
    }
}

/// A stream or a shard that does not exist is no lasting failure of reading: a listing tells what became of it.
fn of_call(kind: FailureKind) -> Cure {
    match kind {
        FailureKind::Denied | FailureKind::KeyUnusable => Cure::Person,
        FailureKind::Credentials => Cure::Either,
        _ => Cure::Time,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::service::{Action, ServiceFailure, StoreError};

    // X2
    #[test]
    fn each_failed_call_names_its_work_and_what_can_end_it() {
        let store = |shard: Option<&str>, kind| KinesisError::Store {
            stream: "s".into(),
            shard: shard.map(Into::into),
            action: "reading the leases",
            source: StoreError::new("no").with_kind(kind),
        };
        let call = |kind| ServiceFailure::new(Action::GetRecords, kind, "no");
        let list = |kind| KinesisError::List { stream: "s".into(), source: call(kind) };
        let read = |kind| KinesisError::Read {
            stream: "s".into(),
            shard: "a".into(),
            failures: 1,
            gave_up: false,
            source: call(kind),
        };
        let letter = |kind| KinesisError::DeadLetter {
            stream: "s".into(),
            shard: "a".into(),
            sequence_number: "1".into(),
            dead_letter: "dead".into(),
            source: call(kind),
        };
        let table = [
            (store(None, StoreErrorKind::Unusable), Some((Work::ReadLeases, Cure::Person))),
            (store(None, StoreErrorKind::Temporary), Some((Work::ReadLeases, Cure::Time))),
            (store(Some("a"), StoreErrorKind::Unusable), Some((Work::WriteLeases, Cure::Person))),
            (store(Some("a"), StoreErrorKind::Temporary), Some((Work::WriteLeases, Cure::Time))),
            (store(None, StoreErrorKind::Credentials), Some((Work::ReadLeases, Cure::Either))),
            (store(Some("a"), StoreErrorKind::Credentials), Some((Work::WriteLeases, Cure::Either))),
            (store(Some("a"), StoreErrorKind::UnreadableRow), None),
            (list(FailureKind::Denied), Some((Work::ListShards, Cure::Person))),
            (list(FailureKind::Unavailable), Some((Work::ListShards, Cure::Time))),
            (list(FailureKind::Throttled), Some((Work::ListShards, Cure::Time))),
            (read(FailureKind::Denied), Some((Work::ReadShards, Cure::Person))),
            (read(FailureKind::KeyUnusable), Some((Work::ReadShards, Cure::Person))),
            (read(FailureKind::Credentials), Some((Work::ReadShards, Cure::Either))),
            (read(FailureKind::NotFound), Some((Work::ReadShards, Cure::Time))),
            (read(FailureKind::Unreachable), Some((Work::ReadShards, Cure::Time))),
            (letter(FailureKind::NotFound), Some((Work::WriteDeadLetters, Cure::Person))),
            (letter(FailureKind::Denied), Some((Work::WriteDeadLetters, Cure::Person))),
            (letter(FailureKind::Other), Some((Work::WriteDeadLetters, Cure::Time))),
            (KinesisError::NotConnected, None),
        ];
        for (error, interrupts) in table {
            assert_eq!(error.interrupts(), interrupts, "{error:?}");
        }
    }
}
