//! A network on which calls fail, arrive late, and lose their answers.

use std::sync::Arc;

use kinesis_stream::{DynamoDbLeaseStore, Lease, LeaseStore, Write, contract};
use kinesis_stream_support::{AwsError, Faults, Op};
use tokio::time::Duration;

use crate::lease_table::{LeaseTable, after, held, lease, row, taken, taking};

const BROKEN: AwsError = AwsError::INTERNAL_FAILURE;

/// A text that only the requests of takes contain.
const TAKE: &str = ":takeId";

#[tokio::test(flavor = "multi_thread")]
async fn the_store_fulfils_the_contract_while_calls_fail_arrive_late_and_lose_the_answers_of_takes() {
    let table = LeaseTable::new().await;
    let faults = Faults::default();
    for (seed, op) in (0..).zip([Op::UpdateItem, Op::DeleteItem, Op::GetItem, Op::Scan]) {
        faults.on(op).some(30, seed).fail(BROKEN);
        faults.on(op).some(20, seed + 10).fail(AwsError::THROTTLED);
        faults.on(op).some(30, seed + 20).delay(Duration::from_millis(5));
    }
    let lost = faults.on(Op::UpdateItem).saying(TAKE).some(100, 30).apply_then_fail(BROKEN);
    contract::run(Arc::new(table.through(&faults))).await;
    assert!(lost.hits() >= 50, "{}", lost.hits());
}

/// The fault of the n-th write.
#[derive(Clone, Copy, Debug)]
enum WriteFault {
    Fails,
    ArrivesLate,
    LosesItsAnswer,
}

fn plan(faults: &Faults, nth: usize, fault: WriteFault) {
    let scope = faults.on(Op::UpdateItem).nth(nth);
    match fault {
        WriteFault::Fails => scope.fail(BROKEN),
        WriteFault::ArrivesLate => scope.delay(Duration::from_millis(20)),
        WriteFault::LosesItsAnswer => scope.apply_then_fail(BROKEN),
    };
}

/// Take, checkpoint, renew, checkpoint, renew, release. Repeats each call once if it fails.
async fn live(store: &DynamoDbLeaseStore) {
    let take = taking("one", None);
    let taken = match store.take(&take).await {
        Ok(answer) => answer,
        Err(_) => store.take(&take).await.unwrap(),
    };
    // A take that is repeated as a new call finds the row already taken.
    let (Write::Applied(lease) | Write::Refused(Some(lease))) = taken else { panic!("the row must exist") };
    assert_eq!((lease.owner.as_deref(), lease.epoch), (Some("one"), 1));
    let one = held("one", 1);
    for number in ["5", "6"] {
        let applied = match store.checkpoint(&one, &after(number)).await {
            Ok(answer) => answer,
            Err(_) => store.checkpoint(&one, &after(number)).await.unwrap(),
        };
        assert_eq!(applied, Write::Applied(()));
        let applied = match store.renew(&one).await {
            Ok(answer) => answer,
            Err(_) => store.renew(&one).await.unwrap(),
        };
        assert_eq!(applied, Write::Applied(()));
    }
    if store.release(&one).await.is_err() {
        store.release(&one).await.unwrap();
    }
}

#[tokio::test]
async fn any_fault_of_any_write_leaves_the_same_final_row() {
    let table = LeaseTable::new().await;
    for fault in [WriteFault::Fails, WriteFault::ArrivesLate, WriteFault::LosesItsAnswer] {
        for nth in 1..=6 {
            for sdk_retries in [true, false] {
                let faults = Faults::default();
                plan(&faults, nth, fault);
                let store = if sdk_retries { table.through(&faults) } else { table.once_through(&faults) };
                live(&store).await;
                let end = lease(&store).await;
                let mut expected = end.clone().with_owner(None).with_checkpoint(Some(after("6")));
                expected.epoch = 1;
                assert_eq!(end, expected, "{fault:?} at write {nth}");
                // Each write increments the counter once. A write whose answer was lost may increment it twice.
                assert!((6..=7).contains(&end.counter), "{fault:?} at write {nth}: {}", end.counter);
                assert_eq!(store.delete(&end.key, end.seen()).await.unwrap(), Write::Applied(()));
            }
        }
    }
}

#[tokio::test]
async fn a_take_whose_answer_is_lost_is_recognized_even_after_another_write() {
    let table = LeaseTable::new().await;
    let faults = Faults::default();
    faults.on(Op::UpdateItem).first(1).apply_then_fail(BROKEN);
    // The second attempt waits until another instance has requested the shard.
    let second = faults.on(Op::UpdateItem).nth(2).hold();
    let store = table.through(&faults);
    let take = tokio::spawn(async move { store.take(&taking("one", None)).await });
    faults.called(Op::UpdateItem, 2).await;
    let other = table.store();
    let seen = lease(&other).await.seen();
    assert_eq!(other.ask(&crate::lease_table::key(), seen, "two").await.unwrap(), Write::Applied(()));
    second.lift();
    let Write::Applied(taken) = take.await.unwrap().unwrap() else { panic!("the take must be applied") };
    assert_eq!((taken.epoch, taken.counter, taken.wanted_by.as_deref()), (1, 2, Some("two")));
}

// E2, E4
#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_processes_with_the_same_owner_id_holds_each_epoch_even_if_answers_are_lost() {
    let table = LeaseTable::new().await;
    let reader = table.store();
    for _ in 0..50 {
        let seen = row(&reader).await.as_ref().map(Lease::seen);
        let take = async || {
            let faults = Faults::default();
            faults.on(Op::UpdateItem).first(2).apply_then_fail(BROKEN);
            table.through(&faults).take(&taking("the same", seen)).await.unwrap()
        };
        let (one, two) = tokio::join!(take(), take());
        let applied = [&one, &two].into_iter().filter(|answer| matches!(answer, Write::Applied(_))).count();
        assert_eq!(applied, 1, "{one:?} {two:?}");
    }
}

#[tokio::test]
async fn a_repeated_ask_or_delete_is_refused_with_the_current_row() {
    let table = LeaseTable::new().await;
    let faults = Faults::default();
    let store = table.through(&faults);
    let one = taken(&store, "one").await;
    let seen = lease(&store).await.seen();
    faults.on(Op::UpdateItem).nth(1).apply_then_fail(BROKEN);
    let Write::Refused(Some(marked)) = store.ask(&one.key, seen, "two").await.unwrap() else { panic!("repeated") };
    assert_eq!(marked.wanted_by.as_deref(), Some("two"));
    faults.on(Op::DeleteItem).nth(1).apply_then_fail(BROKEN);
    assert_eq!(store.delete(&one.key, marked.seen()).await.unwrap(), Write::Refused(None));
}
