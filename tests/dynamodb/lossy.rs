//! A line on which calls fail, come late, and lose their answers.

use std::sync::Arc;

use kinesis_stream::{DynamoDbLeaseStore, Lease, LeaseStore, Write, contract};
use kinesis_stream_support::{AwsError, Faults, Op};
use tokio::time::Duration;

use crate::ground::{Ground, after, held, lease, row, taken, taking};

const BROKEN: AwsError = AwsError::INTERNAL_FAILURE;

/// What takes have in their requests, and nothing else has.
const TAKE: &str = ":takeId";

#[tokio::test(flavor = "multi_thread")]
async fn the_store_keeps_the_contract_though_calls_fail_come_late_and_answers_of_takes_are_lost() {
    let ground = Ground::new().await;
    let faults = Faults::default();
    for (seed, op) in (0..).zip([Op::UpdateItem, Op::DeleteItem, Op::GetItem, Op::Scan]) {
        faults.on(op).some(30, seed).fail(BROKEN);
        faults.on(op).some(20, seed + 10).fail(AwsError::THROTTLED);
        faults.on(op).some(30, seed + 20).delay(Duration::from_millis(5));
    }
    let lost = faults.on(Op::UpdateItem).saying(TAKE).some(100, 30).apply_then_fail(BROKEN);
    contract::run(Arc::new(ground.through(&faults))).await;
    assert!(lost.hits() >= 50, "{}", lost.hits());
}

/// What happens to the n-th write.
#[derive(Clone, Copy, Debug)]
enum Mishap {
    Fails,
    IsLate,
    LosesItsAnswer,
}

fn plan(faults: &Faults, nth: usize, mishap: Mishap) {
    let scope = faults.on(Op::UpdateItem).nth(nth);
    match mishap {
        Mishap::Fails => scope.fail(BROKEN),
        Mishap::IsLate => scope.delay(Duration::from_millis(20)),
        Mishap::LosesItsAnswer => scope.apply_then_fail(BROKEN),
    };
}

/// Take, checkpoint, renew, checkpoint, release, each once more if it fails.
async fn live(store: &DynamoDbLeaseStore) {
    let take = taking("one", None);
    let taken = match store.take(&take).await {
        Ok(answer) => answer,
        Err(_) => store.take(&take).await.unwrap(),
    };
    // A take that is repeated as a call of its own finds its own work done.
    let (Write::Applied(lease) | Write::Refused(Some(lease))) = taken else { panic!("the row is there") };
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
async fn whatever_befalls_a_write_the_row_ends_as_if_nothing_had() {
    let ground = Ground::new().await;
    for mishap in [Mishap::Fails, Mishap::IsLate, Mishap::LosesItsAnswer] {
        for nth in 1..=6 {
            for repeats_itself in [true, false] {
                let faults = Faults::default();
                plan(&faults, nth, mishap);
                let store = if repeats_itself { ground.through(&faults) } else { ground.once_through(&faults) };
                live(&store).await;
                let end = lease(&store).await;
                let mut expected = end.clone().with_owner(None).with_checkpoint(Some(after("6")));
                expected.epoch = 1;
                assert_eq!(end, expected, "{mishap:?} at write {nth}");
                // Each write moved the counter once, one whose answer was lost perhaps twice.
                assert!((6..=7).contains(&end.counter), "{mishap:?} at write {nth}: {}", end.counter);
                assert_eq!(store.delete(&end.key, end.seen()).await.unwrap(), Write::Applied(()));
            }
        }
    }
}

#[tokio::test]
async fn a_take_whose_answer_is_lost_is_known_for_ones_own_also_after_others_wrote() {
    let ground = Ground::new().await;
    let faults = Faults::default();
    faults.on(Op::UpdateItem).first(1).apply_then_fail(BROKEN);
    // The second attempt waits until somebody has asked for the shard.
    let second = faults.on(Op::UpdateItem).nth(2).hold();
    let store = ground.through(&faults);
    let take = tokio::spawn(async move { store.take(&taking("one", None)).await });
    faults.called(Op::UpdateItem, 2).await;
    let other = ground.store();
    let seen = lease(&other).await.seen();
    assert_eq!(other.ask(&crate::ground::key(), seen, "two").await.unwrap(), Write::Applied(()));
    second.lift();
    let Write::Applied(taken) = take.await.unwrap().unwrap() else { panic!("it was applied") };
    assert_eq!((taken.epoch, taken.counter, taken.wanted_by.as_deref()), (1, 2, Some("two")));
}

// D20
#[tokio::test(flavor = "multi_thread")]
async fn of_two_processes_with_one_owner_id_one_holds_an_epoch_whatever_answers_are_lost() {
    let ground = Ground::new().await;
    let reader = ground.store();
    for _ in 0..50 {
        let seen = row(&reader).await.as_ref().map(Lease::seen);
        let take = async || {
            let faults = Faults::default();
            faults.on(Op::UpdateItem).first(2).apply_then_fail(BROKEN);
            ground.through(&faults).take(&taking("the same", seen)).await.unwrap()
        };
        let (one, two) = tokio::join!(take(), take());
        let applied = [&one, &two].into_iter().filter(|answer| matches!(answer, Write::Applied(_))).count();
        assert_eq!(applied, 1, "{one:?} {two:?}");
    }
}

#[tokio::test]
async fn an_ask_or_delete_that_is_repeated_is_refused_with_the_row_that_shows_it() {
    let ground = Ground::new().await;
    let faults = Faults::default();
    let store = ground.through(&faults);
    let one = taken(&store, "one").await;
    let seen = lease(&store).await.seen();
    faults.on(Op::UpdateItem).nth(1).apply_then_fail(BROKEN);
    let Write::Refused(Some(marked)) = store.ask(&one.key, seen, "two").await.unwrap() else { panic!("repeated") };
    assert_eq!(marked.wanted_by.as_deref(), Some("two"));
    faults.on(Op::DeleteItem).nth(1).apply_then_fail(BROKEN);
    assert_eq!(store.delete(&one.key, marked.seen()).await.unwrap(), Write::Refused(None));
}
