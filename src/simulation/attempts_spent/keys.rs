//! Keys that wait for dead letters (A7).

use futures::{Stream, StreamExt, TryStreamExt};
use tokio::time::{Duration, sleep, timeout};

use super::{
    super::{
        script::{Fault, Rule},
        scripted_service::ServiceOp,
    },
    dead_letters, with_attempts, with_refused_dead_letters,
};

use crate::{
    config::position::KinesisPosition,
    delivery::Delivery,
    error::{KinesisError, service::FailureKind},
    simulation::harness::{Harness, horizon, millis, name, names, seconds, within},
    subscription::delivery_stream_ext::DeliveryStreamExt,
};

/// Gives `a0` back at its first attempt, and settles all others. Returns the record, its attempt and the time.
fn but_the_first(harness: &Harness, delivery: Delivery) -> String {
    let what = format!("{}#{} at {}", name(&delivery), delivery.attempt(), harness.millis() / 1_000);
    if name(&delivery) == "a0" && harness.millis() < 1_000 {
        delivery.nack_because("not yet");
    } else {
        delivery.ack();
    }
    what
}

/// All results that arrive within this time, errors as their text.
async fn results_within(
    of: &mut (impl Stream<Item = Result<String, KinesisError>> + Unpin),
    time: Duration,
) -> Vec<String> {
    let mut texts = Vec::new();
    let all = async {
        while let Some(result) = of.next().await {
            texts.push(result.unwrap_or_else(|error| error.to_string()));
        }
    };
    let _ = timeout(time, all).await;
    texts
}

// A7
#[tokio::test(start_paused = true)]
async fn a_key_continues_once_its_dead_letter_is_written_and_other_keys_continue_meanwhile() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put_keys("a", "xxyx");
    let me = harness.instance("me");
    me.service.script.plan(Rule::on(ServiceOp::PutRecord), Fault::Delay(seconds(5)));
    let mut work =
        me.subscribe(with_attempts(1)).await.buffer_by_key(10, async |delivery| Ok(but_the_first(&harness, delivery)));
    let done = results_within(&mut work, seconds(20)).await;
    assert_eq!(done, ["a0#1 at 0", "a2#1 at 0", "a1#1 at 5", "a3#1 at 5"]);
    assert_eq!(
        (dead_letters(&harness), harness.checkpoint("a").await.as_str()),
        (vec!["a0: not yet".to_owned()], "after a3")
    );
}

// A7
#[tokio::test(start_paused = true)]
async fn a_key_waits_while_its_dead_letter_fails() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put_keys("a", "xx");
    let me = harness.instance("me");
    me.service.fail(Rule::on(ServiceOp::PutRecord).times(3), FailureKind::Throttled);
    let subscription = me.subscribe(with_attempts(1)).await.tolerant();
    let mut work = subscription.buffer_by_key(10, async |delivery| Ok(but_the_first(&harness, delivery)));
    assert_eq!(results_within(&mut work, seconds(20)).await, ["a0#1 at 0", "a1#1 at 7"]);
}

// A7, X2
#[tokio::test(start_paused = true)]
async fn without_a_dead_letter_a_key_continues_after_the_error() {
    let spent = "stream s, shard a, sequence number a0: given up after attempt 1: not yet";
    for (stream, refused) in [(horizon().max_attempts(1), false), (with_attempts(1), true)] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put_keys("a", "xx");
        let me = harness.instance("me");
        me.service.fail(Rule::on(ServiceOp::PutRecord).always(), FailureKind::Rejected);
        let mut work =
            me.subscribe(stream).await.buffer_by_key(10, async |delivery| Ok(but_the_first(&harness, delivery)));
        let done = results_within(&mut work, seconds(20)).await;
        assert_eq!((done[0].as_str(), done[2].as_str(), done.len()), ("a0#1 at 0", "a1#1 at 0", 3));
        assert!(done[1].starts_with(spent), "{done:?}");
        assert_eq!(
            (done[1].contains("cannot be a dead letter"), harness.checkpoint("a").await.as_str()),
            (refused, "after a1")
        );
    }
}

// A6, A7
#[tokio::test(start_paused = true)]
async fn after_a_seek_no_key_waits_for_earlier_dead_letters_or_errors() {
    for (stream, spent) in [(with_attempts(1), "DeadLetter"), (horizon().max_attempts(1), "AttemptsSpent")] {
        let harness = Harness::new(&["a"]);
        harness.kinesis.put_keys("a", "xxy");
        let me = with_refused_dead_letters(&harness, "me");
        let subscription = me.subscribe(stream).await.tolerant();
        let seeker = subscription.get_ref().seeker();
        let mut work = subscription.buffer_by_key(1, async |delivery| Ok(but_the_first(&harness, delivery)));
        // The error waits where the test does not poll for it.
        assert_eq!(work.next().await.unwrap().unwrap(), "a0#1 at 0", "{spent}");
        sleep(seconds(5)).await;
        seeker.seek(KinesisPosition::horizon()).await.unwrap();
        assert_eq!(results_within(&mut work, seconds(20)).await, ["a0#1 at 5", "a1#1 at 5", "a2#1 at 5"], "{spent}");
        assert_eq!((dead_letters(&harness).len(), harness.checkpoint("a").await.as_str()), (0, "after a2"));
    }
}

// A7, E5
#[tokio::test(start_paused = true)]
async fn a_shard_is_handed_over_with_its_queued_dead_letters() {
    let harness = Harness::new(&["a", "b"]);
    harness.kinesis.put_keys("a", "xx");
    harness.kinesis.put_keys("b", "yy");
    let me = with_refused_dead_letters(&harness, "A");
    let subscription = me.subscribe(with_attempts(1)).await.tolerant();
    let stats = subscription.get_ref().stats_handle();
    let work = async |delivery: Delivery| {
        delivery.nack();
        Ok(String::new())
    };
    let mut work = subscription.buffer_by_key(10, work);
    // The first record of each key has used up its attempts; the second one waits behind it.
    assert_eq!(results_within(&mut work, seconds(1)).await.len(), 2);
    let mut other = harness.instance("B").subscribe(horizon()).await;
    let (_, came) = tokio::join!(results_within(&mut work, seconds(10)), within(&mut other, seconds(10)));
    let (gone, kept) = if name(&came[0]).starts_with('a') { ("a", "b") } else { ("b", "a") };
    assert_eq!(names(&came), [format!("{gone}0"), format!("{gone}1")]);
    assert!(came.iter().all(|delivery| delivery.attempt() == 1));
    assert!(harness.millis() < 15_000, "no delivery of it is open");
    let open: Vec<usize> = stats.snapshot().shards.iter().map(|shard| shard.in_flight).collect();
    assert_eq!(open, if gone == "a" { [0, 2] } else { [2, 0] });
    me.service.script.heal();
    assert_eq!(results_within(&mut work, seconds(100)).await.len(), 1);
    assert_eq!(dead_letters(&harness), [format!("{kept}0: given back"), format!("{kept}1: given back")]);
}

// A2, A7
#[tokio::test(start_paused = true)]
async fn a_record_that_only_waited_for_its_key_spends_no_attempt_and_keeps_its_place() {
    let harness = Harness::new(&["a"]);
    harness.kinesis.put_keys("a", "xxx");
    let mut subscription = harness.instance("me").subscribe(with_attempts(1)).await;
    let work = async |delivery: Delivery| -> Result<(), KinesisError> {
        sleep(seconds(60)).await;
        delivery.ack();
        Ok(())
    };
    let mut by_key = (&mut subscription).buffer_by_key(10, work);
    assert!(timeout(seconds(1), by_key.next()).await.is_err());
    drop(by_key);
    sleep(millis(1)).await;
    assert_eq!(dead_letters(&harness), ["a0: dropped"]);
    // The redelivery arrives while its key is busy, and precedes later records of its shard.
    harness.kinesis.put_keys("a", "xx");
    let shown = async |delivery: Delivery| {
        sleep(seconds(5)).await;
        let texts = format!("{}#{}", name(&delivery), delivery.attempt());
        delivery.ack();
        Ok(texts)
    };
    let by_key = (&mut subscription).buffer_by_key(10, shown);
    let done: Vec<String> = by_key.take(4).try_collect().await.unwrap();
    assert_eq!(done, ["a3#1", "a1#1", "a2#1", "a4#1"]);
}
