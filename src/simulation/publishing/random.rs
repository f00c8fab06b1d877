//! Random failures (P3).

use std::collections::BTreeSet;

use futures::future::join_all;
use proptest::{collection::vec, prelude::*};
use tokio::{runtime::Builder, time::timeout};

use super::{
    super::put_service::{Outcome, PutService},
    LONG, assert_in_order, records, result_texts, sink, to,
};

use crate::{error::service::FailureKind, kinesis::PutEntry};

#[derive(Clone, Debug)]
enum PlannedOutcome {
    Stored,
    Fails(Vec<bool>, FailureKind),
    Refused(FailureKind),
    Lost,
}

fn planned_outcome() -> impl Strategy<Value = PlannedOutcome> {
    let passing =
        || prop_oneof![Just(FailureKind::Throttled), Just(FailureKind::Other), Just(FailureKind::Unreachable)];
    prop_oneof![
        3 => Just(PlannedOutcome::Stored),
        4 => (vec(any::<bool>(), 1..6), passing()).prop_map(|(mask, kind)| PlannedOutcome::Fails(mask, kind)),
        2 => passing().prop_map(PlannedOutcome::Refused),
        1 => Just(PlannedOutcome::Refused(FailureKind::Rejected)),
        2 => Just(PlannedOutcome::Lost),
    ]
}

fn outcome(planned_outcome: Option<&PlannedOutcome>, entries: &[PutEntry]) -> Outcome {
    match planned_outcome {
        None | Some(PlannedOutcome::Stored) => Outcome::Stored,
        // A record that is refused alone fails for good. Another test covers that.
        Some(PlannedOutcome::Refused(FailureKind::Rejected)) if entries.len() == 1 => Outcome::Stored,
        Some(PlannedOutcome::Refused(kind)) => Outcome::Refused(*kind),
        Some(PlannedOutcome::Lost) => Outcome::Lost(FailureKind::Unreachable),
        Some(PlannedOutcome::Fails(mask, kind)) => {
            let fails = mask.iter().cycle().take(entries.len()).enumerate();
            Outcome::Fails(fails.filter(|(_, fails)| **fails).map(|(place, _)| (place, *kind)).collect())
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    // P3
    #[test]
    fn under_random_failures_every_record_gets_one_result_and_keys_keep_their_order(
        keys in "[a-e]{0,60}",
        request_records in 1..6_usize,
        max_requests in 1..4_usize,
        lucks in vec(planned_outcome(), 0..40),
    ) {
        let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let put_service = PutService::new(move |k, entries| outcome(lucks.get(k), entries));
            let to = to().request_records(request_records).max_requests(max_requests).max_in_flight_bytes(64 << 10);
            let sink = sink(&put_service, to);
            let results = timeout(LONG, join_all(records(&keys).into_iter().map(|record| sink.publish(record))));
            let results = results.await.expect("every record has a result");
            prop_assert!(results.iter().all(Result::is_ok), "{:?}", result_texts(&results));
            let stored: BTreeSet<_> = put_service.texts().into_iter().collect();
            prop_assert_eq!(stored.len(), keys.len());
            assert_in_order(&put_service.stored());
            prop_assert_eq!(sink.stats().in_flight, 0);
            Ok(())
        })?;
    }
}
