//! What a handler says of a batch, and what follows from it: values and a pure decision.

use std::{collections::BTreeMap, fmt::Display};

/// The records of a batch that a handler could not process: the answer of the handler of
/// [`Batches::process`](crate::Batches::process). It names records by their index in the batch; all others are done.
///
/// ```
/// use kinesis_stream::{Batch, BatchFailures};
///
/// /// The database says of each row whether it took it, and whether another attempt can help.
/// async fn insert(batch: &Batch) -> std::io::Result<BatchFailures> {
///     # async fn send(rows: Vec<&[u8]>) -> std::io::Result<Vec<Result<(), (bool, String)>>> { Ok(Vec::new()) }
///     let results = send(batch.payloads().map(|payload| payload.as_ref()).collect()).await?;
///     let mut failures = BatchFailures::none();
///     for (index, result) in results.into_iter().enumerate() {
///         match result {
///             Ok(()) => {}
///             Err((true, busy)) => failures.retry(index, busy),
///             Err((false, refused)) => failures.reject(index, refused),
///         }
///     }
///     Ok(failures)
/// }
/// ```
///
/// It converts from `()`, which means that all are done, and from a `Vec` of the indices to retry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "the answer of a handler says which records of a batch failed"]
pub struct BatchFailures {
    /// All records are given back, for this reason.
    all: Option<String>,
    by_index: BTreeMap<usize, RecordEnd>,
}

/// What becomes of one record of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RecordEnd {
    Done,
    Retry(Option<String>),
    Reject(String),
}

/// What follows from the answer of a handler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AfterCall {
    /// Settle the records like this.
    Settle(Vec<RecordEnd>),
    /// Call the handler with this many records, and then with the rest.
    Halve(usize),
}

impl BatchFailures {
    /// All records are done.
    pub fn none() -> Self {
        Self::default()
    }

    /// No record is done, and no smaller batch would help: the database is away, say. All are given back for this
    /// reason, as [`Batch::nack_because`](crate::Batch::nack_because) does.
    pub fn all(reason: impl Display) -> Self {
        Self { all: Some(reason.to_string()), by_index: BTreeMap::new() }
    }

    /// The record at this index failed and is given back, as [`Delivery::nack_because`](crate::Delivery::nack_because)
    /// does.
    pub fn retry(&mut self, index: usize, reason: impl Display) {
        self.by_index.insert(index, RecordEnd::Retry(Some(reason.to_string())));
    }

    /// The record at this index is rejected, as [`Delivery::reject`](crate::Delivery::reject) does.
    pub fn reject(&mut self, index: usize, reason: impl Display) {
        self.by_index.insert(index, RecordEnd::Reject(reason.to_string()));
    }

    /// What becomes of each of this many records. An index outside of the batch makes every index doubtful, so then
    /// all records are given back.
    fn ends(self, len: usize) -> Vec<RecordEnd> {
        if let Some(reason) = self.all {
            return vec![RecordEnd::Retry(Some(reason)); len];
        }
        let mut ends = vec![RecordEnd::Done; len];
        for (index, end) in self.by_index {
            let Some(place) = ends.get_mut(index) else {
                let reason = format!("the handler named record {index} in a batch of {len}");
                return vec![RecordEnd::Retry(Some(reason)); len];
            };
            *place = end;
        }
        ends
    }
}

/// What follows from the answer to a batch of this many records (A8).
pub(super) fn after_call(len: usize, answer: Result<BatchFailures, impl Display>) -> AfterCall {
    match answer {
        Ok(failures) => AfterCall::Settle(failures.ends(len)),
        Err(error) if len < 2 => AfterCall::Settle(vec![RecordEnd::Retry(Some(error.to_string())); len]),
        Err(_) => AfterCall::Halve(len.div_ceil(2)),
    }
}

impl From<()> for BatchFailures {
    fn from((): ()) -> Self {
        Self::none()
    }
}

impl From<Vec<usize>> for BatchFailures {
    fn from(failed: Vec<usize>) -> Self {
        failed.into_iter().collect()
    }
}

impl FromIterator<usize> for BatchFailures {
    /// The records at these indices are given back without a reason.
    fn from_iter<I: IntoIterator<Item = usize>>(failed: I) -> Self {
        let by_index = failed.into_iter().map(|index| (index, RecordEnd::Retry(None))).collect();
        Self { all: None, by_index }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, ops::Range};

    use proptest::prelude::*;

    use super::*;

    type Answer = Result<BatchFailures, &'static str>;

    fn retry(reason: &str) -> RecordEnd {
        RecordEnd::Retry(Some(reason.to_owned()))
    }

    // A8
    #[test]
    fn an_answer_settles_records_and_an_error_halves_the_batch_until_a_record_stands_alone() {
        let mut mixed = BatchFailures::from(vec![0]);
        mixed.retry(1, "busy");
        mixed.reject(2, "no digit");
        let mut twice = BatchFailures::none();
        twice.retry(0, "busy");
        twice.reject(0, "no digit");
        let outside = "the handler named record 2 in a batch of 2";
        let done = RecordEnd::Done;
        let settled = AfterCall::Settle;
        let table: Vec<(usize, Answer, AfterCall)> = vec![
            (3, Ok(().into()), settled(vec![done.clone(); 3])),
            (3, Ok(vec![1].into()), settled(vec![done.clone(), RecordEnd::Retry(None), done.clone()])),
            (
                4,
                Ok(mixed),
                settled(vec![RecordEnd::Retry(None), retry("busy"), RecordEnd::Reject("no digit".into()), done]),
            ),
            (1, Ok(twice), settled(vec![RecordEnd::Reject("no digit".into())])),
            (2, Ok(BatchFailures::all("away")), settled(vec![retry("away"); 2])),
            (2, Ok(vec![0, 2].into()), settled(vec![retry(outside); 2])),
            (1, Err("poison"), settled(vec![retry("poison")])),
            (2, Err("poison"), AfterCall::Halve(1)),
            (5, Err("poison"), AfterCall::Halve(3)),
            (0, Err("poison"), settled(Vec::new())),
        ];
        for (len, answer, expected) in table {
            assert_eq!(after_call(len, answer.clone()), expected, "{len}, {answer:?}");
        }
    }

    /// Which ranges of a batch a handler is called with, if it fails whenever one of the poison records is in it, and
    /// which records then stand alone.
    fn calls(batch: Range<usize>, poison: &BTreeSet<usize>) -> (Vec<Range<usize>>, BTreeSet<usize>) {
        let (mut left, mut calls, mut alone) = (vec![batch], Vec::new(), BTreeSet::new());
        while let Some(range) = left.pop() {
            calls.push(range.clone());
            let answer = if poison.range(range.clone()).next().is_some() { Err("poison") } else { Ok(().into()) };
            match after_call(range.len(), answer) {
                AfterCall::Halve(first) => {
                    left.extend([range.start + first..range.end, range.start..range.start + first]);
                }
                AfterCall::Settle(ends) if ends.contains(&RecordEnd::Done) => {}
                AfterCall::Settle(_) => alone.extend(range),
            }
        }
        (calls, alone)
    }

    // A8
    #[test]
    fn one_poison_record_costs_two_calls_for_each_halving() {
        let (calls, alone) = calls(0..8, &BTreeSet::from([5]));
        assert_eq!(calls, [0..8, 0..4, 4..8, 4..6, 4..5, 5..6, 6..8]);
        assert_eq!(alone, BTreeSet::from([5]));
    }

    proptest! {
        // A8
        #[test]
        fn exactly_the_poison_records_stand_alone_and_every_record_is_called_in_order(
            len in 1..200_usize,
            poison in prop::collection::btree_set(0..200_usize, 0..8),
        ) {
            let poison: BTreeSet<usize> = poison.into_iter().filter(|index| *index < len).collect();
            let (calls, alone) = calls(0..len, &poison);
            prop_assert_eq!(&alone, &poison);
            let ended = |call: &&Range<usize>| call.len() == 1 || poison.range((*call).clone()).next().is_none();
            let handled: Vec<usize> = calls.iter().filter(ended).cloned().flatten().collect();
            prop_assert_eq!(handled, (0..len).collect::<Vec<_>>());
            let depth = len.next_power_of_two().ilog2() as usize;
            prop_assert!(calls.len() <= 1 + 2 * depth * poison.len());
        }
    }
}
