//! Which work of a subscription fails and since when, and which records were lost: pure, with the time passed in.
//!
//! **A failure that only a person can end is said again and again, but rarely.** Each failed call is an error of class
//! `Transient`, which a tolerant pipeline does not see. Once such failures have lasted for the patience of the
//! subscription, one error of class `Lasting` per patience takes the place of a transient one.
//!
//! **Only a success ends a failure.** A throttle or a timeout in between tells nothing about a missing permission.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::time::Instant;

use crate::{
    error::{
        ErrorClass, KinesisError,
        work::{Cure, Work},
    },
    state::stats::{ErrorCounts, OngoingFailure},
};

/// See the module.
#[derive(Debug)]
pub(crate) struct Failures {
    patience: Duration,
    ongoing: BTreeMap<Work, Ongoing>,
    errors: ErrorCounts,
    last_loss: Option<(KinesisError, Instant)>,
}

#[derive(Debug)]
struct Ongoing {
    since: Instant,
    /// The first failure of these that only a person can end.
    needs_person_since: Option<Instant>,
    /// When the stream was told last that it lasts.
    told_at: Option<Instant>,
    last: KinesisError,
}

impl Failures {
    pub(crate) fn new(patience: Duration) -> Self {
        Self { patience, ongoing: BTreeMap::new(), errors: ErrorCounts::default(), last_loss: None }
    }

    /// Notes an error. Returns the error to yield: a lasting one if it is time to say that.
    pub(crate) fn failed(&mut self, error: KinesisError, now: Instant) -> KinesisError {
        if error.class() == ErrorClass::Loss {
            self.last_loss = Some((error.clone(), now));
        }
        let error = match error.interrupts() {
            // Single reads fail while others succeed, so only a cause that concerns all of them counts.
            None | Some((Work::ReadShards, Cure::Time)) => error,
            Some((work, cure)) => self.interrupted(work, cure, error, now),
        };
        self.count(&error);
        error
    }

    /// Counts an error by its class.
    pub(crate) fn count(&mut self, error: &KinesisError) {
        let count = match error.class() {
            ErrorClass::Transient => &mut self.errors.transient,
            ErrorClass::Loss => &mut self.errors.loss,
            ErrorClass::Lasting => &mut self.errors.lasting,
            ErrorClass::Record => &mut self.errors.record,
            ErrorClass::Fatal => &mut self.errors.fatal,
        };
        *count += 1;
    }

    fn interrupted(&mut self, work: Work, cure: Cure, error: KinesisError, now: Instant) -> KinesisError {
        let patience = self.patience;
        let new = || Ongoing { since: now, needs_person_since: None, told_at: None, last: error.clone() };
        let ongoing = self.ongoing.entry(work).or_insert_with(new);
        ongoing.last = error.clone();
        if cure == Cure::Time {
            return error;
        }
        let since = *ongoing.needs_person_since.get_or_insert(now);
        if now < ongoing.told_at.unwrap_or(since) + patience {
            return error;
        }
        ongoing.told_at = Some(now);
        error.lasting(now - since)
    }

    /// Notes that a call of this work succeeded.
    pub(crate) fn succeeded(&mut self, work: Work) {
        self.ongoing.remove(&work);
    }

    /// What fails now.
    pub(super) fn ongoing(&self, now: Instant) -> Vec<OngoingFailure> {
        let ongoing = self.ongoing.values();
        let failing = |ongoing: &Ongoing| OngoingFailure {
            error: ongoing.last.clone(),
            lasted: now - ongoing.since,
            needs_person: ongoing.needs_person_since.is_some(),
        };
        ongoing.map(failing).collect()
    }

    /// How many errors of each class there were.
    pub(super) fn errors(&self) -> ErrorCounts {
        self.errors
    }

    /// The last loss, with its age.
    pub(super) fn last_loss(&self, now: Instant) -> Option<(KinesisError, Duration)> {
        self.last_loss.as_ref().map(|(error, at)| (error.clone(), now - *at))
    }
}

impl KinesisError {
    fn lasting(self, lasted: Duration) -> Self {
        let (Self::Store { stream, .. }
        | Self::List { stream, .. }
        | Self::Read { stream, .. }
        | Self::DeadLetter { stream, .. }) = &self
        else {
            return self;
        };
        Self::Lasting { stream: Arc::clone(stream), lasted, source: Arc::new(self) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::service::{Action, FailureKind, ServiceFailure};

    fn list(kind: FailureKind) -> KinesisError {
        KinesisError::List { stream: "s".into(), source: ServiceFailure::new(Action::ListShards, kind, "no") }
    }

    // X2
    #[test]
    fn a_failure_that_only_a_person_can_end_becomes_lasting_once_per_patience() {
        let (denied, timeout) = (FailureKind::Denied, FailureKind::Unreachable);
        // Second, what happens then (None is a success), and how long it has lasted if the error is a lasting one.
        let table = [
            (0, Some(timeout), None),
            (5, Some(denied), None),
            (65, Some(timeout), None),
            (124, Some(denied), None),
            (125, Some(denied), Some(120)),
            (126, Some(denied), None),
            (244, Some(timeout), None),
            (246, Some(timeout), None),
            (247, Some(denied), Some(242)),
            (366, Some(denied), None),
            (367, Some(denied), Some(362)),
            (368, None, None),
            (500, Some(denied), None),
            (619, Some(denied), None),
            (620, Some(denied), Some(120)),
        ];
        let (mut failures, start) = (Failures::new(Duration::from_mins(2)), Instant::now());
        for (second, event, expected) in table {
            let now = start + Duration::from_secs(second);
            let lasted = match event {
                None => {
                    failures.succeeded(Work::ListShards);
                    assert!(failures.ongoing(now).is_empty());
                    None
                }
                Some(kind) => match failures.failed(list(kind), now) {
                    KinesisError::Lasting { lasted, .. } => Some(lasted.as_secs()),
                    error => {
                        assert_eq!(error.class(), ErrorClass::Transient);
                        None
                    }
                },
            };
            assert_eq!(lasted, expected, "at {second} s");
        }
    }

    // L8
    #[test]
    fn what_fails_is_listed_with_its_age_until_it_works_again() {
        let (mut failures, start) = (Failures::new(Duration::from_mins(2)), Instant::now());
        let at = |second| start + Duration::from_secs(second);
        failures.failed(list(FailureKind::Unreachable), at(0));
        failures.failed(list(FailureKind::Throttled), at(7));
        let ongoing = failures.ongoing(at(10));
        assert_eq!((ongoing.len(), ongoing[0].lasted.as_secs()), (1, 10));
        assert!(
            matches!(&ongoing[0].error, KinesisError::List { source, .. } if source.kind() == FailureKind::Throttled)
        );
        failures.succeeded(Work::ReadLeases);
        assert_eq!(failures.ongoing(at(10)).len(), 1);
        failures.succeeded(Work::ListShards);
        assert!(failures.ongoing(at(11)).is_empty());
    }

    // X2
    #[test]
    fn losses_are_counted_and_dated() {
        let (mut failures, start) = (Failures::new(Duration::from_mins(2)), Instant::now());
        assert!(failures.last_loss(start).is_none());
        failures.failed(KinesisError::StreamRecreated { stream: "s".into() }, start);
        failures
            .failed(KinesisError::ShardGone { stream: "s".into(), shard: "a".into() }, start + Duration::from_secs(1));
        let (error, age) = failures.last_loss(start + Duration::from_secs(5)).unwrap();
        assert!(matches!(error, KinesisError::ShardGone { .. }));
        assert_eq!(age.as_secs(), 4);
        failures.failed(list(FailureKind::Throttled), start);
        failures.count(&KinesisError::NotConnected);
        assert_eq!(failures.errors(), ErrorCounts { loss: 2, transient: 1, fatal: 1, ..ErrorCounts::default() });
    }
}
